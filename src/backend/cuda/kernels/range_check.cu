#include <algorithm>

#include "range.hpp"
#include "renai/graph/region_name.hpp"
#include "values.cuh"

// check_and_scale in three launches: scale the gradient and add its squares by tiles, decide on one block, clip.

namespace renai::cuda {
namespace {

namespace names = region_name;

constexpr int kThreads = 256;
constexpr std::int64_t kTileElems = 4096;   ///< A block's share of one parameter.
constexpr std::int64_t kHeaderBytes = 256;  ///< The clip factor, before the tiles' sums.
constexpr int kWordsOfThread = static_cast<int>(kTileElems / 4 / kThreads);

struct ParamTable {
  static constexpr int kMost = 224;
  struct Entry {
    float* data;
    std::uint32_t elems, first_tile;
  };
  Entry entries[kMost];
  int count;
  int shards;
  const float* scalars;  ///< Null: the loss is not scaled.
  double* sums;          ///< By tile of this table.
};
static_assert(sizeof(ParamTable) <= 4096);

__device__ double square(float value) { return static_cast<double>(value) * static_cast<double>(value); }

__device__ float4 scaled(float4 values, float factor) {
  return make_float4(values.x * factor, values.y * factor, values.z * factor, values.w * factor);
}

/// Squares of f32 values and their sums stay finite in fp64 unless a value is not: the sums are the finite check, too.
__global__ void __launch_bounds__(kThreads) scale_tiles(ParamTable table) {
  __shared__ double shared[kWarp];
  const ParamTable::Entry& entry = table.entries[last_at_or_before(table.entries, table.count, blockIdx.x)];
  const float loss_scale = table.scalars != nullptr ? table.scalars[names::kScalarLossScale] : 1.0f;
  const float factor = 1.0f / (static_cast<float>(table.shards) * loss_scale);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x - entry.first_tile) * kTileElems;
  const std::int64_t elems = min(kTileElems, entry.elems - first);
  float* const values = entry.data + first;
  auto* const words = reinterpret_cast<float4*>(values);
  double sum = 0;
#pragma unroll
  for (int k = 0; k < kWordsOfThread; ++k) {
    const int word = k * kThreads + static_cast<int>(threadIdx.x);
    if (4 * word + 4 > elems) continue;
    const float4 value = scaled(words[word], factor);
    if (factor != 1.0f) words[word] = value;
    sum += (square(value.x) + square(value.y)) + (square(value.z) + square(value.w));
  }
  const std::int64_t tail = elems / 4 * 4 + threadIdx.x;
  if (tail < elems) {
    const float value = values[tail] * factor;
    if (factor != 1.0f) values[tail] = value;
    sum += square(value);
  }
  sum = combine_block<kThreads>(sum, Sum{}, shared);
  if (threadIdx.x == 0) table.sums[blockIdx.x] = sum;
}

constexpr int kDecideThreads = 1024;

struct Decision {
  const double* sums;
  std::int64_t tiles;
  const float* metrics;
  std::int64_t metric_count;
  float* scalars;
  float* clip_factor;
  RangeParams range;
  const ControlBlock* control;  ///< Null: no corrections of Adam.
};

__device__ double power(double base, std::uint32_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1u) != 0) result = __dmul_rn(result, base);
    base = __dmul_rn(base, base);
  }
  return result;
}

/// `own`: updates, which counts this one, then step size and correction. Rounded as host_range::adam_corrections.
__device__ void correct_adam(float* own, const AdamParams& adam, float lr) {
  const auto updates = static_cast<std::uint32_t>(own[0]);
  const double rest1 = __dsub_rn(1.0, power(adam.beta1, updates));
  const double rest2 = __dsub_rn(1.0, power(adam.beta2, updates));
  own[1] = static_cast<float>(__ddiv_rn(static_cast<double>(lr), rest1));
  own[2] = static_cast<float>(__dsqrt_rn(rest2));
}

__global__ void count_update(AdamParams adam, const ControlBlock* control, const float* scalars, float* own) {
  if (scalars[names::kScalarSkip] != 0.0f) return;
  own[0] += 1.0f;
  correct_adam(own, adam, control->lr);
}

/// A step that is not finite is skipped and shrinks a dynamic loss scale; enough good ones in a row let it grow.
__device__ void decide_scalars(const Decision& decision, double norm, bool finite) {
  float* const scalars = decision.scalars;
  const RangeParams& range = decision.range;
  scalars[names::kScalarGradNorm] = static_cast<float>(norm);
  scalars[names::kScalarSkip] = finite ? 0.0f : 1.0f;
  scalars[names::kScalarSkippedSteps] += finite ? 0.0f : 1.0f;
  scalars[names::kScalarBadSteps] = finite ? 0.0f : scalars[names::kScalarBadSteps] + 1.0f;
  if (finite) {
    scalars[names::kScalarUpdates] += 1.0f;
    if (decision.control != nullptr) {
      correct_adam(scalars + names::kScalarUpdates, range.adam, decision.control->lr);
    }
  }
  if (!range.dynamic_loss_scale) return;
  const float scale = scalars[names::kScalarLossScale];
  const float good = finite ? scalars[names::kScalarGoodSteps] + 1.0f : 0.0f;
  const bool grows = good >= static_cast<float>(range.loss_scale_interval);
  scalars[names::kScalarGoodSteps] = grows ? 0.0f : good;
  if (!finite) {
    scalars[names::kScalarLossScale] = fmaxf(range.loss_scale_floor, scale * range.loss_scale_backoff);
  } else if (grows) {
    scalars[names::kScalarLossScale] = fminf(range.loss_scale_ceiling, scale * range.loss_scale_growth);
  }
}

/// One block: the tiles' sums, each thread every kDecideThreads-th in rising order, then one tree.
__global__ void __launch_bounds__(kDecideThreads) decide(Decision decision) {
  __shared__ double shared[kWarp];
  __shared__ int bad[kWarp];
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < decision.tiles; i += kDecideThreads) sum += decision.sums[i];
  int bad_metrics = 0;
  for (std::int64_t i = threadIdx.x; i < decision.metric_count; i += kDecideThreads) {
    bad_metrics += isfinite(decision.metrics[i]) ? 0 : 1;
  }
  sum = combine_block<kDecideThreads>(sum, Sum{}, shared);
  bad_metrics = combine_block<kDecideThreads>(bad_metrics, Sum{}, bad);
  if (threadIdx.x != 0) return;
  const bool finite = isfinite(sum) && bad_metrics == 0;
  const double norm = sqrt(sum);
  decide_scalars(decision, norm, finite);
  // The small term keeps a zero gradient out of the division, as in PyTorch's clip_grad_norm_.
  const auto factor = static_cast<float>(static_cast<double>(decision.range.clip_norm) / (norm + 1e-6));
  *decision.clip_factor = finite && decision.range.clip_norm > 0.0f && factor < 1.0f ? factor : 1.0f;
}

__global__ void __launch_bounds__(kThreads) clip(float* values, std::int64_t elems, const float* clip_factor) {
  const float factor = *clip_factor;
  if (factor == 1.0f) return;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < elems / 4) {
    auto* const word = reinterpret_cast<float4*>(values) + i;
    *word = scaled(*word, factor);
  } else if (i == elems / 4) {
    for (std::int64_t k = elems / 4 * 4; k < elems; ++k) values[k] *= factor;
  }
}

std::int64_t tiles_of(std::int64_t elems) { return (elems + kTileElems - 1) / kTileElems; }

std::int64_t tiles_of(std::span<const FloatSpan> params) {
  std::int64_t tiles = 0;
  for (const FloatSpan& param : params) tiles += tiles_of(param.elems);
  return tiles;
}

void launch_tiles(const CheckAndScale& check, double* sums, cudaStream_t stream) {
  for (std::size_t first = 0; first < check.params.size(); first += ParamTable::kMost) {
    const auto chunk =
        check.params.subspan(first, std::min<std::size_t>(ParamTable::kMost, check.params.size() - first));
    ParamTable table{};
    table.shards = check.range.logical_shards * check.range.micro_batches;
    table.scalars = check.range.dynamic_loss_scale ? check.scalars : nullptr;
    table.sums = sums;
    std::int64_t tiles = 0;
    for (const FloatSpan& param : chunk) {
      if (param.elems == 0) continue;
      RENAI_CHECK(param.elems < (std::int64_t{1} << 32), "a parameter has less than 2^32 elements");
      require_aligned(param.data, "a gradient");
      table.entries[table.count++] = {param.data, static_cast<std::uint32_t>(param.elems),
                                      static_cast<std::uint32_t>(tiles)};
      tiles += tiles_of(param.elems);
    }
    if (table.count == 0) continue;
    scale_tiles<<<block_count(tiles, 1), kThreads, 0, stream>>>(table);
    check_launch("check_and_scale");
    sums += tiles;
  }
}

}  // namespace

std::int64_t check_and_scale_workspace_bytes(const CheckAndScale& check) {
  return kHeaderBytes + tiles_of(check.params) * std::int64_t{sizeof(double)};
}

void launch(const AdamCount& count, cudaStream_t stream) {
  RENAI_CHECK(count.control != nullptr, "adam_corrections knows the learning rate");
  count_update<<<1, 1, 0, stream>>>(count.range.adam, count.control, count.scalars,
                                    count.scalars + names::adam_scalars(count.range.freeze_group));
  check_launch("adam_corrections");
}

void launch(const CheckAndScale& check, cudaStream_t stream) {
  RENAI_CHECK(check.workspace != nullptr, "check_and_scale has a workspace");
  require_aligned(check.workspace, "the workspace of check_and_scale");
  require_aligned(check.grad.data, "the gradient");
  auto* const clip_factor = reinterpret_cast<float*>(check.workspace);
  auto* const sums = reinterpret_cast<double*>(check.workspace + kHeaderBytes);
  launch_tiles(check, sums, stream);
  const bool adam = has_second_moments(check.range.optimizer);
  RENAI_CHECK(!adam || check.control != nullptr, "check_and_scale knows the learning rate");
  const Decision decision{
      sums,        tiles_of(check.params),        check.metrics.data, check.metrics.elems, check.scalars, clip_factor,
      check.range, adam ? check.control : nullptr};
  decide<<<1, kDecideThreads, 0, stream>>>(decision);
  check_launch("check_and_scale decision");
  if (check.range.clip_norm <= 0.0f || check.grad.elems == 0) return;
  clip<<<block_count(check.grad.elems / 4 + 1, kThreads), kThreads, 0, stream>>>(check.grad.data, check.grad.elems,
                                                                                 clip_factor);
  check_launch("check_and_scale clip");
}

}  // namespace renai::cuda
