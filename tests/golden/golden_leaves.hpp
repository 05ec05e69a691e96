#pragma once
// Leaves by name, as the golden tests' parameters have them.

#include <chrono>
#include <memory>
#include <string>

#include "renai/backend/backend.hpp"
#include "renai/device/host.hpp"
#include "step_harness.hpp"
#ifdef RENAI_GOLDEN_CUDA
#include "renai/backend/cuda.hpp"
#include "renai/device/cuda.hpp"
#endif

namespace renai::test {

/// Null for a GPU in a program without the CUDA leaves. Errors: BackendError without a GPU.
inline std::unique_ptr<Device> make_device(const std::string& backend) {
#ifdef RENAI_GOLDEN_CUDA
  if (backend == "cuda") return make_cuda_device({});
#endif
  return backend == "cuda" ? nullptr : make_host_device();
}

inline std::unique_ptr<Backend> make_backend(const std::string& name) {
#ifdef RENAI_GOLDEN_CUDA
  if (name == "cuda") return make_cuda_backend({});
#endif
  return name == "cpu" ? make_cpu_backend(1) : make_reference_backend();
}

/// In a program of several ranks, those; each runs one logical shard, with batch norm over all of them.
inline Ranks make_ranks() {
  Ranks ranks;
#ifdef RENAI_GOLDEN_SYNC_BN
  constexpr std::chrono::seconds kDeadline{60};
  ranks.session = start_mpi();
  ranks.control = ranks.session->make_control_group(kDeadline);
  ranks.communicator = ranks.session->make_communicator(kDeadline);
#endif
  return ranks;
}

/// The harness of a case that PyTorch ran with `options`.
inline StepHarness make_harness(StepHarnessOptions options, const std::string& backend) {
  Ranks ranks = make_ranks();
  if (ranks.communicator) {
    options.logical_shards = ranks.communicator->world_size();
    options.sync_bn = true;
  }
  return StepHarness(options, make_backend(backend), make_device(backend), std::move(ranks));
}

}  // namespace renai::test
