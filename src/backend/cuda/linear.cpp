// Linear layers, with the relu behind them in the product's epilogue.

#include "kernels/elementwise.hpp"
#include "leaf.hpp"

namespace renai::cuda {
namespace {

Offer<Match> match_pass(const Scope& scope, std::size_t first, Pass pass) {
  const ComputeNode* node = scope.node(first);
  if (!is_op(node, OpKind::linear, pass)) return Offer<Match>::refuse("not this pass of a linear layer");
  return Match{1, node->inputs, node->outputs, {}};
}

Offer<Match> match_relu(const Scope& scope, std::size_t first) {
  const ComputeNode* node = scope.node(first);
  const ComputeNode* relu = scope.follower(first, first + 1);
  if (!is_op(node, OpKind::linear, Pass::forward) || !is_relu(relu, Pass::forward) ||
      relu->inputs[0] != node->outputs[0] || !scope.only_reader(node->outputs[0], first + 1)) {
    return Offer<Match>::refuse("not a linear layer with a relu alone behind it");
  }
  return Match{2, node->inputs, relu->outputs, {}};
}

LinearProblem make_problem(const Leaf& leaf, LinearPass pass, const Shape& x, const Shape& y) {
  LinearProblem problem;
  problem.pass = pass;
  problem.n = x.n();
  problem.c = x.elems() / x.n();
  problem.k = y.elems() / y.n();
  problem.dtype = leaf.dtype;
  return problem;
}

Offer<Kernel> make_forward(const Leaf& leaf, const Site& site) {
  const ComputeNode& node = site.node();
  LinearProblem problem =
      make_problem(leaf, LinearPass::forward, site.shape(node.inputs[0]), site.shape(node.outputs[0]));
  problem.bias = node.inputs.size() > 2;
  problem.relu = site.match->node_count == 2;
  const std::shared_ptr<LinearPlan> plan = leaf.products->plan(problem);
  Kernel kernel;
  kernel.detail = plan->name();
  kernel.workspace_bytes = plan->workspace_bytes();
  kernel.bind = [plan, &leaf, bias = problem.bias](const Operands& at) -> Call {
    const void* weights = matrix_operand(leaf, at, 1);
    const void* biases = bias ? matrix_operand(leaf, at, 2) : nullptr;
    return [plan, at, weights, biases] {
      plan->execute(at.queue, at.inputs[0], weights, biases, at.outputs[0], at.workspace);
    };
  };
  return kernel;
}

Offer<Kernel> make_data(const Leaf& leaf, const Site& site) {
  const ComputeNode& node = site.node();
  const std::shared_ptr<LinearPlan> plan = leaf.products->plan(
      make_problem(leaf, LinearPass::data, site.shape(node.outputs[0]), site.shape(node.inputs[0])));
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

Offer<Kernel> make_weights(const Leaf& leaf, const Site& site) {
  const ComputeNode& node = site.node();
  const Shape& y = site.shape(node.inputs[1]);
  const std::shared_ptr<LinearPlan> plan =
      leaf.products->plan(make_problem(leaf, LinearPass::weights, site.shape(node.inputs[0]), y));
  const std::int64_t rows = y.n(), k = y.elems() / rows;
  const bool bias = node.outputs.size() > 1;
  WorkspaceLayout layout;
  const std::int64_t plan_at = layout.add(plan->workspace_bytes());
  const std::int64_t sums_at = bias ? layout.add(column_sums_workspace_bytes(rows, k)) : 0;
  Kernel kernel;
  kernel.detail = plan->name();
  kernel.workspace_bytes = layout.size_bytes();
  kernel.bind = [=, &leaf](const Operands& at) -> Call {
    return [=, &leaf] {
      plan->execute(at.queue, at.inputs[0], at.inputs[1], nullptr, at.outputs[0], at.workspace + plan_at);
      if (!bias) return;
      launch_column_sums(at.inputs[1], at.out(1), rows, k, at.workspace + sums_at, leaf.dtype, queue_of(at));
    };
  };
  return kernel;
}

}  // namespace

std::vector<Implementation> linear_implementations(const Leaf& leaf) {
  const auto match = [](Pass pass) {
    return [pass](const Scope& scope, std::size_t first) { return match_pass(scope, first, pass); };
  };
  const auto forward = [&leaf](const Site& site) { return make_forward(leaf, site); };
  return {
      {"cublaslt.linear_relu", match_relu, forward},
      {"cublaslt.linear", match(Pass::forward), forward},
      {"cublaslt.linear_data", match(Pass::backward_data), [&leaf](const Site& site) { return make_data(leaf, site); }},
      {"cublaslt.linear_weights", match(Pass::backward_weights),
       [&leaf](const Site& site) { return make_weights(leaf, site); }}};
}

}  // namespace renai::cuda
