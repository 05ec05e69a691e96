#pragma once
// The cuda leaf of `backend`: cuDNN, cuBLASLt and own kernels.

#include <memory>
#include <string>

#include "renai/backend/backend.hpp"
#include "renai/comm/control_group.hpp"

namespace renai {

class Log;

struct CudaBackendOptions {
  Precision precision = Precision::fp32;
  std::string kernel_search = "heuristic";  ///< "heuristic" (no timing takes part) or "measure".
  std::string plan_cache_dir;               ///< Folder of kernel plans kept between runs; empty: none.
  ControlGroup* control = nullptr;          ///< Rank 0's choices go to all ranks of it; null: this rank alone.
  const Log* log = nullptr;                 ///< Told when plans cannot be kept; null: nobody is.
};

/// Runs on the cuda device leaf's streams and the calling thread's current GPU. Errors: BackendError with the reason
/// when this build has no CUDA leaf or a library cannot be used.
std::unique_ptr<Backend> make_cuda_backend(const CudaBackendOptions& options);

}  // namespace renai
