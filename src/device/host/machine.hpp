#pragma once
// What the host leaf asks the operating system.

#include <cstdint>
#include <filesystem>
#include <string>

namespace renai::host {

/// "model name" of /proc/cpuinfo; "unknown CPU" where there is none.
std::string cpu_model();
/// The widest of "avx512", "avx2", "sse" (x86) that the CPU and the system offer; "neon" or "generic" elsewhere.
std::string instruction_set();
/// The machine's only NUMA node; -1 when there are several (threads are not pinned) or it is unknown.
int numa_node();
/// Memory that new allocations may take: the least of the system's and this control group's. Units: bytes; -1: unknown.
std::int64_t available_memory_bytes();
/// What the control group in `folder` leaves: its limit less what it uses, where file cache and kernel caches that the
/// system takes back on demand are not in use. Units: bytes; -1: no limit, or unknown.
std::int64_t control_group_available_bytes(const std::filesystem::path& folder);

}  // namespace renai::host
