#pragma once
// Memory of this host, as the system and this process's control group leave it.

#include <cstdint>
#include <filesystem>

namespace renai {

/// Memory that new allocations may take: the least of the system's and what the control group leaves. Units: bytes; -1:
/// unknown.
std::int64_t allocatable_memory_bytes();

/// Memory that files read may stay in: the least of the system's and the control group's limit. Of the limit the page
/// cache of files read before takes its part, which counts as free here: a set that is in memory already fits again.
/// Units: bytes; -1: unknown.
std::int64_t cacheable_memory_bytes();

/// What the control group in `folder` leaves: its limit less what it uses, where file cache and kernel caches that the
/// system takes back on demand are not in use. Units: bytes; -1: no limit, or unknown.
std::int64_t control_group_available_bytes(const std::filesystem::path& folder);

}  // namespace renai
