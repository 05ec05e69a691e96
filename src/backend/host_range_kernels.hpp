#pragma once
// Loops of the RANGE operations on host memory. Plain functions of pointers and counts, so that tests call them alone.

#include <cstdint>
#include <span>

#include "renai/graph/op.hpp"

namespace renai::host_range {

/// Elements of one block of a norm: a constant, so the sum does not depend on ranks, threads or buckets.
inline constexpr std::int64_t kNormBlockElems = 4096;

/// Binary counter by `local_shard`: carry = values; level = 0; while bit `level` of `local_shard` is 1: carry =
/// counters[level] + carry, ++level. The result goes to counters[level], or back to `values` where no such level
/// exists. Shapes: values and every counter [elems].
void merge_shard(float* values, std::span<float* const> counters, std::int64_t elems, std::int32_t local_shard);

/// Adds up a shard's micro-batches, micro = micro + values, the first one a copy. The last one's sum goes to `values`
/// instead. Shapes: both [elems].
void add_micro_batch(float* values, float* micro, std::int64_t elems, int micro_batch, int micro_batches);

/// Sum of squares in fp64: blocks of kNormBlockElems elements with eight partial sums each, blocks added in rising
/// order.
double sum_of_squares(const float* values, std::int64_t elems);

bool all_finite(const float* values, std::int64_t elems);

void scale(float* values, std::int64_t elems, float factor);

/// The loss scale and its history, as they stand in `scalars`.
struct LossScale {
  float scale = 1, good_steps = 0;
};
/// What a step makes of it: see RangeParams.
LossScale next_loss_scale(LossScale now, bool finite, const RangeParams& params);

/// Rounds to nearest even; overflow gives infinity, what is not a number stays so.
std::uint16_t to_bf16(float value);
std::uint16_t to_f16(float value);

struct SgdStep {
  float lr = 0, momentum = 0, weight_decay = 0;
  bool nesterov = false;
};
/// g += weight_decay * w; buf = momentum * buf + g; w -= lr * (nesterov ? g + momentum * buf : buf).
/// Source: the update rule of PyTorch's SGD (dampening 0), whose first step is the case buf = 0.
void sgd(const float* grad, float* weights, float* momentum, std::int64_t elems, const SgdStep& step);

/// running = (1 - momentum) * running + momentum * batch_sum / shards, rounded once.
void update_running(float* running, const float* batch_sum, std::int64_t elems, float momentum, int shards);

/// average = decay * average + (1 - decay) * values, both factors and every product rounded to f32.
/// Source: PyTorch's AveragedModel with the averaging function of an exponential moving average.
void average(const float* values, float* averages, std::int64_t elems, double decay);

/// y = x * folded_scale + folded_bias is the batch norm of running statistics. Shapes: all [channels].
struct FoldedNorm {
  const float *mean, *var, *scale, *bias;
  float *folded_scale, *folded_bias;
  std::int64_t channels;
  float eps;
};
void fold_batch_norm(const FoldedNorm& norm);

/// total[j] = sum over i of entries[i][j] for `count` (a power of two) entries of four, added as one balanced binary
/// tree.
void tree_sum_entries(const double* entries, int count, double* total);

}  // namespace renai::host_range
