#include "seal.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "renai/base/digest.hpp"
#include "renai/base/error.hpp"
#include "renai/base/file_error.hpp"

namespace renai {
namespace {

constexpr std::string_view kMagic = "renai-seal-xxh3:";
constexpr std::size_t kSealBytes = 16 + 32;  // magic, 32 hexadecimal digits
static_assert(kMagic.size() == 16);
constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

/// Digest of the first `size_bytes` bytes, block by block.
std::string digest_of(std::ifstream& file, std::size_t size_bytes, const std::filesystem::path& path) {
  std::vector<char> block(std::min(kBlockBytes, size_bytes));
  std::vector<Digest128> parts;
  file.seekg(0);
  for (std::size_t done = 0; done < size_bytes;) {
    const std::size_t count = std::min(kBlockBytes, size_bytes - done);
    errno = 0;
    if (!file.read(block.data(), static_cast<std::streamsize>(count))) {
      if (errno != 0) fail_reading("reading " + path.string(), errno);
      throw DataError("reading " + path.string(), "the disk gave fewer bytes than the file's size",
                      "check the disk, or use another checkpoint");
    }
    parts.push_back(hash128(std::string_view(block.data(), count)));
    done += count;
  }
  return combine_digests(parts).hex();
}

std::size_t size_of(const std::filesystem::path& path) {
  std::error_code failure;
  const auto size_bytes = std::filesystem::file_size(path, failure);
  if (failure) fail_reading("reading " + path.string(), failure.value());
  return static_cast<std::size_t>(size_bytes);
}

std::ifstream open_file(const std::filesystem::path& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_reading("reading " + path.string(), errno);
  return file;
}

}  // namespace

void append_seal(const std::filesystem::path& path) {
  std::string seal(kMagic);
  {
    std::ifstream file = open_file(path);
    seal += digest_of(file, size_of(path), path);
  }
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::app);
  file << seal << std::flush;
  if (!file) fail_writing("writing " + path.string(), errno != 0 ? errno : EIO);
}

SealState check_seal(const std::filesystem::path& path) {
  const std::size_t size_bytes = size_of(path);
  if (size_bytes < kSealBytes) return SealState::none;
  std::ifstream file = open_file(path);
  std::array<char, kSealBytes> seal{};
  file.seekg(static_cast<std::streamoff>(size_bytes - kSealBytes));
  errno = 0;
  if (!file.read(seal.data(), seal.size())) {
    if (errno != 0) fail_reading("reading " + path.string(), errno);
    throw DataError("reading " + path.string(), "its end cannot be read", "check the disk, or use another checkpoint");
  }
  const std::string_view text(seal.data(), seal.size());
  if (!text.starts_with(kMagic)) return SealState::none;
  const std::string digest = digest_of(file, size_bytes - kSealBytes, path);
  return text.substr(kMagic.size()) == digest ? SealState::intact : SealState::broken;
}

}  // namespace renai
