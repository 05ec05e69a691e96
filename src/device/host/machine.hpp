#pragma once
// What the host leaf asks the operating system.

#include <string>

namespace renai::host {

/// "model name" of /proc/cpuinfo; "unknown CPU" where there is none.
std::string cpu_model();
/// The widest of "avx512", "avx2", "sse" (x86) that the CPU and the system offer; "neon" or "generic" elsewhere.
std::string instruction_set();
/// The machine's only NUMA node; -1 when there are several (threads are not pinned) or it is unknown.
int numa_node();

}  // namespace renai::host
