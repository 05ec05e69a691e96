#pragma once
// Which GPU each rank takes, and the host around it.

#include <chrono>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include "renai/base/log.hpp"
#include "renai/comm/control_group.hpp"
#include "renai/comm/nccl.hpp"
#include "renai/device/cuda.hpp"

namespace renai {

/// Empty when every rank of the group has a GPU; else why not, naming the first rank that has none.
/// Effects: one all_gather.
std::string no_gpu_reason(ControlGroup& control, const CudaGpus& own);

/// The GPU of a rank: its place on the host, modulo the GPUs it sees, so that both one list for all ranks and one GPU
/// shown to each work.
const CudaGpu& choose_gpu(const CudaGpus& gpus, int local_rank);

/// Errors: UserError when two ranks have the same GPU, on all ranks alike.
void refuse_shared_gpus(const HostTopology& topology);

/// Binds the calling thread, and the threads it makes from now on, to the cores of `numa_node` that it may use, where
/// they are at least `threads`; else leaves it and says why in the log.
void bind_near(int numa_node, int threads, const Log& log);

/// "0-3,8" as core numbers.
std::vector<int> parse_core_list(const std::string& text);

/// The folder of kernel plans for --plan-cache; empty: none.
std::string plan_cache_folder(const std::string& option);

/// Looks, while a thread waits for the GPU, whether the other ranks are alive.
class PeerWatch {
 public:
  /// `roll_call` is a group of its own with a short deadline, used when `watchdog` is over.
  PeerWatch(ControlGroup& control, ControlGroup& roll_call, std::chrono::milliseconds watchdog)
      : control_(&control), roll_call_(&roll_call), watchdog_(watchdog) {}
  void watch(NcclCommunicator* communicator) { communicator_ = communicator; }
  /// Any thread. Errors: PeerError: a reported failure, the library's own, or who is silent.
  void look(std::chrono::milliseconds waited);

 private:
  ControlGroup* control_;
  ControlGroup* roll_call_;
  std::chrono::milliseconds watchdog_;
  NcclCommunicator* communicator_ = nullptr;
  void call_roll(std::chrono::milliseconds waited);

  std::mutex mutex_;            ///< One thread of a rank calls the roll,
  std::exception_ptr failure_;  ///< once: what came of it ends the waits of all others.
};

}  // namespace renai
