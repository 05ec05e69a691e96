#include "renai/base/file_error.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "renai/base/error.hpp"

namespace renai {
namespace {

std::string reason_of(int error) { return std::generic_category().message(error); }

/// Whether the name is the reason, and not what it stands for.
bool is_absent(int error) {
  return error == ENOENT || error == ENOTDIR || error == ELOOP || error == ENAMETOOLONG || error == EISDIR;
}

std::string remedy_of(int error) {
  switch (error) {
    case EACCES:
    case EPERM: return "check the permissions of the file and of the folders above it";
    case EMFILE:
    case ENFILE: return "raise the limit of open files (ulimit -n)";
    case ENOMEM: return "free some memory";
    default: return "check the disk or the network file system";
  }
}

/// Errors: ResourceError. Returns whether there is something, and with it what.
bool look_at(const std::string& failed, const std::filesystem::path& path, struct stat& status,
             const std::string& remedy) {
  if (::stat(path.c_str(), &status) == 0) return true;
  const int error = errno;
  if (error == ENOENT || error == ENOTDIR) return false;
  if (is_absent(error)) throw UserError(failed, reason_of(error), remedy);
  throw ResourceError(failed, reason_of(error), remedy_of(error));
}

}  // namespace

void fail_reading(const std::string& failed, int error) {
  if (error == ENOENT || error == ENOTDIR) {
    throw DataError(failed, "the file is missing", "check the path, or make the file again");
  }
  if (error == EISDIR) throw DataError(failed, "it is a folder, not a file", "name the file");
  if (is_absent(error)) throw DataError(failed, reason_of(error), "check the path and its links");
  throw ResourceError(failed, reason_of(error), remedy_of(error));
}

void require_named_file(const std::string& failed, const std::filesystem::path& path, const std::string& remedy) {
  struct stat status {};
  if (!look_at(failed, path, status, remedy)) throw UserError(failed, "there is no such file", remedy);
  if (S_ISDIR(status.st_mode)) throw UserError(failed, "it is a folder, not a file", remedy);
  // Reading a pipe may wait for ever.
  if (!S_ISREG(status.st_mode))
    throw UserError(failed, "it is a pipe or a device, which ranks cannot all read", remedy);
}

void require_named(const std::string& failed, const std::filesystem::path& path, const std::string& remedy) {
  struct stat status {};
  if (!look_at(failed, path, status, remedy)) throw UserError(failed, "there is no such file or folder", remedy);
}

void require_named_folder(const std::string& failed, const std::filesystem::path& path, const std::string& remedy) {
  struct stat status {};
  if (!look_at(failed, path, status, remedy)) throw UserError(failed, "there is no such folder", remedy);
  if (!S_ISDIR(status.st_mode)) throw UserError(failed, "it is a file, not a folder", remedy);
}

}  // namespace renai
