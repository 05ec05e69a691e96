// Pools. A max pool keeps the places of its maxima for its gradient.

#include "kernels/pool.hpp"

#include "leaf.hpp"

namespace renai::cuda {
namespace {

constexpr std::int64_t kMaxTaps = 255;

PoolShape make_shape(const Leaf& leaf, const ComputeNode& node, const Shape& x, const Shape& y) {
  PoolShape shape;
  shape.n = x.n();
  shape.h = x.h();
  shape.w = x.w();
  shape.c = x.c();
  shape.out_h = y.h();
  shape.out_w = y.w();
  if (const auto* params = std::get_if<PoolParams>(&node.params)) shape.params = *params;
  shape.dtype = leaf.dtype;
  return shape;
}

Offer<Match> match_max(const Scope& scope, std::size_t first) {
  const ComputeNode* node = scope.node(first);
  if (!is_op(node, OpKind::max_pool, Pass::forward)) return Offer<Match>::refuse("not a max pool");
  Match match{1, node->inputs, node->outputs, {}};
  if (scope.uses().has_gradient(*node, node->inputs[0])) match.outputs.push_back(saved_by(node->layer));
  return match;
}

Offer<Kernel> make_max(const Leaf& leaf, const Site& site) {
  const ComputeNode& node = site.node();
  const PoolShape shape = make_shape(leaf, node, site.shape(node.inputs[0]), site.shape(node.outputs[0]));
  if (shape.params.window.kernel_h * shape.params.window.kernel_w > kMaxTaps) {
    return Offer<Kernel>::refuse("a window of more than 255 taps");
  }
  const bool saves = site.match->outputs.size() > 1;
  Kernel kernel;
  if (saves) kernel.saved_bytes = max_pool_places_bytes(shape);
  kernel.bind = [=](const Operands& at) -> Call {
    auto* places = saves ? reinterpret_cast<std::uint8_t*>(at.outputs[1]) : nullptr;
    return [=] { launch_max_pool(shape, at.inputs[0], at.outputs[0], places, queue_of(at)); };
  };
  return kernel;
}

/// Reads the kept places, not x. Where no forward node kept them (a hand-built graph) they are found again.
Offer<Match> match_max_grad(const Scope& scope, std::size_t first) {
  const ComputeNode* node = scope.node(first);
  if (!is_op(node, OpKind::max_pool, Pass::backward)) return Offer<Match>::refuse("not a max pool's gradient");
  if (scope.uses().has_gradient(*node, node->inputs[0])) {
    return Match{1, {saved_by(node->layer), node->inputs[1]}, node->outputs, {}};
  }
  return Match{1, node->inputs, node->outputs, {}};
}

Offer<Kernel> make_max_grad(const Leaf& leaf, const Site& site) {
  const ComputeNode& node = site.node();
  const Shape& x = site.shape(node.outputs[0]);
  const Shape& y = site.shape(node.inputs[1]);
  const PoolShape shape = make_shape(leaf, node, x, y);
  if (shape.params.window.kernel_h * shape.params.window.kernel_w > kMaxTaps) {
    return Offer<Kernel>::refuse("a window of more than 255 taps");
  }
  const bool saved = lowering::is_saved(site.match->inputs[0]);
  WorkspaceLayout layout;
  const std::int64_t places_at = saved ? 0 : layout.add(max_pool_places_bytes(shape));
  const std::int64_t y_at = saved ? 0 : layout.add(y.elems() * leaf.elem_bytes());
  Kernel kernel;
  kernel.workspace_bytes = layout.size_bytes();
  if (saved) kernel.saved_bytes = max_pool_places_bytes(shape);
  kernel.bind = [=](const Operands& at) -> Call {
    return [=] {
      auto* places = reinterpret_cast<std::uint8_t*>(saved ? at.inputs[0] : at.workspace + places_at);
      if (!saved) launch_max_pool(shape, at.inputs[0], at.workspace + y_at, places, queue_of(at));
      launch_max_pool_grad(shape, places, at.inputs[1], at.outputs[0], queue_of(at));
    };
  };
  return kernel;
}

Offer<Match> match_average(const Scope& scope, std::size_t first) {
  const ComputeNode* node = scope.node(first);
  if (node == nullptr ||
      (node->op != OpKind::avg_pool && node->op != OpKind::global_avg_pool && node->op != OpKind::adaptive_avg_pool)) {
    return Offer<Match>::refuse("not an average");
  }
  return Match{1, node->inputs, node->outputs, {}};
}

Offer<Kernel> make_average(const Leaf& leaf, const Site& site) {
  const ComputeNode& node = site.node();
  const bool backward = node.pass == Pass::backward;
  const TensorId x = backward ? node.outputs[0] : node.inputs[0], y = backward ? node.inputs[0] : node.outputs[0];
  const PoolShape shape = make_shape(leaf, node, site.shape(x), site.shape(y));
  const auto run =
      node.op == OpKind::global_avg_pool ? (backward ? launch_global_avg_pool_grad : launch_global_avg_pool)
      : node.op == OpKind::avg_pool      ? (backward ? launch_avg_pool_grad : launch_avg_pool)
                                         : (backward ? launch_adaptive_avg_pool_grad : launch_adaptive_avg_pool);
  Kernel kernel;
  kernel.bind = [shape, run](const Operands& at) -> Call {
    return [=] { run(shape, at.inputs[0], at.outputs[0], queue_of(at)); };
  };
  return kernel;
}

}  // namespace

std::vector<Implementation> pool_implementations(const Leaf& leaf) {
  return {{"own.max_pool", match_max, [&leaf](const Site& site) { return make_max(leaf, site); }},
          {"own.max_pool_grad", match_max_grad, [&leaf](const Site& site) { return make_max_grad(leaf, site); }},
          {"own.avg_pool", match_average, [&leaf](const Site& site) { return make_average(leaf, site); }}};
}

}  // namespace renai::cuda
