// The twin of the cuda backend for builds without CUDA.

#include "renai/backend/cuda.hpp"
#include "renai/base/error.hpp"

namespace renai {

std::unique_ptr<Backend> make_cuda_backend(const CudaBackendOptions&) {
  throw BackendError("starting the cuda backend", "this build has no CUDA leaf: " RENAI_CUDA_REASON,
                     "use --device cpu, or build again with CUDA");
}

}  // namespace renai
