// A library for LD_PRELOAD: files that the system does not give, or gives slowly, and disks that are full.
// UNREADABLE=TEXT: reads of files with TEXT in their paths fail with EIO. FULL=TEXT: writes of such files fail with
// ENOSPC, or with the error number WRITE_ERROR. SLOW=TEXT: positioned reads of such files take 50 ms. A "$" at the end
// of TEXT stands for the end of the path. FAULTY_RANK=N: only on this rank of Open MPI's.

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

bool on_this_rank() {
  const char* wanted = std::getenv("FAULTY_RANK");
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return wanted == nullptr || (rank != nullptr && std::strcmp(wanted, rank) == 0);
}

/// Whether the file is one that the variable names.
bool is_faulty(const char* variable, int file) {
  const char* text = std::getenv(variable);
  if (text == nullptr || !on_this_rank()) return false;
  char link[32];
  char path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const long length = ::syscall(SYS_readlink, link, path, sizeof path - 1);
  if (length < 0) return false;
  path[length] = '\0';
  const std::size_t size = std::strlen(text);
  if (size == 0 || text[size - 1] != '$') return std::strstr(path, text) != nullptr;
  const auto tail = static_cast<long>(size) - 1;
  return length >= tail && std::strncmp(path + length - tail, text, size - 1) == 0;
}

bool fails_to_read(int file) {
  if (!is_faulty("UNREADABLE", file)) return false;
  errno = EIO;
  return true;
}

bool fails_to_write(int file) {
  if (!is_faulty("FULL", file)) return false;
  const char* error = std::getenv("WRITE_ERROR");
  errno = error != nullptr ? std::atoi(error) : ENOSPC;
  return true;
}

}  // namespace

extern "C" ssize_t read(int file, void* to, size_t count) {
  return fails_to_read(file) ? -1 : ::syscall(SYS_read, file, to, count);
}
extern "C" ssize_t pread(int file, void* to, size_t count, off_t offset) {
  if (is_faulty("SLOW", file)) ::usleep(50'000);
  return fails_to_read(file) ? -1 : ::syscall(SYS_pread64, file, to, count, offset);
}
extern "C" ssize_t pread64(int file, void* to, size_t count, off_t offset) { return pread(file, to, count, offset); }

extern "C" ssize_t write(int file, const void* from, size_t count) {
  return fails_to_write(file) ? -1 : ::syscall(SYS_write, file, from, count);
}
extern "C" ssize_t writev(int file, const iovec* parts, int count) {
  return fails_to_write(file) ? -1 : ::syscall(SYS_writev, file, parts, count);
}
extern "C" ssize_t pwrite(int file, const void* from, size_t count, off_t offset) {
  return fails_to_write(file) ? -1 : ::syscall(SYS_pwrite64, file, from, count, offset);
}
extern "C" ssize_t pwrite64(int file, const void* from, size_t count, off_t offset) {
  return pwrite(file, from, count, offset);
}
