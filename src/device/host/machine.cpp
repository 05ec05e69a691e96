#include "machine.hpp"

#include <fstream>

namespace renai::host {
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

}  // namespace renai::host
