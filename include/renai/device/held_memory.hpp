#pragma once
// Memory that must outlive its owner: transfers of a failed run that cannot be called back may still touch it.

#include <atomic>

namespace renai {

namespace internal {
inline std::atomic<bool> host_memory_held{false};
}  // namespace internal

/// From now on buffers of host devices are never given back to the system. A transport calls this when it gives up a
/// transfer that did not end; the run has failed then, and the process's end frees everything.
/// Effects: for the whole process, from any thread. Errors: none.
inline void hold_host_memory() noexcept { internal::host_memory_held.store(true, std::memory_order_release); }
inline bool host_memory_held() noexcept { return internal::host_memory_held.load(std::memory_order_acquire); }

}  // namespace renai
