#include "machine.hpp"

#include <algorithm>
#include <fstream>

namespace renai::host {
namespace {

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

}  // namespace

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (line.rfind("model name", 0) != 0 || colon == std::string::npos) continue;
    const auto start = line.find_first_not_of(" \t", colon + 1);
    if (start != std::string::npos) return line.substr(start);
  }
  return "unknown CPU";
}

std::string instruction_set() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq")) {
    return "avx512";
  }
  return __builtin_cpu_supports("avx2") ? "avx2" : "sse";
#elif defined(__aarch64__)
  return "neon";
#else
  return "generic";
#endif
}

int numa_node() {
  std::ifstream file("/sys/devices/system/node/online");
  std::string nodes;
  file >> nodes;
  return nodes == "0" ? 0 : -1;
}

std::int64_t available_memory_bytes() {
  std::int64_t available = system_available_bytes();
  const std::int64_t left = control_group_available_bytes("/sys/fs/cgroup");
  if (left >= 0) available = available < 0 ? left : std::min(available, left);
  return available;
}

std::int64_t control_group_available_bytes(const std::filesystem::path& folder) {
  const std::int64_t limit = number_in(folder / "memory.max");
  const std::int64_t used = number_in(folder / "memory.current");
  if (limit < 0 || used < 0) return -1;
  // The files are read one after the other: the parts may exceed the whole.
  const std::int64_t held = std::max<std::int64_t>(0, used - reclaimable_bytes(folder / "memory.stat"));
  return std::max<std::int64_t>(0, limit - held);
}

}  // namespace renai::host
