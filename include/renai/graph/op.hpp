#pragma once
// Operators: what a COMPUTE or RANGE node does. Semantics only; kernels are a backend's business.
//
// Tensors of COMPUTE nodes by position ([] = optional). Activations NHWC, conv weights KRSC (C = channels per group),
// linear weights [K, C] where C runs over the input's H, W, C in that order.
//   op                     pass              inputs                                        outputs
//   unpack_slot            forward           slot                 labels mix_labels mix_lambda sample_weights control
//   normalize_input        forward           slot                                          x
//   conv2d, linear         forward           x w [b]                                       y
//                          backward_data     dy w                                          dx
//                          backward_weights  x dy                                          dw [db]
//   batch_norm             forward           x scale bias                   y mean var_unbiased var_biased
//                          inference         x inf_scale inf_bias                  y  (x * inf_scale + inf_bias)
//                          backward          x dy scale mean var_biased                    dx dscale dbias
//   activation             forward           x                                             y
//                          backward          (y or x: see backward_reads_output) dy        dx
//   max_pool               forward           x                                             y
//                          backward          x dy                    dx   (first maximum in row order)
//   avg_pool               forward / backward  x / dy                                      y / dx
//   global_avg_pool        forward / backward  x / dy                                      y [N,1,1,C] / dx
//   adaptive_avg_pool      forward / backward  x / dy                                      y [N,out_h,out_w,C] / dx
//   add                    forward           a b                     y   (backward: dy is both gradients)
//   concat                 forward / backward  x0 x1 ... / dy                     y / dx0 dx1 ...   (along C)
//   flatten                forward / backward  x / dy                                      y / dx   (a view)
//   dropout                forward / backward  x control / dy control                      y / dx
//   softmax_cross_entropy  forward           logits labels mix_labels mix_lambda weights   metrics
//                          backward          logits labels mix_labels mix_lambda weights   dlogits
// A gradient needed only for a tensor without a gradient (the network's input) is absent: backward of the first layer
// has backward_weights only; batch_norm, pools etc. before any parameter get no backward node.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace renai {

enum class OpKind : std::uint8_t {
  unpack_slot,
  normalize_input,
  conv2d,
  linear,
  batch_norm,
  activation,
  max_pool,
  avg_pool,
  global_avg_pool,
  adaptive_avg_pool,
  add,
  concat,
  flatten,
  dropout,
  softmax_cross_entropy
};

enum class Pass : std::uint8_t { forward, inference, backward, backward_data, backward_weights };

enum class Activation : std::uint8_t { relu, leaky_relu, relu6, silu, hard_swish, gelu, sigmoid, tanh };

/// True when the gradient is computed from the activation's output (relu, leaky_relu, relu6, sigmoid, tanh).
bool backward_reads_output(Activation kind);

struct WindowParams {  ///< conv2d and pools.
  std::int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1,
               dilation_w = 1;
  bool operator==(const WindowParams&) const = default;
};
struct Conv2dParams {
  std::int64_t out_channels = 0;
  WindowParams window;
  std::int64_t groups = 1;
  bool bias = false;
};
struct LinearParams {
  std::int64_t out_features = 0;
  bool bias = true;
};
struct BatchNormParams {
  float eps = 1e-5f, momentum = 0.1f;
  int sync_shards = 1;  ///< Shards, each on a rank of its own, over whose rows a training step takes its sums.
};
struct ActivationParams {
  Activation kind = Activation::relu;
  float slope = 0.01f;
};
struct PoolParams {
  WindowParams window;
  bool ceil_mode = false;
  bool count_include_pad = true;
};
/// Output (i, j) is the mean over adaptive_bin(i, H, out_h) x adaptive_bin(j, W, out_w). Source: torchvision's VGG.
struct AdaptivePoolParams {
  std::int64_t out_h = 1, out_w = 1;
};
/// Positions [begin, end) of `from` that position `i` of `to` stands for: no gaps, neighbours may share one. Seen from
/// the other side, adaptive_bin(j, to, from) are the positions of `to` whose bins hold j.
struct AdaptiveBin {
  std::int64_t begin, end;
};
constexpr AdaptiveBin adaptive_bin(std::int64_t i, std::int64_t from, std::int64_t to) {
  return {i * from / to, ((i + 1) * from + to - 1) / to};
}
struct DropoutParams {
  float p = 0.5f;
  std::uint32_t layer = 0;  ///< Key of the mask with (seed, step, shard).
};
/// Loss of a row: lambda * ce(label) + (1 - lambda) * ce(mix_label), each with smoothing. `metrics` are the shard's
/// sums over rows {weight * loss, weight, weight * top1 hit, weight * top5 hit}; dlogits = weight * d loss / N, N the
/// shard's rows, times the loss scale in `scalars` where the graph has a dynamic one.
struct LossParams {
  float label_smoothing = 0.0f;
};
/// x[n,h,w,c] = (pixel - mean[c]) / std[c] of the cropped, resized, flipped image, 0 inside of its erase_box; with a
/// mix_partner, lambda x[n] + (1 - lambda) x[partner], or the partner's x inside of the mix_box. Units: uint8 scale.
struct InputParams {
  std::array<float, 4> mean{0, 0, 0, 0}, std{255, 255, 255, 255};
};
struct NoParams {};

using OpParams = std::variant<NoParams, Conv2dParams, LinearParams, BatchNormParams, ActivationParams, PoolParams,
                              AdaptivePoolParams, DropoutParams, LossParams, InputParams>;

/// Operations on whole regions. Inputs and outputs by position (region names). "values" may be several names: adjacent
/// regions, worked on as one interval. Regions without content (no batch norm: bn_*; no first-layer parameters:
/// grad.first) are left out of the lists. merge_shard: inputs = values, then "counter0".."counter<L-1>" as whole
/// regions, then, where a shard has several micro-batches, "micro" (the values have the same offset in each of them as
/// in "shard"); outputs = values. "scalars" and "staged" (control) may be read by any of them.
enum class RangeOp : std::uint8_t {
  copy_slot,         ///< out: slot. Host-to-device copy of the pinned staging buffer (A or B by GraphId).
  zero,              ///< out: regions to clear, one contiguous parent.
  merge_shard,       ///< in: shard values, counters, micro; out: shard values. Micro-batches are added in order, the
                     ///< last one's sum goes to a binary counter by control.local_shard.
  tree_reduce,       ///< in/out: values. Fixed balanced tree across ranks, sum.
  check_and_scale,   ///< in: grad, metrics; out: grad, scalars. Finite check, scale by 1 / (V * K * loss scale), global
                     ///< norm, clip; the loss scale of the next step; Adam's bias corrections.
  sgd,               ///< in: grad w momentum scalars; out: w momentum. Skipped when scalars.skip.
  adam,              ///< in: grad w momentum second_moment scalars; out: w momentum second_moment. Skipped likewise.
  adam_corrections,  ///< in/out: scalars. Counts a freeze group's update, takes its bias corrections; skipped likewise.
  lars,              ///< in: grad w momentum scalars; out: w momentum. A rate for each tensor; skipped likewise.
  update_statistics,   ///< in: bn_batch, scalars; out: bn_running. Mean over V * K batches, one running update; skipped
                       ///< likewise.
  ema,                 ///< in: values..., scalars; out: averages, one for each of the values. average = decay * average
                       ///< + (1 - decay) * value, the value itself in the first update; skipped likewise.
  cast_weights,        ///< in: weights; out: weights_half. Rounds every element to the kernel book's half type.
  fold_batch_norm,     ///< in: bn_running, weights; out: bn_folded; or the three regions of the averages (ema).
  accumulate,          ///< in: metrics, scalars; out: accumulators. By control.phase (and control.shard in validation).
  clear_accumulators,  ///< out: accumulators.
  reduce_accumulators,  ///< in/out: accumulators. Gathers each shard's validation sums, then adds them in tree order.
  read_back,            ///< in: metrics, scalars. Copies them to the pinned read-back ring at control.step % ring size.
  digest,               ///< in: regions; out: digests, 16 bytes for each tensor of the regions in plan order.
};

enum class OptimizerKind : std::uint8_t { sgd, lars, adam, adamw };
constexpr bool has_second_moments(OptimizerKind kind) {
  return kind == OptimizerKind::adam || kind == OptimizerKind::adamw;
}

/// Adam and AdamW. Doubles, because 1 - beta2 loses five digits in f32.
struct AdamParams {
  double beta1 = 0.9, beta2 = 0.999;
  float eps = 1e-8f;
};
/// Local rate of a tensor: eta |w| / (|g| + weight_decay |w| + eps); 1 where |w| or |g| is zero.
struct LarsParams {
  float eta = 1e-3f, eps = 1e-8f;
};

struct RangeParams {
  OptimizerKind optimizer = OptimizerKind::sgd;  ///< adam, adamw: check_and_scale takes the bias corrections, too.
  AdamParams adam;
  LarsParams lars;
  float momentum = 0.0f;
  bool nesterov = false;
  float weight_decay = 0.0f;
  float clip_norm = 0.0f;  ///< 0: off.
  double ema_decay = 0.0;
  int logical_shards = 1;
  int local_shards = 1;
  int micro_batches = 1;  ///< K: passes whose sums make a shard.
  int freeze_group = 0;   ///< adam, adam_corrections: whose count of updates; 0: that of the run.
  /// check_and_scale: a step that is not finite shrinks the loss scale by `backoff`, down to `floor`; `interval` good
  /// steps in a row let it grow by `growth`, up to `ceiling`.
  bool dynamic_loss_scale = false;
  int loss_scale_interval = 2000;
  float loss_scale_growth = 2.0f, loss_scale_backoff = 0.5f, loss_scale_floor = 1.0f, loss_scale_ceiling = 0x1.0p24f;
};

std::string_view op_kind_name(OpKind kind);
std::string_view pass_name(Pass pass);
std::string_view activation_name(Activation kind);
std::string_view range_op_name(RangeOp op);
std::string_view optimizer_name(OptimizerKind kind);
/// " adam beta1 0.9 beta2 0.999 eps 1e-08": what the optimizer has beyond SGD; empty for SGD.
std::string print(OptimizerKind kind, const AdamParams& adam, const LarsParams& lars);
/// "3x3/2 p1 g1 -> 64": the attributes for prints and fingerprints; every field that changes the result appears.
std::string print(const OpParams& params);
std::string print(const RangeParams& params);

}  // namespace renai
