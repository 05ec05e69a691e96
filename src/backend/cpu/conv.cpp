// Convolution through oneDNN: activations NHWC as they are, weights reordered into the layout that the kernel wants.

#include <algorithm>
#include <type_traits>

#include "loops/loops.hpp"
#include "norm_patterns.hpp"
#include "norm_repeat.hpp"
#include "onednn.hpp"
#include "parallel.hpp"
#include "tables.hpp"

namespace renai::cpu {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
constexpr auto kF32 = memory::data_type::f32;

/// A convolution in oneDNN's terms.
struct Problem {
  memory::dims src, weights, dst, bias, strides, dilation, pad_l, pad_r;
  memory::desc src_nhwc, dst_nhwc, weights_any, weights_krsc, bias_desc;
};

Problem make_problem(const Conv2dParams& params, const Shape& x, const Shape& y) {
  const WindowParams& window = params.window;
  Problem p;
  p.src = {x.n(), x.c(), x.h(), x.w()};
  p.dst = {y.n(), y.c(), y.h(), y.w()};
  const std::int64_t group_c = x.c() / params.groups;
  const bool grouped = params.groups > 1;
  p.weights = grouped ? memory::dims{params.groups, y.c() / params.groups, group_c, window.kernel_h, window.kernel_w}
                      : memory::dims{y.c(), group_c, window.kernel_h, window.kernel_w};
  p.bias = {y.c()};
  p.strides = {window.stride_h, window.stride_w};
  p.dilation = {window.dilation_h - 1, window.dilation_w - 1};
  p.pad_l = {window.pad_h, window.pad_w};
  // The far side pads just as far as the last window reaches.
  const auto far = [](std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
                      std::int64_t dilation,
                      std::int64_t pad) { return (out - 1) * stride + (kernel - 1) * dilation + 1 - in - pad; };
  p.pad_r = {far(x.h(), y.h(), window.kernel_h, window.stride_h, window.dilation_h, window.pad_h),
             far(x.w(), y.w(), window.kernel_w, window.stride_w, window.dilation_w, window.pad_w)};
  p.src_nhwc = {p.src, kF32, Tag::nhwc};
  p.dst_nhwc = {p.dst, kF32, Tag::nhwc};
  p.weights_any = {p.weights, kF32, Tag::any};
  p.weights_krsc = {p.weights, kF32, grouped ? Tag::gohwi : Tag::ohwi};
  p.bias_desc = {p.bias, kF32, Tag::x};
  return p;
}

dnnl::convolution_forward::primitive_desc forward_desc(const Problem& p, bool bias, dnnl::prop_kind kind,
                                                       const dnnl::primitive_attr& attr) {
  const auto algorithm = dnnl::algorithm::convolution_direct;
  if (!bias) {
    return {{kind, algorithm, p.src_nhwc, p.weights_any, p.dst_nhwc, p.strides, p.dilation, p.pad_l, p.pad_r},
            attr,
            onednn_engine()};
  }
  return {
      {kind, algorithm, p.src_nhwc, p.weights_any, p.bias_desc, p.dst_nhwc, p.strides, p.dilation, p.pad_l, p.pad_r},
      attr,
      onednn_engine()};
}

/// In place, over what a convolution has just written. Not a post-operation: oneDNN's relu makes 0 of NaN, and a
/// network whose weights have overflowed would go on with a loss.
struct Relu {
  float* y = nullptr;
  std::int64_t elems = 0;
  int threads = 1;

  void run() const {
    parallel_ranges(threads, elems, [this](std::int64_t begin, std::int64_t end) {
      machine_loops().relu(y + begin, y + begin, end - begin);
    });
  }
};

/// Rule 6 of the determinism contract leaves out Winograd in fp32.
void require_direct(const char* kernel) {
  if (std::string_view(kernel).find("wino") != std::string_view::npos) {
    throw dnnl::error(dnnl_unimplemented, "only a Winograd kernel");
  }
}

/// Weights in the kernel's layout: a reorder into the workspace, or the weights themselves.
struct WeightsPlan {
  memory::desc packed;
  bool reordered = false;
  std::int64_t packed_offset = -1, scratch_offset = -1;
  dnnl::reorder::primitive_desc reorder;

  /// `outward`: from packed to plain (gradients).
  WeightsPlan(const memory::desc& krsc, const memory::desc& wanted, bool outward, WorkspaceLayout& layout)
      : packed(wanted), reordered(krsc != wanted) {
    if (!reordered) return;
    reorder = outward ? make_reorder(packed, krsc) : make_reorder(krsc, packed);
    packed_offset = layout.add(static_cast<std::int64_t>(packed.get_size()));
    scratch_offset = layout.add(static_cast<std::int64_t>(reorder.scratchpad_desc().get_size()));
  }

  void* packed_at(void* plain_at, std::byte* workspace) const {
    return reordered ? static_cast<void*>(workspace + packed_offset) : plain_at;
  }
  PreparedPrimitive bind(void* from, void* to, std::byte* workspace) const {
    return {dnnl::reorder(reorder),
            {{DNNL_ARG_FROM, reorder.src_desc(), from},
             {DNNL_ARG_TO, reorder.dst_desc(), to},
             {DNNL_ARG_SCRATCHPAD, reorder.scratchpad_desc(), workspace + scratch_offset}}};
  }
};

/// What all passes have in common: a primitive, its weights (or their gradient) in the layout it wants, a scratchpad.
template <typename Primitive>
class ConvPlan {
 public:
  using Desc = typename Primitive::primitive_desc;
  using Argument = PreparedPrimitive::Argument;
  using Steps = std::vector<PreparedPrimitive>;
  static constexpr bool kOutward = std::is_same_v<Primitive, dnnl::convolution_backward_weights>;

  /// Errors: dnnl::error for a Winograd kernel.
  ConvPlan(const Problem& p, const Desc& chosen, WorkspaceLayout& layout)
      : desc(chosen), weights_(p.weights_krsc, wanted(chosen), kOutward, layout) {
    require_direct(desc.impl_info_str());
    scratch_ = layout.add(static_cast<std::int64_t>(desc.scratchpad_desc().get_size()));
  }

  std::string detail() const { return std::string(desc.impl_info_str()) + (weights_.reordered ? "+pack" : ""); }

  /// `arguments`: all but the weights and the scratchpad.
  Steps bind(std::vector<Argument> arguments, void* plain_weights, std::byte* workspace) const {
    void* packed = weights_.packed_at(plain_weights, workspace);
    arguments.push_back({kOutward ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, weights_.packed, packed});
    arguments.push_back({DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc(), workspace + scratch_});
    Steps steps;
    if (weights_.reordered && !kOutward) steps.push_back(weights_.bind(plain_weights, packed, workspace));
    steps.emplace_back(Primitive(desc), arguments);
    if (weights_.reordered && kOutward) steps.push_back(weights_.bind(packed, plain_weights, workspace));
    return steps;
  }

  const Desc desc;

 private:
  static memory::desc wanted(const Desc& chosen) {
    if constexpr (kOutward) {
      return chosen.diff_weights_desc();
    } else {
      return chosen.weights_desc();
    }
  }

  WeightsPlan weights_;
  std::int64_t scratch_ = -1;
};

void run_all(const std::vector<PreparedPrimitive>& steps) {
  for (const PreparedPrimitive& step : steps) step.run();
}

bool is_conv(const ComputeNode* node, Pass pass) {
  return node != nullptr && node->op == OpKind::conv2d && node->pass == pass;
}

// ---- forward --------------------------------------------------------------------------------------------------------

/// Arguments of a forward convolution but its weights.
std::vector<PreparedPrimitive::Argument> forward_arguments(const dnnl::convolution_forward::primitive_desc& desc,
                                                           void* src, void* bias, void* dst) {
  std::vector<PreparedPrimitive::Argument> arguments{{DNNL_ARG_SRC, desc.src_desc(), src},
                                                     {DNNL_ARG_DST, desc.dst_desc(), dst}};
  if (bias != nullptr) arguments.push_back({DNNL_ARG_BIAS, desc.bias_desc(), bias});
  return arguments;
}

Offer<Match> match_conv(const Scope& scope, std::size_t first) {
  const ComputeNode* node = scope.node(first);
  if (!is_conv(node, Pass::forward)) return Offer<Match>::refuse("not a forward convolution");
  return Match{1, node->inputs, node->outputs, {}};
}

Offer<Match> match_conv_relu(const Scope& scope, std::size_t first) {
  const ComputeNode* conv = scope.node(first);
  const ComputeNode* relu = scope.follower(first, first + 1);
  if (!is_conv(conv, Pass::forward)) return Offer<Match>::refuse("not a forward convolution");
  if (!is_relu(relu, Pass::forward) || relu->inputs[0] != conv->outputs[0])
    return Offer<Match>::refuse("no relu follows");
  if (!scope.only_reader(conv->outputs[0], first + 1)) return Offer<Match>::refuse("others read the convolution too");
  return Match{2, conv->inputs, relu->outputs, {}};
}

Offer<Kernel> make_conv_forward(const Site& site) {
  const ComputeNode& node = site.node();
  const bool bias = node.inputs.size() > 2, relu = site.match->node_count == 2;
  const Problem p =
      make_problem(std::get<Conv2dParams>(node.params), site.shape(node.inputs[0]), site.shape(node.outputs[0]));
  WorkspaceLayout layout;
  const ConvPlan<dnnl::convolution_forward> plan(
      p, forward_desc(p, bias, dnnl::prop_kind::forward_training, user_scratchpad()), layout);
  const std::int64_t elems = relu ? site.shape(node.outputs[0]).elems() : 0;
  Kernel kernel;
  kernel.detail = plan.detail();
  kernel.workspace_bytes = layout.size_bytes();
  kernel.bind = [=, threads = site.threads()](const Operands& at) -> Call {
    void* bias_at = bias ? at.inputs[2] : nullptr;
    auto steps =
        plan.bind(forward_arguments(plan.desc, at.inputs[0], bias_at, at.outputs[0]), at.inputs[1], at.workspace);
    return [steps = std::move(steps), tail = Relu{at.out(0), elems, threads}] {
      run_all(steps);
      if (tail.elems > 0) tail.run();
    };
  };
  return kernel;
}

// ---- inference: batch norm folded into the weights -----------------------------------------------------------------

/// Conv, folded batch norm and possibly relu. Inputs: x w scale bias [conv bias].
Offer<Match> match_conv_bn(const Scope& scope, std::size_t first) {
  const ComputeNode* conv = scope.node(first);
  const ComputeNode* norm = scope.follower(first, first + 1);
  if (!is_conv(conv, Pass::forward)) return Offer<Match>::refuse("not a forward convolution");
  if (norm == nullptr || norm->op != OpKind::batch_norm || norm->pass != Pass::inference ||
      norm->inputs[0] != conv->outputs[0]) {
    return Offer<Match>::refuse("no inference batch norm follows");
  }
  if (!scope.only_reader(conv->outputs[0], first + 1)) return Offer<Match>::refuse("others read the convolution too");
  Match match{2, {conv->inputs[0], conv->inputs[1], norm->inputs[1], norm->inputs[2]}, norm->outputs, {}};
  if (conv->inputs.size() > 2) match.inputs.push_back(conv->inputs[2]);
  const ComputeNode* relu = scope.follower(first, first + 2);
  if (is_relu(relu, Pass::forward) && relu->inputs[0] == norm->outputs[0] &&
      scope.only_reader(norm->outputs[0], first + 2)) {
    match.node_count = 3;
    match.outputs = relu->outputs;
  }
  return match;
}

/// folded_w[k, ...] = w[k, ...] * scale[k]; folded_b = bias + conv_bias * scale.
struct Fold {
  const float *w, *scale, *bias, *conv_bias;
  float *folded_w, *folded_b;
  std::int64_t k, filter_elems;

  void run(int threads) const {
    parallel_ranges(threads, k, [this](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        machine_loops().scale(w + i * filter_elems, scale[i], folded_w + i * filter_elems, filter_elems);
        folded_b[i] = bias[i] + (conv_bias == nullptr ? 0.0f : conv_bias[i] * scale[i]);
      }
    });
  }
};

Offer<Kernel> make_conv_bn(const Site& site) {
  const ComputeNode& conv = site.node();
  const bool relu = site.match->node_count == 3;
  const Problem p =
      make_problem(std::get<Conv2dParams>(conv.params), site.shape(conv.inputs[0]), site.shape(conv.outputs[0]));
  WorkspaceLayout layout;
  const std::int64_t folded_w = layout.add(static_cast<std::int64_t>(p.weights_krsc.get_size()));
  const std::int64_t folded_b = layout.add(static_cast<std::int64_t>(p.bias_desc.get_size()));
  const ConvPlan<dnnl::convolution_forward> plan(
      p, forward_desc(p, true, dnnl::prop_kind::forward_inference, user_scratchpad()), layout);
  const std::int64_t elems = relu ? site.shape(conv.outputs[0]).elems() : 0;
  const std::int64_t k = p.bias[0], filter = site.shape(conv.inputs[1]).elems() / k;
  Kernel kernel;
  kernel.detail = plan.detail();
  kernel.workspace_bytes = layout.size_bytes();
  kernel.bind = [=, threads = site.threads()](const Operands& at) -> Call {
    auto* plain = reinterpret_cast<float*>(at.workspace + folded_w);
    auto* bias = reinterpret_cast<float*>(at.workspace + folded_b);
    const Fold fold{at.in(1), at.in(2), at.in(3), at.inputs.size() > 4 ? at.in(4) : nullptr, plain, bias, k, filter};
    auto steps = plan.bind(forward_arguments(plan.desc, at.inputs[0], bias, at.outputs[0]), plain, at.workspace);
    return [fold, threads, steps = std::move(steps), tail = Relu{at.out(0), elems, threads}] {
      fold.run(threads);
      run_all(steps);
      if (tail.elems > 0) tail.run();
    };
  };
  return kernel;
}

// ---- backward -------------------------------------------------------------------------------------------------------

Offer<Match> match_backward_data(const Scope& scope, std::size_t first) {
  const ComputeNode* node = scope.node(first);
  if (!is_conv(node, Pass::backward_data)) return Offer<Match>::refuse("not a convolution's data gradient");
  return Match{1, node->inputs, node->outputs, {}};
}

Offer<Kernel> make_backward_data(const Site& site) {
  const ComputeNode& node = site.node();
  const Problem p =
      make_problem(std::get<Conv2dParams>(node.params), site.shape(node.outputs[0]), site.shape(node.inputs[0]));
  using Primitive = dnnl::convolution_backward_data;
  const auto hint = forward_desc(p, false, dnnl::prop_kind::forward_training, user_scratchpad());
  const Primitive::desc asked(dnnl::algorithm::convolution_direct, p.src_nhwc, p.weights_any, p.dst_nhwc, p.strides,
                              p.dilation, p.pad_l, p.pad_r);
  WorkspaceLayout layout;
  const ConvPlan<Primitive> plan(p, {asked, user_scratchpad(), onednn_engine(), hint}, layout);
  Kernel kernel;
  kernel.detail = plan.detail();
  kernel.workspace_bytes = layout.size_bytes();
  kernel.bind = [plan](const Operands& at) -> Call {
    auto steps = plan.bind({{DNNL_ARG_DIFF_DST, plan.desc.diff_dst_desc(), at.inputs[0]},
                            {DNNL_ARG_DIFF_SRC, plan.desc.diff_src_desc(), at.outputs[0]}},
                           at.inputs[1], at.workspace);
    return [steps = std::move(steps)] { run_all(steps); };
  };
  return kernel;
}

Offer<Match> match_backward_weights(const Scope& scope, std::size_t first) {
  const ComputeNode* node = scope.node(first);
  if (!is_conv(node, Pass::backward_weights)) return Offer<Match>::refuse("not a convolution's weight gradient");
  return Match{1, node->inputs, node->outputs, {}};
}

/// Inputs: dy, then what the convolution's input is made from once more.
Offer<Match> match_backward_weights_repeat(const Scope& scope, std::size_t first) {
  const ComputeNode* node = scope.node(first);
  if (!is_conv(node, Pass::backward_weights)) return Offer<Match>::refuse("not a convolution's weight gradient");
  const std::optional<NormRelu> pattern = repeatable_input(scope, first);
  if (!pattern) return Offer<Match>::refuse("its input is not made from what is kept anyway");
  Match match{1, NormRepeat::inputs(*pattern), node->outputs, {}};
  match.inputs.insert(match.inputs.begin(), node->inputs[1]);
  return match;
}

dnnl::convolution_backward_weights::primitive_desc backward_weights_desc(const Problem& p, bool bias) {
  using Desc = dnnl::convolution_backward_weights::desc;
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const Desc asked =
      bias
          ? Desc(algorithm, p.src_nhwc, p.weights_any, p.bias_desc, p.dst_nhwc, p.strides, p.dilation, p.pad_l, p.pad_r)
          : Desc(algorithm, p.src_nhwc, p.weights_any, p.dst_nhwc, p.strides, p.dilation, p.pad_l, p.pad_r);
  const auto hint = forward_desc(p, bias, dnnl::prop_kind::forward_training, user_scratchpad());
  return {asked, user_scratchpad(), onednn_engine(), hint};
}

template <bool kRepeat>
Offer<Kernel> make_backward_weights(const Site& site) {
  const ComputeNode& node = site.node();
  const Problem p =
      make_problem(std::get<Conv2dParams>(node.params), site.shape(node.inputs[0]), site.shape(node.inputs[1]));
  const bool bias = node.outputs.size() > 1;
  WorkspaceLayout layout;
  std::optional<NormRepeat> repeat;
  if constexpr (kRepeat) repeat.emplace(repeatable_input(*site.scope, site.first).value(), site, layout);
  const ConvPlan<dnnl::convolution_backward_weights> plan(p, backward_weights_desc(p, bias), layout);
  Kernel kernel;
  kernel.detail = plan.detail();
  kernel.workspace_bytes = layout.size_bytes();
  kernel.bind = [plan, repeat, bias](const Operands& at) -> Call {
    void* src = kRepeat ? repeat->y_at(at) : at.inputs[0];
    void* diff_dst = at.inputs[kRepeat ? 0 : 1];
    std::vector<PreparedPrimitive::Argument> arguments{{DNNL_ARG_SRC, plan.desc.src_desc(), src},
                                                       {DNNL_ARG_DIFF_DST, plan.desc.diff_dst_desc(), diff_dst}};
    if (bias) arguments.push_back({DNNL_ARG_DIFF_BIAS, plan.desc.diff_bias_desc(), at.outputs[1]});
    auto steps = plan.bind(std::move(arguments), at.outputs[0], at.workspace);
    if constexpr (kRepeat) {
      return [again = repeat->bind(at, 1), steps = std::move(steps)] {
        again();
        run_all(steps);
      };
    } else {
      return [steps = std::move(steps)] { run_all(steps); };
    }
  };
  return kernel;
}

}  // namespace

std::vector<Implementation> conv_implementations() {
  return {{"onednn.conv_bn", match_conv_bn, make_conv_bn},
          {"onednn.conv_relu", match_conv_relu, make_conv_forward},
          {"onednn.conv", match_conv, make_conv_forward},
          {"onednn.conv_data", match_backward_data, make_backward_data},
          {"onednn.conv_weights_norm", match_backward_weights_repeat, make_backward_weights<true>},
          {"onednn.conv_weights", match_backward_weights, make_backward_weights<false>}};
}

}  // namespace renai::cpu
