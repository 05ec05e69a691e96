#pragma once
// Calls of the GPU's runtime that must not fail.

#include <cuda_runtime_api.h>

#include "renai/base/error.hpp"

namespace renai::cuda {

/// What to do when a call fails that nothing but the GPU or its driver can make fail.
inline constexpr const char* kGpuRemedy = "see the GPU's log (dmesg, nvidia-smi), or use --device cpu";
/// What to do when a library has no kernel for a layer.
inline constexpr const char* kPlanRemedy = "use another --precision, or --device cpu";

/// Throws BackendError with the runtime's text unless `status` is success. `what` says what was being done.
inline void require(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw BackendError(what, cudaGetErrorString(status), kGpuRemedy);
}

}  // namespace renai::cuda
