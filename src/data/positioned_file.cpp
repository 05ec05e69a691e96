#include "positioned_file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <system_error>
#include <thread>

#include "renai/base/error.hpp"
#include "renai/base/file_error.hpp"

namespace renai {
namespace {

constexpr std::chrono::milliseconds kFirstPause{10}, kLongestPause{2560};
constexpr int kPauseGrowth = 4;

bool may_pass(int error) { return error == EIO || error == ESTALE || error == ETIMEDOUT || error == EAGAIN; }

std::int64_t open_now() {
  std::error_code ignored;
  std::int64_t count = 0;
  for (std::filesystem::directory_iterator at("/proc/self/fd", ignored), end; !ignored && at != end;
       at.increment(ignored)) {
    ++count;
  }
  return count;
}

Descriptor open_file(const std::filesystem::path& path) {
  return Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

}  // namespace

PositionedFile::PositionedFile(std::filesystem::path path) : path_(std::move(path)), file_(open_file(path_)) {
  struct stat status {};
  if (!file_ || ::fstat(file_.get(), &status) != 0) {
    fail_reading("opening " + path_.string(), errno);
  }
  size_bytes_ = status.st_size;
}

bool PositionedFile::read(std::int64_t at, std::span<std::byte> out) const {
  Descriptor again;  // Of this read alone: other threads may be using the first one.
  std::chrono::milliseconds pause = kFirstPause;
  while (!out.empty()) {
    const ssize_t got = ::pread(again ? again.get() : file_.get(), out.data(), out.size(), at);
    const int error = got < 0 ? errno : 0;
    if (got == 0) return false;
    if (got > 0) {
      out = out.subspan(static_cast<std::size_t>(got));
      at += got;
      continue;
    }
    if (error == EINTR) continue;
    if (!may_pass(error) || pause > kLongestPause) {
      throw ResourceError(
          "reading " + std::to_string(out.size()) + " bytes at offset " + std::to_string(at) + " of " + path_.string(),
          std::generic_category().message(error) + " (errno " + std::to_string(error) + ")" +
              (may_pass(error) ? ", and asking again did not help" : ""),
          "check the disk or the network file system");
    }
    std::this_thread::sleep_for(pause);
    pause *= kPauseGrowth;
    if (error == ESTALE) again = open_file(path_);
  }
  return true;
}

void allow_open_files(std::int64_t count) {
  constexpr std::int64_t kOthers = 512;  // Logs, links between ranks: what will be opened yet.
  const auto needed = static_cast<rlim_t>(open_now() + count + kOthers);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= needed) return;
  if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max < needed) {
    throw ResourceError("opening " + std::to_string(count) + " shards",
                        "a process may have " + std::to_string(limit.rlim_max) + " files open here",
                        "raise the limit (ulimit -Hn), or pack with more samples in a shard");
  }
  limit.rlim_cur = needed;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    throw ResourceError("raising the limit of open files to " + std::to_string(needed),
                        std::generic_category().message(errno), "raise it before the start (ulimit -n)");
  }
}

}  // namespace renai
