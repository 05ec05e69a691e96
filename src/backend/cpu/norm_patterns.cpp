#include "norm_patterns.hpp"

#include <algorithm>
#include <cmath>

namespace renai::cpu {
namespace {

/// Who makes a tensor; null when no node does. The twins A and B of a graph hold the same node.
const ComputeNode* maker_of(const Scope& scope, TensorId tensor) {
  const auto& writers = scope.uses().writers(tensor);
  if (writers.empty()) return nullptr;
  return &std::get<ComputeNode>(scope.graph().nodes(writers.front().id)[writers.front().index].work);
}

/// relu(batch norm(x)), pooled or not, that makes `y`, in training.
std::optional<NormRelu> maker_pattern(const Scope& scope, TensorId y) {
  NormRelu pattern;
  const ComputeNode* relu = maker_of(scope, y);
  if (is_tiling(relu, Pass::forward)) {
    pattern.pool = std::get<PoolParams>(relu->params);
    relu = maker_of(scope, relu->inputs[0]);
  }
  if (!is_relu(relu, Pass::forward)) return std::nullopt;
  const ComputeNode* norm = maker_of(scope, relu->inputs[0]);
  if (!is_op(norm, OpKind::batch_norm, Pass::forward)) return std::nullopt;
  pattern.x = norm->inputs[0];
  pattern.scale = norm->inputs[1];
  pattern.bias = norm->inputs[2];
  pattern.mean = norm->outputs[1];
  pattern.var_biased = norm->outputs[3];
  pattern.eps = std::get<BatchNormParams>(norm->params).eps;
  return pattern;
}

/// True when `y` is the relu of what the batch norm of `norm_grad` made, with nothing in between. Gradients in a row do
/// not tell: one passes a sum unchanged, and is the norm's alone where the sum's other side needs none.
bool is_relu_of(const Scope& scope, TensorId y, const ComputeNode& norm_grad) {
  const ComputeNode* relu = maker_of(scope, y);
  if (!is_relu(relu, Pass::forward)) return false;
  const ComputeNode* norm = maker_of(scope, relu->inputs[0]);
  return is_op(norm, OpKind::batch_norm, Pass::forward) && norm->layer == norm_grad.layer &&
         norm->inputs[0] == norm_grad.inputs[0];
}

/// True when no kernel but the one of the node at `index` needs `y` after the forward nodes.
bool alone_in_backward(const Scope& scope, TensorId y, std::size_t index) {
  const auto& readers = scope.uses().readers(y);
  return std::all_of(readers.begin(), readers.end(), [&](const NodePlace& place) {
    if (graph_family(place.id) == GraphFamily::inference) return false;
    const auto& node = std::get<ComputeNode>(scope.graph().nodes(place.id)[place.index].work);
    if (node.pass == Pass::forward) return true;
    if (place.index == index && node.name == scope.node(index)->name) return true;
    if (!is_relu(&node, Pass::backward) || node.inputs[0] != y || node.inputs[1] == y) return false;
    if (place.id == scope.id()) return is_relu_norm_grad(scope, place.index);
    return is_relu_norm_grad(Scope(scope.graph(), scope.uses(), place.id, scope.threads()), place.index);
  });
}

/// True when the batch norm's gradient, which may overwrite x, comes after the node at `index` in every pass.
bool comes_before_gradient(const Scope& scope, TensorId x, std::size_t index) {
  bool found = false;
  for (const NodePlace& place : scope.uses().readers(x)) {
    const auto& node = std::get<ComputeNode>(scope.graph().nodes(place.id)[place.index].work);
    if (!is_op(&node, OpKind::batch_norm, Pass::backward)) continue;
    if (!scope.ends_before(index, place)) return false;
    found = true;
  }
  return found;
}

}  // namespace

bool is_relu_norm_grad(const Scope& scope, std::size_t first) {
  const ComputeNode* relu = scope.node(first);
  const ComputeNode* norm = scope.follower(first, first + 1);
  return is_relu(relu, Pass::backward) && is_op(norm, OpKind::batch_norm, Pass::backward) &&
         norm->inputs[1] == relu->outputs[0] && scope.only_reader(relu->outputs[0], first + 1) &&
         is_relu_of(scope, relu->inputs[0], *norm);
}

bool is_tiling(const ComputeNode* node, Pass pass) {
  if (!is_op(node, OpKind::max_pool, pass)) return false;
  const auto& params = std::get<PoolParams>(node->params);
  const WindowParams& window = params.window;
  return window.kernel_h == window.stride_h && window.kernel_w == window.stride_w && window.pad_h == 0 &&
         window.pad_w == 0 && window.dilation_h == 1 && window.dilation_w == 1 && !params.ceil_mode;
}

bool is_pool_relu_norm_grad(const Scope& scope, std::size_t first) {
  const ComputeNode* pool = scope.node(first);
  const ComputeNode* relu = scope.follower(first, first + 1);
  return is_tiling(pool, Pass::backward) && relu != nullptr && scope.follower(first, first + 2) != nullptr &&
         is_relu_norm_grad(scope, first + 1) && relu->inputs[1] == pool->outputs[0] &&
         relu->inputs[0] == pool->inputs[0] && scope.only_reader(pool->outputs[0], first + 1);
}

bool fused_backward_only(const Scope& scope, TensorId y, std::size_t next, bool pooled) {
  const std::optional<std::vector<std::size_t>> readers = scope.readers_here(y);
  if (!readers) return false;
  for (const std::size_t reader : *readers) {
    if (reader == next) continue;
    const ComputeNode* node = scope.node(reader);
    const bool relu_grad = is_relu(node, Pass::backward) && node->inputs[0] == y && node->inputs[1] != y;
    const bool fused = relu_grad ? (pooled ? reader > 0 && is_pool_relu_norm_grad(scope, reader - 1)
                                           : is_relu_norm_grad(scope, reader))
                                 : pooled && is_pool_relu_norm_grad(scope, reader) && node->inputs[0] == y;
    if (!fused) return false;
  }
  return true;
}

const ComputeNode* relu_behind_norm(const Scope& scope, std::size_t first) {
  const ComputeNode* norm = scope.node(first);
  if (!is_op(norm, OpKind::batch_norm, Pass::forward)) return nullptr;
  const ComputeNode* relu = scope.follower(first, first + 1);
  const bool fits = is_relu(relu, Pass::forward) && relu->inputs[0] == norm->outputs[0] &&
                    scope.only_reader(norm->outputs[0], first + 1);
  return fits ? relu : nullptr;
}

std::optional<NormRelu> repeatable_input(const Scope& scope, std::size_t index) {
  const TensorId y = scope.node(index)->inputs[0];
  if (!is_transient(scope.graph().tensor(y).role)) return std::nullopt;
  std::optional<NormRelu> pattern = maker_pattern(scope, y);
  if (!pattern || !alone_in_backward(scope, y, index) || !comes_before_gradient(scope, pattern->x, index)) {
    return std::nullopt;
  }
  return pattern;
}

float norm_gain(float scale, float var_biased, float eps) {
  return static_cast<float>(double{scale} / std::sqrt(double{var_biased} + double{eps}));
}

Tiles tiles_of(const Shape& x, const PoolParams& params) {
  const std::int64_t kh = params.window.kernel_h, kw = params.window.kernel_w;
  return {x.h(), x.w(), x.c(), x.h() / kh, x.w() / kw, kh, kw};
}

}  // namespace renai::cpu
