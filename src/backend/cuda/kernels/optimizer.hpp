#pragma once
// Adam and LARS as RANGE operations. Semantics: RangeOp in renai/graph/op.hpp; the formulas stand in
// src/backend/host_optimizer_kernels.hpp. Step-dependent values are read from device memory, as in range.hpp.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "renai/graph/op.hpp"
#include "renai/tensor/slot_layout.hpp"

namespace renai::cuda {

/// Element-wise, each product and sum rounded on its own: the host's bits. Step size and correction come from
/// `scalars`, those of the range's freeze group.
struct Adam {
  const float* grad = nullptr;
  float *weights = nullptr, *momentum = nullptr, *second_moment = nullptr;
  std::int64_t elems = 0;
  RangeParams range;
  const ControlBlock* control = nullptr;
  const float* scalars = nullptr;
};
void launch(const Adam& adam, cudaStream_t stream);

/// One tensor of LARS; begins at 16-byte addresses.
struct LarsTensor {
  const float* grad = nullptr;
  float *weights = nullptr, *momentum = nullptr;
  std::int64_t elems = 0;
};

/// Norms of all tensors, then their rates, then the update. Determinism: fp64 sums over blocks of constant size within
/// each tensor, in order.
struct Lars {
  std::span<const LarsTensor> tensors;
  RangeParams range;
  const ControlBlock* control = nullptr;
  const float* scalars = nullptr;
  std::byte* workspace = nullptr;
};
/// Depends on the tensors' sizes only.
std::int64_t lars_workspace_bytes(std::span<const LarsTensor> tensors);
void launch(const Lars& lars, cudaStream_t stream);

}  // namespace renai::cuda
