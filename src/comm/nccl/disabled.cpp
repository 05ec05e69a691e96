// The twin of the nccl leaf for builds without CUDA.

#include "renai/base/error.hpp"
#include "renai/comm/nccl.hpp"

namespace renai {

std::string nccl_version() { return "none"; }

std::unique_ptr<NcclCommunicator> make_nccl_communicator(ControlGroup&, const NcclOptions&) {
  throw BackendError("starting NCCL", "this build has no CUDA leaf: " RENAI_CUDA_REASON,
                     "use --device cpu, or build again with CUDA");
}

}  // namespace renai
