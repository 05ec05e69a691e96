// Where a step begins and ends: the slot's contents, the input, the loss.

#include "kernels/input.hpp"
#include "kernels/loss.hpp"
#include "leaf.hpp"
#include "renai/base/check.hpp"
#include "renai/graph/region_name.hpp"

namespace renai::cuda {
namespace {

Offer<Match> match_op(const Scope& scope, std::size_t first, OpKind op) {
  const ComputeNode* node = scope.node(first);
  if (node == nullptr || node->op != op) return Offer<Match>::refuse("not a " + std::string(op_kind_name(op)));
  return Match{1, node->inputs, node->outputs, {}};
}

Offer<Kernel> make_unpack(const Site& site) {
  const std::int64_t rows = site.shape(site.node().outputs[0]).elems();
  Kernel kernel;
  kernel.bind = [rows](const Operands& at) -> Call {
    UnpackSlot unpack;
    unpack.slot = at.inputs[0];
    unpack.layout = at.context->plan->slot;
    unpack.rows = rows;
    unpack.labels = reinterpret_cast<std::int32_t*>(at.outputs[0]);
    unpack.mix_labels = reinterpret_cast<std::int32_t*>(at.outputs[1]);
    unpack.mix_lambda = at.out(2);
    unpack.sample_weights = at.out(3);
    unpack.control = at.outputs[4];
    return [unpack, queue = queue_of(at)] { launch(unpack, queue); };
  };
  return kernel;
}

Offer<Kernel> make_normalize(const Leaf& leaf, const Site& site) {
  const ComputeNode& node = site.node();
  const Shape& x = site.shape(node.outputs[0]);
  if (x.c() > 4) return Offer<Kernel>::refuse("more than four channels");
  Kernel kernel;
  const std::int64_t stored = stored_channels(leaf, site.scope->graph(), site.scope->uses(), node.outputs[0], x.c());
  kernel.bind = [&node, x, stored, dtype = leaf.dtype](const Operands& at) -> Call {
    NormalizeInput input;
    input.slot = at.inputs[0];
    input.layout = at.context->plan->slot;
    input.params = std::get<InputParams>(node.params);
    input.x = at.outputs[0];
    input.rows = x.n();
    input.h = x.h();
    input.w = x.w();
    input.c = x.c();
    input.stored_c = stored;
    input.dtype = dtype;
    RENAI_CHECK(x.n() <= input.layout.rows && x.c() == input.layout.c, "the network's input fits its slot");
    return [input, queue = queue_of(at)] { launch(input, queue); };
  };
  return kernel;
}

/// Loss and its gradient in a row: one pass over the logits.
Offer<Match> match_both(const Scope& scope, std::size_t first) {
  const ComputeNode* loss = scope.node(first);
  const ComputeNode* grad = scope.follower(first, first + 1);
  if (!is_op(loss, OpKind::softmax_cross_entropy, Pass::forward) ||
      !is_op(grad, OpKind::softmax_cross_entropy, Pass::backward) || grad->inputs != loss->inputs) {
    return Offer<Match>::refuse("not a loss with its gradient behind it");
  }
  return Match{2, loss->inputs, {loss->outputs[0], grad->outputs[0]}, {}};
}

Offer<Kernel> make_loss(const Leaf& leaf, const Site& site) {
  const ComputeNode& node = site.node();
  const Shape& logits = site.shape(node.inputs[0]);
  const bool both = site.match->node_count == 2, backward = node.pass == Pass::backward;
  SoftmaxCrossEntropy loss;
  loss.rows = logits.n();
  loss.classes = logits.elems() / logits.n();
  loss.smoothing = std::get<LossParams>(node.params).label_smoothing;
  loss.dtype = leaf.dtype;
  Kernel kernel;
  kernel.workspace_bytes = backward ? 0 : loss_workspace_bytes(loss.rows);
  kernel.bind = [loss, both, backward](const Operands& at) -> Call {
    SoftmaxCrossEntropy bound = loss;
    bound.logits = at.inputs[0];
    bound.labels = reinterpret_cast<const std::int32_t*>(at.inputs[1]);
    bound.mix_labels = reinterpret_cast<const std::int32_t*>(at.inputs[2]);
    bound.mix_lambda = at.in(3);
    bound.weights = at.in(4);
    if (!backward) bound.metrics = at.out(0);
    if (both || backward) {
      bound.dlogits = at.outputs[both ? 1 : 0];
      const BindContext& context = *at.context;
      if (context.graph->options().dynamic_loss_scale) {
        const auto* scalars = reinterpret_cast<const float*>(context.at(context.plan->region(region_name::kScalars)));
        bound.loss_scale = scalars + region_name::kScalarLossScale;
      }
      const TensorId control = context.graph->parts().control;
      if (control != kNoTensor && context.plan->tensor(control).placed()) {
        bound.control = reinterpret_cast<const ControlBlock*>(context.at(context.plan->tensor(control)));
      }
    }
    bound.workspace = at.workspace;
    return [bound, queue = queue_of(at)] { launch(bound, queue); };
  };
  return kernel;
}

}  // namespace

std::vector<Implementation> edge_implementations(const Leaf& leaf) {
  const auto match = [](OpKind op) {
    return [op](const Scope& scope, std::size_t first) { return match_op(scope, first, op); };
  };
  const auto loss = [&leaf](const Site& site) { return make_loss(leaf, site); };
  return {{"own.unpack_slot", match(OpKind::unpack_slot), make_unpack},
          {"own.normalize_input", match(OpKind::normalize_input),
           [&leaf](const Site& site) { return make_normalize(leaf, site); }},
          {"own.softmax_cross_entropy_both", match_both, loss},
          {"own.softmax_cross_entropy", match(OpKind::softmax_cross_entropy), loss}};
}

}  // namespace renai::cuda
