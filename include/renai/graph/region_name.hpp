#pragma once
// Names of memory regions that RANGE nodes work on. Resolved to (offset, bytes) by `plan`.
//
// Parameters are grouped in segments: one for each (bucket, group) pair that is not empty, named "<bucket>.<group>"
// (see segments.hpp), where <bucket> is "deep0", "deep1", ... in the order in which backward completes them, then
// "first". `weights`, `grad`, `momentum`, `second_moment` have equal inner layouts: an element has the same offset in
// each.

#include <string>
#include <string_view>

namespace renai::region_name {

inline constexpr std::string_view kWeights = "weights";             // + "." + segment
inline constexpr std::string_view kWeightsHalf = "weights_half";    // weights in half-size elements, same inner layout
inline constexpr std::string_view kGrad = "grad";                   // + "." + bucket, + "." + segment
inline constexpr std::string_view kMomentum = "momentum";           // + "." + segment
inline constexpr std::string_view kSecondMoment = "second_moment";  // + "." + segment; with Adam and AdamW only
inline constexpr std::string_view kMetrics = "metrics";    // step metrics, 16 f32: loss_sum weight_sum top1 top5 0...
inline constexpr std::string_view kBnBatch = "bn_batch";   // per-shard mean and unbiased variance of every batch norm
inline constexpr std::string_view kShardValues = "shard";  // parent of grad, metrics, bn_batch, in this order
inline constexpr std::string_view kCounter = "counter";    // + level; same inner layout as shard
inline constexpr std::string_view kMicro = "micro";        // sums of a shard's micro-batches so far; likewise
inline constexpr std::string_view kBnRunning = "bn_running";
inline constexpr std::string_view kBnFolded = "bn_folded";
// Exponential averages (--ema): of the weights, with their inner layout, and of the running statistics, with theirs.
inline constexpr std::string_view kEma = "ema";
inline constexpr std::string_view kEmaHalf = "ema_half";  // as weights_half
inline constexpr std::string_view kEmaRunning = "ema_running";
inline constexpr std::string_view kEmaFolded = "ema_folded";
inline constexpr std::string_view kScalars = "scalars";            // f32, see kScalar* and adam_scalars
inline constexpr std::string_view kAccumulators = "accumulators";  // f64: train[4], total[4], validation[V][4]
inline constexpr std::string_view kDigests = "digests";
inline constexpr std::string_view kSlotA = "slot_a";
inline constexpr std::string_view kSlotB = "slot_b";
inline constexpr std::string_view kStaged = "staged";  // labels, mix, sample weights, control at a fixed place
inline constexpr std::string_view kCommScratch = "comm_scratch";
inline constexpr std::string_view kTransient = "transient";  // activations, activation gradients, workspaces

/// Indices into `scalars` (f32).
inline constexpr int kScalarGradNorm = 0;
inline constexpr int kScalarSkip = 1;  // 1: this step's update is skipped
inline constexpr int kScalarLossScale = 2;
inline constexpr int kScalarSkippedSteps = 3;
inline constexpr int kScalarBadSteps = 4;        // consecutive
inline constexpr int kScalarGoodSteps = 5;       // since the loss scale last changed
inline constexpr int kScalarUpdates = 6;         // steps that were not skipped; stays at 2^24, where corrections are 1
inline constexpr int kScalarAdamStepSize = 7;    // lr / (1 - beta1^updates), of this step
inline constexpr int kScalarAdamCorrection = 8;  // sqrt(1 - beta2^updates)
inline constexpr int kScalarCount = 16;
/// First of three scalars of Adam for a freeze group: updates, step size, correction. Group 0 has those of the run; the
/// others' stand behind the 16, which alone are read back.
constexpr int adam_scalars(int freeze_group) {
  return freeze_group == 0 ? kScalarUpdates : kScalarCount + 3 * (freeze_group - 1);
}
/// Loss scale at the start of a run that scales its loss.
inline constexpr float kInitialLossScale = 65536.0f;
/// Index into `accumulators` (f64) of the validation sums over all shards, left there by reduce_accumulators.
inline constexpr int kAccumulatorTotal = 4;
inline constexpr int kAccumulatorShards = 8;  // first shard's entry: loss_sum weight_sum top1 top5
inline constexpr int kMetricCount = 16;       // 0 loss_sum, 1 weight_sum, 2 top1 hits, 3 top5 hits

inline std::string child(std::string_view parent, std::string_view name) {
  return std::string(parent) + "." + std::string(name);
}
inline std::string counter(int level) { return std::string(kCounter) + std::to_string(level); }

}  // namespace renai::region_name
