#pragma once
// What the cuda leaf shares: checked calls, the current device of a thread, the counters, waiting.

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <source_location>

#include "renai/device/cuda.hpp"

namespace renai::cuda {

/// Throws BackendError with the library's text unless `status` is success. `what` says what was being done.
void check_cuda(cudaError_t status, const char* what, std::source_location where = std::source_location::current());

/// Makes `ordinal` the calling thread's device. Cheap when it is already.
void make_current(int ordinal);

/// True while an exception unwinds: the GPU may hang then, and freeing its memory would wait for it. What is left is
/// freed with the process.
inline bool leaving() noexcept { return std::uncaught_exceptions() > 0; }

/// What a device shares with its streams, events and graphs, which may outlive it.
struct Core {
  int ordinal = 0;
  std::function<void(std::chrono::milliseconds)> while_waiting;
  std::atomic<std::int64_t> allocations{0}, allocated_bytes{0}, pinned_allocations{0}, host_synchronizations{0},
      launches{0};
};

/// One wait for the GPU: spins for its first 50 us, then sleeps between looks, 20 to 200 us at a time.
class Patience {
 public:
  Patience(const Core& core, std::chrono::steady_clock::time_point waiting_since)
      : core_(&core), waiting_since_(waiting_since), next_look_(begin_ + kLook) {}
  /// Rests a moment. Errors: those of `while_waiting`.
  void rest();
  std::chrono::steady_clock::duration waited() const { return std::chrono::steady_clock::now() - begin_; }

 private:
  static constexpr std::chrono::microseconds kSpin{50};
  static constexpr std::chrono::milliseconds kLook{10};
  const Core* core_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point waiting_since_, next_look_;
  std::chrono::microseconds sleep_{20};
};

}  // namespace renai::cuda
