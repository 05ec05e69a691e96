#include "renai/base/text_file.hpp"

#include <cerrno>
#include <fstream>
#include <system_error>

#include "renai/base/error.hpp"
#include "renai/base/file_error.hpp"

namespace renai {
namespace {

constexpr std::uintmax_t kMaxBytes = std::uintmax_t{16} << 20;

}  // namespace

std::string read_named_text(const std::string& failed, const std::filesystem::path& path, const std::string& remedy) {
  namespace fs = std::filesystem;
  require_named_file(failed, path, remedy);
  std::error_code error;
  const std::uintmax_t size_bytes = fs::file_size(path, error);
  if (error) fail_reading(failed, error.value());
  if (size_bytes > kMaxBytes) {
    throw UserError(failed, "it has " + std::to_string(size_bytes >> 20) + " MiB, more than any text of this kind",
                    "name a text file");
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_reading(failed, errno);
  std::string text(size_bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(size_bytes));
  if (file.bad()) fail_reading(failed, errno);
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

}  // namespace renai
