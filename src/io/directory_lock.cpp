#include "renai/io/directory_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>

namespace renai {
namespace {

int lock(int descriptor, Hold hold) {
  while (::flock(descriptor, (hold == Hold::alone ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

/// False when the directory was renamed between its opening and its locking: then the name is another's by now.
bool still_named(int descriptor, const std::filesystem::path& directory) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(descriptor, &opened) == 0 && ::stat(directory.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

}  // namespace

DirectoryLock lock_directory(const std::filesystem::path& directory, Hold hold) {
  for (;;) {
    Descriptor descriptor(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const int error = descriptor ? lock(descriptor.get(), hold) : errno;
    if (error != 0) return {Descriptor{}, error};
    if (still_named(descriptor.get(), directory)) return {std::move(descriptor), 0};
  }
}

}  // namespace renai
