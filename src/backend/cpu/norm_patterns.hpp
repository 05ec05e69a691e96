#pragma once
// Batch norms, relus and pools in a row: what fused kernels look for.

#include <cstddef>
#include <optional>

#include "implementation.hpp"
#include "loops/loops.hpp"

namespace renai::cpu {

/// A pool whose windows tile the image: whole, not padded, not overlapping.
bool is_tiling(const ComputeNode* node, Pass pass);

/// relu gradient and batch norm gradient in a row, at `first`, of a relu that reads that batch norm's output.
bool is_relu_norm_grad(const Scope& scope, std::size_t first);
/// Gradients of max pool, relu and batch norm in a row, at `first`.
bool is_pool_relu_norm_grad(const Scope& scope, std::size_t first);
/// True when every reader of the relu's output `y` other than the node at `next` is a backward node that a fused kernel
/// takes without reading y: the relu's own gradient and, if `pooled`, the pool's.
bool fused_backward_only(const Scope& scope, TensorId y, std::size_t next, bool pooled);
/// Forward batch norm and relu at `first`; null relu when they cannot be fused.
const ComputeNode* relu_behind_norm(const Scope& scope, std::size_t first);

/// y = relu(batch norm(x)), and pooled by tiling windows if `pool` is set.
struct NormRelu {
  TensorId x = kNoTensor, scale = kNoTensor, bias = kNoTensor, mean = kNoTensor, var_biased = kNoTensor;
  float eps = 0;
  std::optional<PoolParams> pool;
};

/// How the first input of the backward node at `index` can be made again from x, when keeping it from forward to
/// backward would serve this node alone: the batch norm's gradient reads x later, and nobody else reads y in backward.
std::optional<NormRelu> repeatable_input(const Scope& scope, std::size_t index);

/// The factor of x that forward and backward kernels have in common, bit for bit.
float norm_gain(float scale, float var_biased, float eps);
/// A tiling pool of x.
Tiles tiles_of(const Shape& x, const PoolParams& params);

}  // namespace renai::cpu
