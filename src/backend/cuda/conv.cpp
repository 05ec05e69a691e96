// Convolutions and their gradients.

#include <algorithm>

#include "checked.hpp"
#include "kernels/elementwise.hpp"
#include "leaf.hpp"
#include "renai/base/check.hpp"
#include "renai/graph/region_name.hpp"

namespace renai::cuda {
namespace {

Offer<Match> match_pass(const Scope& scope, std::size_t first, Pass pass) {
  const ComputeNode* node = scope.node(first);
  if (!is_op(node, OpKind::conv2d, pass)) return Offer<Match>::refuse("not this pass of a convolution");
  return Match{1, node->inputs, node->outputs, {}};
}

/// [k, r, s, c] weights beside a copy whose last axis is stored wider, the rest zero.
struct WidenedWeights {
  std::int64_t rows = 0, c = 0, stored_c = 0;
  DType dtype = DType::f32;

  bool needed() const { return stored_c != c; }
  std::int64_t size_bytes() const { return needed() ? rows * stored_c * dtype_bytes(dtype) : 0; }

  void widen(const void* from, std::byte* to, cudaStream_t queue) const {
    require(cudaMemsetAsync(to, 0, static_cast<std::size_t>(size_bytes()), queue), "clearing padded weights");
    launch(ColumnCopy{from, to, rows, c, c, 0, stored_c, 0, dtype}, queue);
  }
  void narrow(const std::byte* from, void* to, cudaStream_t queue) const {
    launch(ColumnCopy{from, to, rows, c, stored_c, 0, c, 0, dtype}, queue);
  }
};

Shape with_channels(const Shape& x, std::int64_t c) { return Shape{x.n(), x.h(), x.w(), c}; }

WidenedWeights widened(const Leaf& leaf, const Site& site, TensorId x, TensorId weights) {
  const Shape& shape = site.shape(weights);
  const std::int64_t c = shape.c();
  return {shape.elems() / c, c, stored_channels(leaf, site.scope->graph(), site.scope->uses(), x, c), leaf.dtype};
}

ConvProblem make_problem(const Leaf& leaf, ConvPass pass, const ComputeNode& node, const Shape& x, const Shape& y) {
  ConvProblem problem;
  problem.pass = pass;
  problem.x = x;
  problem.y = y;
  problem.params = std::get<Conv2dParams>(node.params);
  problem.dtype = leaf.dtype;
  problem.weights_out = leaf.dtype;
  return problem;
}

Offer<Kernel> make_forward(const Leaf& leaf, const Site& site) {
  const ComputeNode& node = site.node();
  const WidenedWeights wide = widened(leaf, site, node.inputs[0], node.inputs[1]);
  Shape x = site.shape(node.inputs[0]);
  if (wide.needed()) x = with_channels(x, wide.stored_c);
  ConvProblem problem = make_problem(leaf, ConvPass::forward, node, x, site.shape(node.outputs[0]));
  problem.bias = node.inputs.size() > 2;
  const std::shared_ptr<ConvPlan> plan = leaf.convolutions->plan(problem);
  WorkspaceLayout layout;
  const std::int64_t plan_at = layout.add(plan->workspace_bytes()), wide_at = layout.add(wide.size_bytes());
  Kernel kernel;
  kernel.detail = plan->name();
  kernel.workspace_bytes = layout.size_bytes();
  kernel.bind = [=, &leaf, bias = problem.bias](const Operands& at) -> Call {
    const void* weights = matrix_operand(leaf, at, 1);
    const void* biases = bias ? matrix_operand(leaf, at, 2) : nullptr;
    return [=] {
      if (wide.needed()) wide.widen(weights, at.workspace + wide_at, queue_of(at));
      const void* used = wide.needed() ? at.workspace + wide_at : weights;
      plan->execute(at.queue, at.inputs[0], used, biases, at.outputs[0], at.workspace + plan_at);
    };
  };
  return kernel;
}

Offer<Kernel> make_data(const Leaf& leaf, const Site& site) {
  const ComputeNode& node = site.node();
  const std::shared_ptr<ConvPlan> plan = leaf.convolutions->plan(
      make_problem(leaf, ConvPass::data, node, site.shape(node.outputs[0]), site.shape(node.inputs[0])));
  Kernel kernel;
  kernel.detail = plan->name();
  kernel.workspace_bytes = plan->workspace_bytes();
  kernel.bind = [plan, &leaf](const Operands& at) -> Call {
    const void* weights = matrix_operand(leaf, at, 1);
    return
        [plan, at, weights] { plan->execute(at.queue, at.inputs[0], weights, nullptr, at.outputs[0], at.workspace); };
  };
  return kernel;
}

/// A bias in front of a batch norm moves its mean only: its gradient is zero, whatever rounding would make of the sum.
bool feeds_norm_alone(const Site& site, TensorId dy) {
  const auto& writers = site.scope->uses().writers(dy);
  if (writers.empty()) return false;
  for (const NodePlace& place : writers) {
    const auto* writer = std::get_if<ComputeNode>(&site.scope->graph().nodes(place.id)[place.index].work);
    if (!is_op(writer, OpKind::batch_norm, Pass::backward) || writer->outputs[0] != dy) return false;
  }
  return true;
}

Offer<Kernel> make_weights(const Leaf& leaf, const Site& site) {
  const ComputeNode& node = site.node();
  const Shape& y = site.shape(node.inputs[1]);
  const WidenedWeights wide = widened(leaf, site, node.inputs[0], node.outputs[0]);
  Shape x = site.shape(node.inputs[0]);
  if (wide.needed()) x = with_channels(x, wide.stored_c);
  const std::shared_ptr<ConvPlan> plan = leaf.convolutions->plan(make_problem(leaf, ConvPass::weights, node, x, y));
  const std::int64_t elems = site.shape(node.outputs[0]).elems(), k = y.c(), rows = y.elems() / k;
  const bool bias = node.outputs.size() > 1, zero_bias = bias && feeds_norm_alone(site, node.inputs[1]);
  WorkspaceLayout layout;
  const std::int64_t plan_at = layout.add(plan->workspace_bytes());
  const std::int64_t half_at = leaf.half() ? layout.add(elems * leaf.elem_bytes()) : 0;
  const std::int64_t wide_at = layout.add(wide.size_bytes());
  const std::int64_t sums_at = bias && !zero_bias ? layout.add(column_sums_workspace_bytes(rows, k)) : 0;
  Kernel kernel;
  kernel.detail = plan->name() + (bias ? zero_bias ? "+zero" : "+sum" : "");
  kernel.workspace_bytes = layout.size_bytes();
  kernel.bind = [=, &leaf](const Operands& at) -> Call {
    return [=, &leaf] {
      const cudaStream_t queue = queue_of(at);
      std::byte* out = leaf.half() ? at.workspace + half_at : at.outputs[0];
      std::byte* made = wide.needed() ? at.workspace + wide_at : out;
      plan->execute(queue, at.inputs[0], at.inputs[1], nullptr, made, at.workspace + plan_at);
      if (wide.needed()) wide.narrow(made, out, queue);
      if (leaf.half()) launch_cast_to_f32(out, at.out(0), elems, leaf.dtype, queue);
      if (zero_bias) {
        require(cudaMemsetAsync(at.outputs[1], 0, static_cast<std::size_t>(k) * sizeof(float), queue),
                "clearing a bias gradient");
      } else if (bias) {
        launch_column_sums(at.inputs[1], at.out(1), rows, k, at.workspace + sums_at, leaf.dtype, queue);
      }
    };
  };
  return kernel;
}

}  // namespace

const void* matrix_operand(const Leaf& leaf, const Operands& at, std::size_t input) {
  if (!leaf.half()) return at.inputs[input];
  const BindContext& context = *at.context;
  const auto half_of = [&](std::string_view whole, std::string_view half) -> const void* {
    if (!context.plan->has_region(whole)) return nullptr;
    const Region& region = context.plan->region(whole);
    const std::ptrdiff_t inside = at.inputs[input] - context.at(region);
    if (inside < 0 || inside >= region.size_bytes) return nullptr;
    return context.at(context.plan->region(half)) + inside / 2;
  };
  const void* weights = half_of(region_name::kWeights, region_name::kWeightsHalf);
  const void* operand = weights != nullptr ? weights : half_of(region_name::kEma, region_name::kEmaHalf);
  RENAI_CHECK(operand != nullptr, "a matrix operand lies among the weights or their averages");
  return operand;
}

std::int64_t stored_channels(const Leaf& leaf, const ComputationGraph& graph, const Uses& uses, TensorId tensor,
                             std::int64_t c) {
  constexpr std::int64_t kWide = 8;
  if (!leaf.half() || c >= kWide) return c;
  const auto node_at = [&graph](const NodePlace& place) {
    return std::get_if<ComputeNode>(&graph.nodes(place.id)[place.index].work);
  };
  const auto& writers = uses.writers(tensor);
  const bool input = !writers.empty() && std::all_of(writers.begin(), writers.end(), [&](const NodePlace& place) {
    const ComputeNode* node = node_at(place);
    return node != nullptr && node->op == OpKind::normalize_input;
  });
  const auto& readers = uses.readers(tensor);
  const bool convolved = std::all_of(readers.begin(), readers.end(), [&](const NodePlace& place) {
    const ComputeNode* node = node_at(place);
    return node != nullptr && node->op == OpKind::conv2d && std::get<Conv2dParams>(node->params).groups == 1;
  });
  return input && convolved ? kWide : c;
}

std::vector<Implementation> conv_implementations(const Leaf& leaf) {
  const auto match = [](Pass pass) {
    return [pass](const Scope& scope, std::size_t first) { return match_pass(scope, first, pass); };
  };
  return {{"cudnn.conv", match(Pass::forward), [&leaf](const Site& site) { return make_forward(leaf, site); }},
          {"cudnn.conv_data", match(Pass::backward_data), [&leaf](const Site& site) { return make_data(leaf, site); }},
          {"cudnn.conv_weights", match(Pass::backward_weights),
           [&leaf](const Site& site) { return make_weights(leaf, site); }}};
}

}  // namespace renai::cuda
