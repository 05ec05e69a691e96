#include "spool.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "renai/base/file_error.hpp"

namespace renai {

namespace {
constexpr std::size_t kGathered = std::size_t{1} << 20;
}

Spool::Spool(const std::filesystem::path& folder) : folder_(folder) {
  // With a name for a moment: not every file system makes files without one.
  std::string name = (folder / (std::string(kSpoolName) + "XXXXXX")).string();
  file_ = Descriptor(::mkostemp(name.data(), O_CLOEXEC));
  if (!file_) fail();
  ::unlink(name.c_str());
}

void Spool::fail() const {
  fail_writing("writing into " + folder_.string(), errno, "the folder needs room for one shard more");
}

void Spool::append(std::span<const std::byte> bytes) {
  waiting_.insert(waiting_.end(), bytes.begin(), bytes.end());
  if (waiting_.size() >= kGathered) flush();
}

void Spool::flush() {
  std::span<const std::byte> left = waiting_;
  while (!left.empty()) {
    const ssize_t written = ::pwrite(file_.get(), left.data(), left.size(), size_);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail();
    left = left.subspan(static_cast<std::size_t>(written));
    size_ += written;
  }
  waiting_.clear();
}

void Spool::read(std::int64_t first, std::span<std::byte> out) {
  flush();
  while (!out.empty()) {
    const ssize_t got = ::pread(file_.get(), out.data(), out.size(), first);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) fail_reading("reading again what was written into " + folder_.string(), got == 0 ? EIO : errno);
    out = out.subspan(static_cast<std::size_t>(got));
    first += got;
  }
}

}  // namespace renai
