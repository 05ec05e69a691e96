#include "machine.hpp"

#include <algorithm>
#include <fstream>

namespace renai::host {
namespace {

/// The first number in a file; -1 when there is none (a file that says "max" has no limit).
std::int64_t number_in(const char* path) {
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
  const std::int64_t limit = number_in("/sys/fs/cgroup/memory.max");
  const std::int64_t used = number_in("/sys/fs/cgroup/memory.current");
  if (limit >= 0 && used >= 0) {
    const std::int64_t left = std::max<std::int64_t>(0, limit - used);
    available = available < 0 ? left : std::min(available, left);
  }
  return available;
}

}  // namespace renai::host
