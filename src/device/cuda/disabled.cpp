// The twin of the cuda leaf for builds without CUDA.

#include "renai/base/error.hpp"
#include "renai/device/cuda.hpp"

namespace renai {

CudaGpus find_cuda_gpus() { return {.gpus = {}, .reason = "this build has no CUDA leaf: " RENAI_CUDA_REASON}; }

int cuda_device_count_or_reason(std::string* reason) {
  *reason = find_cuda_gpus().reason;
  return 0;
}

std::string cuda_versions() { return "none"; }

std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions&) {
  throw BackendError("using a GPU", find_cuda_gpus().reason, "use --device cpu, or build again with CUDA");
}

}  // namespace renai
