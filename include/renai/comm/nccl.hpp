#pragma once
// The nccl leaf of `comm`: collectives between GPUs.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "renai/comm/communicator.hpp"
#include "renai/comm/control_group.hpp"

namespace renai {

enum class ReduceMode : std::uint8_t {
  tree,  ///< The fixed balanced tree: the same bits on any number of ranks.
  fast,  ///< The library's all-reduce: repeatable on one topology only.
};

struct NcclOptions {
  ReduceMode reduce = ReduceMode::tree;
  std::chrono::milliseconds watchdog{60'000};  ///< Limit of starting up and of every host wait.
  /// Pieces of a tree reduction that overlap additions and exchanges. 0: one; between two ranks, whose tree is a single
  /// addition, the library's own all-reduce.
  int pieces = 0;
  bool shared_gpu = false;  ///< Ranks may share a GPU: they then speak over the network. Effects: sets NCCL_HOSTID.
};

class NcclCommunicator : public Communicator {
 public:
  /// Looks for a failure that the library found in the background. Any thread. Errors: PeerError, BackendError.
  virtual void poll() = 0;
};

/// A communicator of all ranks of `control` on each rank's current GPU; streams are those of the cuda device leaf.
/// Effects: collective; broadcasts the library's unique id over `control`, which must outlive the communicator; sets
/// NCCL_NVLS_ENABLE=0 in the environment unless it is set. Graphs that hold its collectives must go before it; after a
/// failure it is left to the end of the process. Determinism: tree: the bits of tree_sum, for any number of pieces.
/// Errors: UserError when a tree has no power of two of ranks; BackendError from the library, or when this build has no
/// CUDA leaf; PeerError naming the stage when the other ranks do not come in time.
std::unique_ptr<NcclCommunicator> make_nccl_communicator(ControlGroup& control, const NcclOptions& options = {});
/// "NCCL 2.28.9"; "none" when the leaf is not built.
std::string nccl_version();

}  // namespace renai
