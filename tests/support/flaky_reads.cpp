// A library for LD_PRELOAD: positioned reads of threads other than the first one fail. FLAKY_READS=ERRNO:COUNT says
// with which error and how often, -1: always. A program's first thread opens files, so only loader threads are met.

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
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
  return ::syscall(SYS_pread64, file, to, count, offset);
}

extern "C" ssize_t pread64(int file, void* to, size_t count, off_t offset) { return pread(file, to, count, offset); }
