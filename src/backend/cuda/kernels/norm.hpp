#pragma once
// Batch norm on NHWC tensors, seen as [rows, c] with rows = N*H*W, with the relu and the sum around it in the same
// passes. Determinism: partial sums over row blocks that depend on the shape alone, combined in a fixed tree.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "renai/tensor/dtype.hpp"

namespace renai::cuda {

/// What follows the affine map of batch norm in the same pass: y = bn(x), relu(bn(x)), relu(bn(x) + other),
/// relu(bn(x)) + other.
enum class NormTail : std::uint8_t { none, relu, add_relu, relu_add };

/// Bytes of partial sums and per-channel factors for either direction.
std::int64_t norm_workspace_bytes(std::int64_t rows, std::int64_t c);
/// Bytes of the sign mask that an add_relu keeps for its gradient: one bit an element, rows of 32-bit words.
std::int64_t norm_mask_bytes(std::int64_t rows, std::int64_t c);

/// Blocks of the shards of all ranks, each with two f64 values of every channel, [shards][2][c]: what is known of the
/// rows of one shard, added over the shards as one balanced tree (src/backend/sync_norm.hpp).
struct NormShards {
  double* blocks = nullptr;
  int shards = 1, own = 0;
};

/// Statistics of the batch, then the affine map. x, other, y: `dtype` [rows, c]; the rest f32 [c].
struct NormForward {
  const void* x = nullptr;
  const float *scale = nullptr, *bias = nullptr;
  const void* other = nullptr;
  void* y = nullptr;
  float *mean = nullptr, *var_unbiased = nullptr, *var_biased = nullptr;
  std::uint32_t* mask = nullptr;  ///< add_relu: set bits where y > 0; null: not wanted.
  std::byte* workspace = nullptr;
  std::int64_t rows = 0, c = 0;
  float eps = 1e-5f;
  NormTail tail = NormTail::none;
  DType dtype = DType::f32;
  NormShards shards = {};
};
void launch(const NormForward& norm, cudaStream_t stream);
/// With several shards, in its place: leaves this shard's mean and sum of squared deviations in its block; when the
/// others' blocks are there, adds them up and goes on.
void launch_own_sums(const NormForward& norm, cudaStream_t stream);
void launch_shared(const NormForward& norm, cudaStream_t stream);

/// g = dy (+ dy2), zero where the relu was off (relu: from x's sign again; add_relu: from the mask); then dx, dscale,
/// dbias. `dz`, when not null, receives g: the gradient of the sum's other side. dz may be dy or dy2, dx may be x or
/// dy.
struct NormBackward {
  const void *x = nullptr, *dy = nullptr, *dy2 = nullptr;
  const float *scale = nullptr, *bias = nullptr, *mean = nullptr, *var_biased = nullptr;
  const std::uint32_t* mask = nullptr;
  void *dx = nullptr, *dz = nullptr;
  float *dscale = nullptr, *dbias = nullptr;
  std::byte* workspace = nullptr;
  std::int64_t rows = 0, c = 0;
  float eps = 1e-5f;
  NormTail tail = NormTail::none;  ///< none, relu or add_relu
  DType dtype = DType::f32;
  NormShards shards = {};
};
void launch(const NormBackward& norm, cudaStream_t stream);
/// As for NormForward: sums of g and g * (x - mean), dscale and dbias of this shard; then dx.
void launch_own_sums(const NormBackward& norm, cudaStream_t stream);
void launch_shared(const NormBackward& norm, cudaStream_t stream);

/// y = tail(x * scale + bias): inference with folded factors.
struct NormFolded {
  const void* x = nullptr;
  const float *scale = nullptr, *bias = nullptr;
  const void* other = nullptr;
  void* y = nullptr;
  std::int64_t rows = 0, c = 0;
  NormTail tail = NormTail::none;
  DType dtype = DType::f32;
};
void launch(const NormFolded& norm, cudaStream_t stream);

}  // namespace renai::cuda
