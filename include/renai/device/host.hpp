#pragma once
// The host leaf of `device`: memory from the C++ heap, streams as worker threads.

#include <functional>
#include <memory>

#include "renai/device/device.hpp"

namespace renai {

/// Stream of the host leaf: any call can be enqueued, and recorded while capturing.
class HostStream : public Stream {
 public:
  /// Runs `work` on the stream's worker after all earlier work; while capturing, records it for each later launch.
  virtual void enqueue(std::function<void()> work) = 0;
};

/// Streams of a host device, and the threads that they run on.
struct HostDeviceOptions {
  int stream_count = 4;
  /// Worker of each stream index; streams with equal numbers share a thread and run in launch order.
  int worker_of_stream[4] = {0, 1, 2, 1};  ///< TRANSFER, COMPUTE, COMM, UPDATE
};

/// Errors: none. `info().model` is the CPU's name, `instruction_set` the widest of avx512/avx2/sse that it offers.
std::unique_ptr<Device> make_host_device(const HostDeviceOptions& options = {});

}  // namespace renai
