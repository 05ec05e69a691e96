#include "renai/data/page_cache.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "renai/base/descriptor.hpp"
#include "renai/base/file_error.hpp"
#include "renai/base/thread.hpp"

namespace renai {
namespace fs = std::filesystem;

void FileSet::add(const fs::path& directory, const Manifest& manifest, const std::string& split) {
  const SplitInfo* info = manifest.find(split);
  if (info == nullptr) return;
  for (const ShardInfo& shard : info->shards) {
    const fs::path path = directory / shard.file;
    if (known.contains(path.native())) continue;
    std::error_code error;
    const auto bytes = fs::file_size(path, error);
    if (error) fail_reading("shard " + path.string(), error.value());
    known.insert(path.native());
    paths.push_back(path);
    size_bytes += static_cast<std::int64_t>(bytes);
  }
}

std::int64_t stored_file_bytes(const fs::path& directory, const Manifest& manifest, const std::string& split) {
  const SplitInfo* info = manifest.find(split);
  std::int64_t total = 0;
  if (info == nullptr) return total;
  for (const ShardInfo& shard : info->shards) {
    std::error_code error;
    const auto bytes = fs::file_size(directory / shard.file, error);
    if (!error) total += static_cast<std::int64_t>(bytes);
  }
  return total;
}

CacheFiller::CacheFiller(FileSet files, int part, int parts)
    : files_(std::move(files)),
      thread_(start_thread("the thread that fills the cache", "", [this, part, parts] { run(part, parts); })) {}

CacheFiller::~CacheFiller() {
  stop_ = true;
  thread_.join();
}

bool CacheFiller::done() const {
  if (!done_) return false;
  if (failure_) std::rethrow_exception(failure_);
  return true;
}

void CacheFiller::run(int part, int parts) {
  try {
    for (std::size_t i = static_cast<std::size_t>(part); i < files_.paths.size() && !stop_;
         i += static_cast<std::size_t>(parts)) {
      read_file(files_.paths[i]);
    }
  } catch (...) {
    failure_ = std::current_exception();
  }
  done_ = true;
}

void CacheFiller::read_file(const fs::path& path) {
  const auto fail = [&path] { fail_reading("reading " + path.string() + " into memory", errno); };
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) fail();
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  std::vector<char> block(std::size_t{4} << 20);
  while (!stop_) {
    const ssize_t got = ::read(file.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail();
    if (got == 0) return;
    read_bytes_ += got;
  }
}

}  // namespace renai
