#include "renai/train/run_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <nlohmann/json.hpp>
#include <system_error>

#include "renai/base/error.hpp"
#include "renai/base/host.hpp"
#include "renai/io/atomic_file.hpp"

namespace renai {
namespace {

/// ", process 17 on node3" as far as the run in `directory` has written down who it is. What it finds may still be of
/// an earlier run, which has ended.
std::string holder(const std::filesystem::path& directory) {
  try {
    const auto first = nlohmann::json::parse(read_text(directory / "ranks.json")).at(0);
    const auto pid = first.at("pid").get<pid_t>();
    const auto host = first.at("host").get<std::string>();
    if (pid <= 0 || (host == host_name() && ::kill(pid, 0) != 0 && errno == ESRCH)) return {};
    return ", process " + std::to_string(pid) + " on " + host;
  } catch (const std::exception&) {
    return {};  // It has only just begun.
  }
}

int lock(int descriptor) {
  while (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
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

RunLock::RunLock(const std::filesystem::path& directory) {
  for (;;) {
    Descriptor descriptor(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!descriptor && (errno == ENOENT || errno == ENOTDIR)) return;
    const int error = descriptor ? lock(descriptor.get()) : errno;
    if (error == EWOULDBLOCK) {
      throw UserError("run directory " + directory.string(), "another run is using it" + holder(directory),
                      "wait until that has ended, or give another --run-dir");
    }
    if (error != 0) {
      // File systems without locks say so in many ways; a run there is as good as it was, only unguarded.
      warning_ = "run directory " + directory.string() + " cannot be locked (" +
                 std::generic_category().message(error) + "): see to it that no other run uses it";
      return;
    }
    if (!still_named(descriptor.get(), directory)) continue;
    descriptor_ = std::move(descriptor);
    return;
  }
}

}  // namespace renai
