// A library for LD_PRELOAD: positioned reads of threads other than the first one fail. FLAKY_READS=ERRNO:COUNT says
// with which error and how often, -1: always. A program's first thread opens files, so only loader threads are met.
// SHORT_READS=BYTES: no positioned read gives more at once. NO_DIRECT_READS: no file can be opened for direct reads.

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>

namespace {

std::atomic<long> failures{-2};  // Left to give; -2: not read yet.
int error_number = 0;

bool fails() {
  if (::syscall(SYS_gettid) == ::getpid()) return false;
  if (failures.load() == -2) {
    const char* text = std::getenv("FLAKY_READS");
    char* end = nullptr;
    error_number = text != nullptr ? static_cast<int>(std::strtol(text, &end, 10)) : 0;
    failures = end != nullptr && *end == ':' ? std::strtol(end + 1, nullptr, 10) : 0;
  }
  const long left = failures.load();
  if (left == 0) return false;
  if (left > 0) --failures;
  errno = error_number;
  return true;
}

}  // namespace

extern "C" ssize_t pread(int file, void* to, size_t count, off_t offset) {
  if (fails()) return -1;
  static const char* const most = std::getenv("SHORT_READS");
  if (most != nullptr) count = std::min<size_t>(count, std::strtoul(most, nullptr, 10));
  return ::syscall(SYS_pread64, file, to, count, offset);
}

extern "C" ssize_t pread64(int file, void* to, size_t count, off_t offset) { return pread(file, to, count, offset); }

extern "C" int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const int mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(more, int) : 0;
  va_end(more);
  if ((flags & O_DIRECT) != 0 && std::getenv("NO_DIRECT_READS") != nullptr) {
    errno = EINVAL;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
