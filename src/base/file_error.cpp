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

/// Of a file that is written: what is in the way of its name, and what its file system is short of.
std::string writing_remedy(int error) {
  switch (error) {
    case EACCES:
    case EPERM: return "write to a folder where you may, or change the permissions of this one";
    case ENOENT: return "create the folder first";
    case EISDIR: return "move the folder of that name away";
    case EEXIST:
    case ENOTDIR: return "choose another path: a file, or a link that leads nowhere, is in the way";
    case ELOOP: return "choose another path: its links lead back to themselves";
    case ENAMETOOLONG: return "choose a shorter name";
    default: return file_remedy(error);
  }
}

/// Errors: ResourceError. Returns whether there is something, and with it what.
bool look_at(const std::string& failed, const std::filesystem::path& path, struct stat& status,
             const std::string& remedy) {
  if (::stat(path.c_str(), &status) == 0) return true;
  const int error = errno;
  if (error == ENOENT || error == ENOTDIR) return false;
  if (is_absent(error)) throw UserError(failed, reason_of(error), remedy);
  throw ResourceError(failed, reason_of(error), file_remedy(error));
}

}  // namespace

std::string file_remedy(int error) {
  switch (error) {
    case ENOSPC: return "free some space (or file entries, see df -i), or write to another disk";
    case EDQUOT: return "free some of your quota, have it raised, or write to another disk";
    case EFBIG: return "raise the limit of file sizes (ulimit -f), or write to a file system that takes larger files";
    case EROFS: return "write to another folder: that file system is mounted read-only";
    case EIO: return "check the disk or the network file system; the kernel's log (dmesg) says more";
    case EACCES:
    case EPERM: return "check the permissions of the file and of the folders above it";
    case EBUSY:
    case ETXTBSY: return "end what uses the file, or choose another path";
    case EMFILE:
    case ENFILE: return "raise the limit of open files (ulimit -n)";
    case ENOMEM: return "free some memory";
    case EPIPE: return "keep what reads the output running";
    default: return "check the disk or the network file system";
  }
}

void fail_writing(const std::string& failed, int error, const std::string& more) {
  const bool full = error == ENOSPC || error == EDQUOT;
  throw ResourceError(failed, reason_of(error), writing_remedy(error) + (full && !more.empty() ? "; " + more : ""));
}

void fail_reading(const std::string& failed, int error) {
  if (error == ENOENT || error == ENOTDIR) {
    throw DataError(failed, "the file is missing", "check the path, or make the file again");
  }
  if (error == EISDIR) throw DataError(failed, "it is a folder, not a file", "name the file");
  if (is_absent(error)) throw DataError(failed, reason_of(error), "check the path and its links");
  throw ResourceError(failed, reason_of(error), file_remedy(error));
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
