#include "renai/base/memory.hpp"

#include <algorithm>
#include <fstream>
#include <string>

namespace renai {
namespace {

constexpr const char* kControlGroup = "/sys/fs/cgroup";

/// The first number in a file; -1 when there is none (a file that says "max" has no limit).
std::int64_t number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::int64_t value = -1;
  return file >> value ? value : -1;
}

std::int64_t system_available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  std::int64_t kib = 0;
  while (file >> key >> kib) {
    std::getline(file, unit);
    if (key == "MemAvailable:") return kib * 1024;
  }
  return -1;
}

/// What the system takes back before a control group meets its limit: the same parts that tools for containers leave
/// out of the working set, and kernel objects that are caches.
std::int64_t reclaimable_bytes(const std::filesystem::path& memory_stat) {
  std::ifstream file(memory_stat);
  std::string key;
  std::int64_t value = 0, total = 0;
  while (file >> key >> value) {
    if (key == "inactive_file" || key == "slab_reclaimable") total += value;
  }
  return total;
}

/// Where -1 is unknown.
std::int64_t least_known(std::int64_t a, std::int64_t b) { return a < 0 || b < 0 ? std::max(a, b) : std::min(a, b); }

}  // namespace

std::int64_t allocatable_memory_bytes() {
  return least_known(system_available_bytes(), control_group_available_bytes(kControlGroup));
}

std::int64_t cacheable_memory_bytes() {
  return least_known(system_available_bytes(), number_in(std::filesystem::path(kControlGroup) / "memory.max"));
}

std::int64_t control_group_available_bytes(const std::filesystem::path& folder) {
  const std::int64_t limit = number_in(folder / "memory.max");
  const std::int64_t used = number_in(folder / "memory.current");
  if (limit < 0 || used < 0) return -1;
  // The files are read one after the other: the parts may exceed the whole.
  const std::int64_t held = std::max<std::int64_t>(0, used - reclaimable_bytes(folder / "memory.stat"));
  return std::max<std::int64_t>(0, limit - held);
}

}  // namespace renai
