#pragma once
// The cuda leaf of `device`: one GPU, its arena, pinned memory, streams, events and CUDA graphs.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "renai/device/device.hpp"

namespace renai {

/// Stream of the cuda leaf: kernels and libraries are launched into `native`, and recorded there while it captures.
class CudaStream : public Stream {
 public:
  virtual void* native() const = 0;  ///< cudaStream_t
};

/// One GPU that this process may use.
struct CudaGpu {
  int ordinal = 0;  ///< Within CUDA_VISIBLE_DEVICES.
  std::string model;
  std::string uuid;            ///< "GPU-6d0f2a1c-..."
  std::string pci;             ///< "0000:1b:00.0"
  int compute_capability = 0;  ///< 90 for 9.0
  int numa_node = -1;          ///< -1: unknown
  std::int64_t memory_bytes = 0;
};

struct CudaGpus {
  std::vector<CudaGpu> gpus;  ///< By ordinal.
  std::string reason;         ///< Why there is none: no leaf, no driver, no device, driver too old; with versions.
};

/// The GPUs of this process. Effects: starts the CUDA runtime, makes no context. Errors: none; see `reason`.
CudaGpus find_cuda_gpus();
/// Number of usable GPUs; when 0, `*reason` says why. Errors: none.
int cuda_device_count_or_reason(std::string* reason);
/// "CUDA 13.0, driver for CUDA 13.0", "CUDA 13.0, driver none"; "none" when the leaf is not built.
std::string cuda_versions();

struct CudaDeviceOptions {
  int ordinal = 0;
  /// Called about every 10 ms by any thread that waits for the GPU (synchronize, events), with the time this wait has
  /// taken so far. May throw, which ends the wait: the place to look whether the other ranks are alive.
  std::function<void(std::chrono::milliseconds waited)> while_waiting{};
};

/// Makes the GPU current for the calling thread. Errors: BackendError with the reason and versions when there is no
/// such GPU, or when this build has no CUDA leaf.
std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options = {});

}  // namespace renai
