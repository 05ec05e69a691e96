#include "renai/train/run_lock.hpp"

#include <cerrno>
#include <csignal>
#include <nlohmann/json.hpp>
#include <system_error>

#include "renai/base/error.hpp"
#include "renai/base/host.hpp"
#include "renai/io/atomic_file.hpp"
#include "renai/io/directory_lock.hpp"

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

}  // namespace

RunLock::RunLock(const std::filesystem::path& directory) {
  DirectoryLock lock = lock_directory(directory);
  if (lock.error == ENOENT || lock.error == ENOTDIR) return;
  if (lock.error == EWOULDBLOCK) {
    throw UserError("run directory " + directory.string(), "another run is using it" + holder(directory),
                    "wait until that has ended, or give another --run-dir");
  }
  if (lock.error != 0) {
    // File systems without locks say so in many ways; a run there is as good as it was, only unguarded.
    warning_ = "run directory " + directory.string() + " cannot be locked (" +
               std::generic_category().message(lock.error) + "): see to it that no other run uses it";
  }
  descriptor_ = std::move(lock.descriptor);
}

}  // namespace renai
