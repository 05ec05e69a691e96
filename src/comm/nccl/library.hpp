#pragma once
// NCCL behind checked calls: a communicator that starts, works and ends without ever blocking the host.

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <source_location>
#include <string_view>

#include "renai/comm/control_group.hpp"

namespace renai::nccl {

/// Throws BackendError when `status` is a failure. For calls without a communicator, and those whose end `finish`
/// awaits.
void check_nccl(ncclResult_t status, const char* what, std::source_location where = std::source_location::current());

/// Owns a non-blocking ncclComm_t. Every call is followed by a wait with a deadline for its end.
class Library {
 public:
  /// Effects: collective over `control`, on the calling thread's current GPU.
  Library(ControlGroup& control, std::chrono::milliseconds watchdog);
  /// Finalizes when all is well; leaves it to the process's end while an exception unwinds or after a failure, because
  /// a communicator whose peer is gone may never end.
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  ncclComm_t comm() const noexcept { return comm_; }
  /// Waits until the call that returned `status` is done. Errors: BackendError, PeerError with `stage`; a peer's
  /// reported failure.
  void finish(ncclResult_t status, std::string_view stage);
  /// Looks for a failure that the library found meanwhile. Any thread. Errors: PeerError.
  void poll();

 private:
  void start(const ncclUniqueId& id);
  [[noreturn]] void fail(ncclResult_t status, std::string_view stage);

  ControlGroup* control_;
  std::chrono::milliseconds watchdog_;
  ncclComm_t comm_ = nullptr;
  std::atomic<bool> failed_{false};
};

}  // namespace renai::nccl
