#include "renai/graph/op.hpp"

#include "naming.hpp"
#include "renai/base/check.hpp"

namespace renai {
namespace {

using graph_detail::double_text;
using graph_detail::float_text;

std::string pair_text(std::int64_t h, std::int64_t w) {
  return h == w ? std::to_string(h) : std::to_string(h) + "x" + std::to_string(w);
}

std::string window_text(const WindowParams& window) {
  return std::to_string(window.kernel_h) + "x" + std::to_string(window.kernel_w) + "/" +
         pair_text(window.stride_h, window.stride_w) + " p" + pair_text(window.pad_h, window.pad_w) + " d" +
         pair_text(window.dilation_h, window.dilation_w);
}

std::string floats_text(const std::array<float, 4>& values) {
  std::string text = "(";
  for (std::size_t i = 0; i < values.size(); ++i) text += (i > 0 ? ", " : "") + float_text(values[i]);
  return text + ")";
}

struct ParamsPrinter {
  std::string operator()(const NoParams&) const { return {}; }
  std::string operator()(const Conv2dParams& p) const {
    return window_text(p.window) + " g" + std::to_string(p.groups) + " -> " + std::to_string(p.out_channels) +
           (p.bias ? " bias" : "");
  }
  std::string operator()(const LinearParams& p) const {
    return "-> " + std::to_string(p.out_features) + (p.bias ? " bias" : "");
  }
  std::string operator()(const BatchNormParams& p) const {
    return "eps " + float_text(p.eps) + " momentum " + float_text(p.momentum) +
           (p.sync_shards > 1 ? " over " + std::to_string(p.sync_shards) + " shards" : "");
  }
  std::string operator()(const ActivationParams& p) const {
    const std::string name(activation_name(p.kind));
    return p.kind == Activation::leaky_relu ? name + " slope " + float_text(p.slope) : name;
  }
  std::string operator()(const PoolParams& p) const {
    return window_text(p.window) + (p.ceil_mode ? " ceil" : "") + (p.count_include_pad ? " count_include_pad" : "");
  }
  std::string operator()(const AdaptivePoolParams& p) const {
    return "to " + std::to_string(p.out_h) + "x" + std::to_string(p.out_w);
  }
  std::string operator()(const DropoutParams& p) const {
    return "p " + float_text(p.p) + " layer " + std::to_string(p.layer);
  }
  std::string operator()(const LossParams& p) const { return "label_smoothing " + float_text(p.label_smoothing); }
  std::string operator()(const InputParams& p) const {
    return "mean " + floats_text(p.mean) + " std " + floats_text(p.std);
  }
};

}  // namespace

bool backward_reads_output(Activation kind) {
  switch (kind) {
    case Activation::relu:
    case Activation::leaky_relu:
    case Activation::relu6:
    case Activation::sigmoid:
    case Activation::tanh: return true;
    case Activation::silu:
    case Activation::hard_swish:
    case Activation::gelu: return false;
  }
  throw InternalError("unknown activation", "value " + std::to_string(static_cast<int>(kind)));
}

std::string_view op_kind_name(OpKind kind) {
  constexpr std::array<std::string_view, 15> kNames{
      "unpack_slot", "normalize_input", "conv2d",   "linear",          "batch_norm",
      "activation",  "max_pool",        "avg_pool", "global_avg_pool", "adaptive_avg_pool",
      "add",         "concat",          "flatten",  "dropout",         "softmax_cross_entropy"};
  static_assert(kNames.size() == static_cast<std::size_t>(OpKind::softmax_cross_entropy) + 1);
  RENAI_CHECK(static_cast<std::size_t>(kind) < kNames.size(), "operator out of range");
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view pass_name(Pass pass) {
  constexpr std::array<std::string_view, 5> kNames{"forward", "inference", "backward", "backward_data",
                                                   "backward_weights"};
  RENAI_CHECK(static_cast<std::size_t>(pass) < kNames.size(), "pass out of range");
  return kNames[static_cast<std::size_t>(pass)];
}

std::string_view activation_name(Activation kind) {
  constexpr std::array<std::string_view, 8> kNames{"relu",       "leaky_relu", "relu6",   "silu",
                                                   "hard_swish", "gelu",       "sigmoid", "tanh"};
  RENAI_CHECK(static_cast<std::size_t>(kind) < kNames.size(), "activation out of range");
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view range_op_name(RangeOp op) {
  constexpr std::array<std::string_view, 18> kNames{"copy_slot",
                                                    "zero",
                                                    "merge_shard",
                                                    "tree_reduce",
                                                    "check_and_scale",
                                                    "sgd",
                                                    "adam",
                                                    "adam_corrections",
                                                    "lars",
                                                    "update_statistics",
                                                    "ema",
                                                    "cast_weights",
                                                    "fold_batch_norm",
                                                    "accumulate",
                                                    "clear_accumulators",
                                                    "reduce_accumulators",
                                                    "read_back",
                                                    "digest"};
  static_assert(kNames.size() == static_cast<std::size_t>(RangeOp::digest) + 1);
  RENAI_CHECK(static_cast<std::size_t>(op) < kNames.size(), "range operation out of range");
  return kNames[static_cast<std::size_t>(op)];
}

std::string print(const OpParams& params) { return std::visit(ParamsPrinter{}, params); }

std::string_view optimizer_name(OptimizerKind kind) {
  constexpr std::array<std::string_view, 4> kNames{"sgd", "lars", "adam", "adamw"};
  static_assert(kNames.size() == static_cast<std::size_t>(OptimizerKind::adamw) + 1);
  RENAI_CHECK(static_cast<std::size_t>(kind) < kNames.size(), "optimizer out of range");
  return kNames[static_cast<std::size_t>(kind)];
}

std::string print(OptimizerKind kind, const AdamParams& adam, const LarsParams& lars) {
  if (kind == OptimizerKind::sgd) return {};
  const std::string name = " " + std::string(optimizer_name(kind));
  if (kind == OptimizerKind::lars) return name + " eta " + float_text(lars.eta) + " eps " + float_text(lars.eps);
  return name + " beta1 " + double_text(adam.beta1) + " beta2 " + double_text(adam.beta2) + " eps " +
         float_text(adam.eps);
}

std::string print(const RangeParams& params) {
  std::string text = "momentum " + float_text(params.momentum) + (params.nesterov ? " nesterov" : "") +
                     " weight_decay " + float_text(params.weight_decay) + " clip_norm " + float_text(params.clip_norm) +
                     " shards " + std::to_string(params.logical_shards) + "/" + std::to_string(params.local_shards);
  if (params.micro_batches > 1) text += " micro_batches " + std::to_string(params.micro_batches);
  if (params.freeze_group > 0) text += " freeze_group " + std::to_string(params.freeze_group);
  if (params.ema_decay != 0.0) text += " ema_decay " + double_text(params.ema_decay);
  text += print(params.optimizer, params.adam, params.lars);
  if (params.dynamic_loss_scale) {
    text += " loss_scale interval " + std::to_string(params.loss_scale_interval) + " growth " +
            float_text(params.loss_scale_growth) + " backoff " + float_text(params.loss_scale_backoff) + " floor " +
            float_text(params.loss_scale_floor) + " ceiling " + float_text(params.loss_scale_ceiling);
  }
  return text;
}

}  // namespace renai
