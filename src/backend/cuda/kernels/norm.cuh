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

/// What runs of a batch norm: all of it within one shard, or what goes before the exchange of shards' blocks, or what
/// follows it.
enum class NormHalf : std::uint8_t { whole, own, shared };

inline constexpr int kShardThreads = 256;
inline unsigned shard_blocks(std::int64_t c) { return static_cast<unsigned>(ceil_div<std::int64_t>(c, kShardThreads)); }

/// Two values of one channel of a shard.
struct NormPair {
  double first, second;
};

__device__ inline void store_pair(const NormShards& s, std::int64_t c, std::int64_t channel, NormPair pair) {
  double* const own = s.blocks + 2 * c * s.own;
  own[channel] = pair.first;
  own[c + channel] = pair.second;
}

/// add(a, b, count of shards in each) over all blocks of a channel, level by level of the tree. Overwrites them.
template <typename Add>
__device__ inline NormPair add_shards(const NormShards& s, std::int64_t c, std::int64_t channel, const Add& add) {
  double* const blocks = s.blocks + channel;
  for (int half = 1; half < s.shards; half *= 2) {
    for (int shard = 0; shard + half < s.shards; shard += 2 * half) {
      double *const a = blocks + 2 * c * shard, *const b = blocks + 2 * c * (shard + half);
      const NormPair sum = add(NormPair{a[0], a[c]}, NormPair{b[0], b[c]}, half);
      a[0] = sum.first;
      a[c] = sum.second;
    }
  }
  return {blocks[0], blocks[c]};
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
