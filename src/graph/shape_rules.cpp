// Shape rules of single operators.

#include <algorithm>

#include "naming.hpp"
#include "renai/base/check.hpp"
#include "renai/graph/region_name.hpp"
#include "renai/graph/shape_inference.hpp"
#include "renai/tensor/slot_layout.hpp"

namespace renai {
namespace {

using graph_detail::layer_label;

std::string extent_text(std::int64_t h, std::int64_t w) { return std::to_string(h) + "x" + std::to_string(w); }

[[noreturn]] void refuse(const ComputeNode& node, const Shape& input, const std::string& what,
                         const std::string& remedy) {
  throw UserError(layer_label(node) + ": " + what, "its input is " + input.str(), remedy);
}

/// For an attribute below the least that it may be.
[[noreturn]] void refuse_low(const ComputeNode& node, const Shape& input, const std::string& attribute,
                             const std::string& value, int least) {
  refuse(node, input, attribute + " " + value + " is below " + std::to_string(least),
         "use " + attribute + " " + std::to_string(least) + " or more");
}

/// Errors: UserError unless `x` is a feature map [N, H, W, C].
void require_feature_map(const ComputeNode& node, const Shape& x) {
  if (x.rank() == 4) return;
  refuse(node, x, std::string(op_kind_name(node.op)) + " needs a feature map N x H x W x C",
         "put it before the layer that flattens");
}

void require_batch(const ComputeNode& node, const Shape& x) {
  if (x.rank() == 2 || x.rank() == 4) return;
  refuse(node, x, std::string(op_kind_name(node.op)) + " needs an input N x C or N x H x W x C",
         "put it behind a layer with such an output");
}

/// One axis of a window: what conv2d and the pools have in common.
struct WindowAxis {
  std::int64_t extent, kernel, stride, pad, dilation;
  std::int64_t reach() const { return (kernel - 1) * dilation + 1; }
  std::int64_t padded() const { return extent + 2 * pad; }
  std::int64_t count(bool ceil_mode) const {
    const std::int64_t slack = padded() - reach();
    std::int64_t out = (ceil_mode ? (slack + stride - 1) / stride : slack / stride) + 1;
    // The last window must start inside the input or its left padding, else it would see right padding only.
    if (ceil_mode && (out - 1) * stride >= extent + pad) --out;
    return out;
  }
  /// True when some window has no tap inside the input.
  bool has_empty_window(std::int64_t outputs) const {
    for (std::int64_t o = 0; o < outputs; ++o) {
      bool inside = false;
      for (std::int64_t k = 0; k < kernel && !inside; ++k) {
        const std::int64_t position = o * stride - pad + k * dilation;
        inside = position >= 0 && position < extent;
      }
      if (!inside) return true;
    }
    return false;
  }
};

std::array<WindowAxis, 2> window_axes(const WindowParams& window, const Shape& x) {
  return {WindowAxis{x.h(), window.kernel_h, window.stride_h, window.pad_h, window.dilation_h},
          WindowAxis{x.w(), window.kernel_w, window.stride_w, window.pad_w, window.dilation_w}};
}

/// Errors: UserError for attributes out of range or a kernel larger than the padded input.
void check_window(const ComputeNode& node, const WindowParams& window, const Shape& x) {
  const auto axes = window_axes(window, x);
  for (const WindowAxis& axis : axes) {
    if (axis.kernel < 1) refuse_low(node, x, "kernel", extent_text(window.kernel_h, window.kernel_w), 1);
    if (axis.stride < 1) refuse_low(node, x, "stride", extent_text(window.stride_h, window.stride_w), 1);
    if (axis.pad < 0) refuse_low(node, x, "padding", extent_text(window.pad_h, window.pad_w), 0);
    if (axis.dilation < 1) refuse_low(node, x, "dilation", extent_text(window.dilation_h, window.dilation_w), 1);
  }
  if (axes[0].reach() <= axes[0].padded() && axes[1].reach() <= axes[1].padded()) return;
  const bool dilated = window.dilation_h > 1 || window.dilation_w > 1;
  const std::string reach =
      dilated ? " (" + extent_text(axes[0].reach(), axes[1].reach()) + " with its dilation)" : std::string();
  refuse(node, x,
         "kernel " + extent_text(window.kernel_h, window.kernel_w) + reach + " is larger than its padded input " +
             extent_text(axes[0].padded(), axes[1].padded()),
         "use a smaller kernel, more padding or a larger input");
}

Shape conv2d_shape(const ComputeNode& node, const Shape& x) {
  const auto& params = std::get<Conv2dParams>(node.params);
  require_feature_map(node, x);
  check_window(node, params.window, x);
  if (params.out_channels < 1) refuse_low(node, x, "out", std::to_string(params.out_channels), 1);
  if (params.groups < 1) refuse_low(node, x, "groups", std::to_string(params.groups), 1);
  const std::string groups = std::to_string(params.groups) + " groups";
  if (x.c() % params.groups != 0) {
    refuse(node, x, std::to_string(x.c()) + " input channels are not divisible by " + groups, "change groups");
  }
  if (params.out_channels % params.groups != 0) {
    refuse(node, x, std::to_string(params.out_channels) + " output channels are not divisible by " + groups,
           "change out or groups");
  }
  const auto axes = window_axes(params.window, x);
  return {x.n(), axes[0].count(false), axes[1].count(false), params.out_channels};
}

Shape pool_shape(const ComputeNode& node, const Shape& x) {
  const auto& params = std::get<PoolParams>(node.params);
  require_feature_map(node, x);
  const WindowParams& window = params.window;
  if (node.op == OpKind::avg_pool && (window.dilation_h != 1 || window.dilation_w != 1)) {
    refuse(node, x, "avg_pool takes no dilation", "remove the dilation");
  }
  check_window(node, window, x);
  const auto axes = window_axes(window, x);
  const std::int64_t out_h = axes[0].count(params.ceil_mode), out_w = axes[1].count(params.ceil_mode);
  if (axes[0].has_empty_window(out_h) || axes[1].has_empty_window(out_w)) {
    refuse(node, x,
           "padding " + extent_text(window.pad_h, window.pad_w) + " leaves windows of kernel " +
               extent_text(window.kernel_h, window.kernel_w) + " without any input",
           "use less padding (at most half the kernel)");
  }
  return {x.n(), out_h, out_w, x.c()};
}

std::int64_t row_elems(const Shape& x) { return x.h() * x.w() * x.c(); }

std::vector<Shape> batch_norm_shapes(const ComputeNode& node, const Shape& x) {
  require_batch(node, x);
  if (node.pass == Pass::inference) return {x};
  if (x.n() * x.h() * x.w() * std::get<BatchNormParams>(node.params).sync_shards == 1) {
    refuse(node, x, "training batch norm has one value per channel, which has no variance",
           "use a larger batch, fewer logical shards or a larger input");
  }
  const Shape channels{x.c()};
  return {x, channels, channels, channels};
}

Shape add_shape(const ComputeNode& node, std::span<const Shape> inputs) {
  RENAI_CHECK(inputs.size() == 2, "add has two inputs");
  require_batch(node, inputs[0]);
  if (inputs[0] == inputs[1]) return inputs[0];
  throw UserError(layer_label(node) + ": add needs equal shapes",
                  "its inputs are " + inputs[0].str() + " and " + inputs[1].str(),
                  "give the smaller one a projection (1x1 convolution with stride)");
}

Shape concat_shape(const ComputeNode& node, std::span<const Shape> inputs) {
  RENAI_CHECK(!inputs.empty(), "concat has inputs");
  const Shape& first = inputs[0];
  require_batch(node, first);
  std::int64_t channels = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Shape& x = inputs[i];
    if (x.rank() != first.rank() || x.n() != first.n() || x.h() != first.h() || x.w() != first.w()) {
      throw UserError(layer_label(node) + ": concat needs inputs that differ in channels only",
                      "input 0 is " + first.str() + ", input " + std::to_string(i) + " is " + x.str(),
                      "bring them to one height and width first");
    }
    channels += x.c();
  }
  return first.rank() == 2 ? Shape{first.n(), channels} : Shape{first.n(), first.h(), first.w(), channels};
}

std::vector<Shape> loss_shapes(const ComputeNode& node, std::span<const Shape> inputs) {
  const Shape& logits = inputs[0];
  if (logits.rank() != 2)
    refuse(node, logits, "the loss needs logits N x classes", "end the model with a linear layer");
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    RENAI_CHECK(inputs[i] == Shape{logits.n()}, "labels and weights have one entry for each row of the logits");
  }
  return {Shape{region_name::kMetricCount}};
}

/// Errors: UserError when shapes are given for the parameters and are not the ones the operator needs.
void check_given_params(const ComputeNode& node, std::span<const Shape> inputs) {
  if (inputs.size() < 2) return;
  if (node.op != OpKind::conv2d && node.op != OpKind::linear && node.op != OpKind::batch_norm) return;
  const std::vector<Shape> wanted = infer_param_shapes(node, inputs[0]);
  for (std::size_t i = 1; i < inputs.size() && i <= wanted.size(); ++i) {
    if (inputs[i] == wanted[i - 1]) continue;
    throw UserError(layer_label(node) + ": parameter " + std::to_string(i - 1) + " has shape " + inputs[i].str() +
                        " instead of " + wanted[i - 1].str(),
                    "the layer's input is " + inputs[0].str(),
                    "use one resolution, or a model that ends in global average pooling");
  }
}

}  // namespace

std::vector<Shape> infer_param_shapes(const ComputeNode& node, const Shape& x) {
  switch (node.op) {
    case OpKind::conv2d: {
      const auto& params = std::get<Conv2dParams>(node.params);
      conv2d_shape(node, x);
      const Shape weight{params.out_channels, params.window.kernel_h, params.window.kernel_w, x.c() / params.groups};
      return params.bias ? std::vector<Shape>{weight, Shape{params.out_channels}} : std::vector<Shape>{weight};
    }
    case OpKind::linear: {
      const auto& params = std::get<LinearParams>(node.params);
      require_batch(node, x);
      const Shape weight{params.out_features, row_elems(x)};
      return params.bias ? std::vector<Shape>{weight, Shape{params.out_features}} : std::vector<Shape>{weight};
    }
    case OpKind::batch_norm: require_batch(node, x); return {Shape{x.c()}, Shape{x.c()}};
    default: return {};
  }
}

std::vector<Shape> infer_shapes(const ComputeNode& node, std::span<const Shape> inputs) {
  RENAI_CHECK(node.pass == Pass::forward || node.pass == Pass::inference,
              "node '" + node.name + "': shapes of backward passes come from infer_backward_shapes");
  RENAI_CHECK(!inputs.empty(), "node '" + node.name + "' has no input shapes");
  const Shape& x = inputs[0];
  check_given_params(node, inputs);
  switch (node.op) {
    case OpKind::unpack_slot: {
      const Shape rows{x.n()};
      return {rows, rows, rows, rows, Shape{static_cast<std::int64_t>(sizeof(ControlBlock))}};
    }
    case OpKind::normalize_input:
      if (x.rank() != 4 || x.elems() < 1)
        refuse(node, x, "the input must be N x H x W x C with no empty extent", "give images of at least one pixel");
      return {x};
    case OpKind::conv2d: return {conv2d_shape(node, x)};
    case OpKind::linear: {
      const auto& params = std::get<LinearParams>(node.params);
      require_batch(node, x);
      if (params.out_features < 1) refuse_low(node, x, "out", std::to_string(params.out_features), 1);
      return {Shape{x.n(), params.out_features}};
    }
    case OpKind::batch_norm: return batch_norm_shapes(node, x);
    case OpKind::activation:
    case OpKind::dropout: require_batch(node, x); return {x};
    case OpKind::max_pool:
    case OpKind::avg_pool: return {pool_shape(node, x)};
    case OpKind::global_avg_pool: require_feature_map(node, x); return {Shape{x.n(), 1, 1, x.c()}};
    case OpKind::adaptive_avg_pool: {
      const auto& params = std::get<AdaptivePoolParams>(node.params);
      require_feature_map(node, x);
      return {Shape{x.n(), params.out_h, params.out_w, x.c()}};
    }
    case OpKind::add: return {add_shape(node, inputs)};
    case OpKind::concat: return {concat_shape(node, inputs)};
    case OpKind::flatten: require_batch(node, x); return {Shape{x.n(), row_elems(x)}};
    case OpKind::softmax_cross_entropy: return loss_shapes(node, inputs);
  }
  throw InternalError("node '" + node.name + "' has no shape rule", std::string(op_kind_name(node.op)));
}

std::vector<Shape> infer_backward_shapes(const ComputeNode& node, std::span<const Shape> forward_inputs) {
  RENAI_CHECK(!forward_inputs.empty(), "node '" + node.name + "' has no forward inputs");
  const Shape& x = forward_inputs[0];
  switch (node.pass) {
    case Pass::backward_data: return {x};
    case Pass::backward_weights: return infer_param_shapes(node, x);
    case Pass::backward: break;
    case Pass::forward:
    case Pass::inference: throw InternalError("node '" + node.name + "' is not a backward pass", "");
  }
  switch (node.op) {
    case OpKind::batch_norm: return {x, Shape{x.c()}, Shape{x.c()}};
    case OpKind::concat: return {forward_inputs.begin(), forward_inputs.end()};
    case OpKind::activation:
    case OpKind::max_pool:
    case OpKind::avg_pool:
    case OpKind::global_avg_pool:
    case OpKind::adaptive_avg_pool:
    case OpKind::flatten:
    case OpKind::dropout:
    case OpKind::softmax_cross_entropy: return {x};
    default: break;
  }
  throw InternalError("node '" + node.name + "' has no backward shape rule", std::string(op_kind_name(node.op)));
}

DType tensor_dtype(TensorRole role) {
  switch (role) {
    case TensorRole::labels:
    case TensorRole::mix_labels: return DType::i32;
    case TensorRole::slot:
    case TensorRole::control: return DType::u8;
    default: return DType::f32;
  }
}

}  // namespace renai
