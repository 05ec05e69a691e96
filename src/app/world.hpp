#pragma once
// World: the leaves that a command runs on, chosen here and nowhere else.

#include <chrono>
#include <memory>
#include <string>

#include "gpus.hpp"
#include "renai/backend/cuda.hpp"
#include "renai/base/host.hpp"
#include "renai/base/log.hpp"
#include "renai/comm/mpi.hpp"
#include "renai/train/engine.hpp"

namespace renai {

/// True when a launcher (mpirun, srun --mpi=pmix) started this process as one of several ranks.
/// Errors: UserError when srun started several tasks without PMIx, which could not find each other.
bool started_by_launcher();
/// Rank as the launcher tells it, before MPI is up; 0 without a launcher. For messages only.
int launcher_rank();

/// Whether RENAI_UNCAPTURED=1 asks for execution without captured graphs.
bool runs_uncaptured();

/// Ranks and, once chosen, the compute leaves.
class World {
 public:
  /// Starts MPI when a launcher started several ranks. `watchdog` limits every wait for another rank,
  /// MPI's start included.
  explicit World(std::chrono::milliseconds watchdog);
  ~World();

  int rank() const { return control_->rank(); }
  int world_size() const { return control_->world_size(); }
  ControlGroup& control() { return *control_; }
  const Log& log() const { return log_; }
  /// Empty before choose().
  const HostTopology& topology() const { return topology_; }

  /// Makes device, backend and communicator, the same kind on all ranks. Errors: BackendError with the reason,
  /// UserError for an unsupported precision, and for two ranks on one GPU.
  Run choose(const Recipe& recipe);
  /// One more communicator of the chosen kind. Effects: collective. `pieces`: see NcclOptions.
  std::unique_ptr<Communicator> make_another_communicator(ReduceMode reduce, int pieces);
  /// The last act after a failure: tells the other ranks, prints once, ends the job. Does not return when MPI is up.
  int fail(const Error& error);

 private:
  bool told_by_lower_rank(const Error& error);
  bool use_gpu(const Recipe& recipe);
  void choose_gpu_leaves(const Recipe& recipe);
  void choose_host_leaves(const Recipe& recipe);
  CudaBackendOptions cuda_options(const Recipe& recipe) const;

  std::chrono::milliseconds watchdog_;
  std::unique_ptr<MpiSession> mpi_;
  std::unique_ptr<ControlGroup> control_, roll_call_;
  Log log_;
  CudaGpus gpus_;
  std::unique_ptr<PeerWatch> watch_;
  HostTopology topology_;
  // In this order: captured graphs are a command's own and go first, then the communicator, streams last.
  std::unique_ptr<Device> device_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Communicator> communicator_;
};

}  // namespace renai
