#pragma once
// Leaves by name, as the golden tests' parameters have them.

#include <memory>
#include <string>

#include "renai/backend/backend.hpp"
#include "renai/device/host.hpp"
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

}  // namespace renai::test
