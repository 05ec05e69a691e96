#pragma once
// What forward and backward of batch norm share: the workspace, the affine map.

#include "norm.hpp"
#include "row_tiles.cuh"

namespace renai::cuda {

/// Per-channel floats that a finalizing kernel leaves in the workspace for the pass that writes.
inline constexpr int kNormFactors = 5;

/// The workspace: kNormFactors arrays [c], then partial sums [row_blocks][2][c].
constexpr std::int64_t norm_partials_offset(std::int64_t c) {
  return ceil_div<std::int64_t>(kNormFactors * c, 64) * 64;
}

inline float* norm_partials(std::byte* workspace, std::int64_t c) {
  return reinterpret_cast<float*>(workspace) + norm_partials_offset(c);
}

/// bn(x) = x * a + b. Forward and backward get it from the same five f32 numbers, so that backward finds the same
/// signs.
struct NormAffine {
  float a, b;
};

__device__ inline float norm_inverse(float var_biased, float eps) {
  return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(var_biased, eps)));
}

__device__ inline NormAffine norm_affine(float scale, float bias, float mean, float inverse) {
  const float a = __fmul_rn(scale, inverse);
  return {a, __fmaf_rn(-mean, a, bias)};
}

__device__ inline float norm_apply(float x, float a, float b) { return __fmaf_rn(x, a, b); }

}  // namespace renai::cuda
