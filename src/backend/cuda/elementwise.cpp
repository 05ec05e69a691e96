// Activations, sums, concatenation, views and dropout.

#include "kernels/elementwise.hpp"

#include "leaf.hpp"

namespace renai::cuda {
namespace {

Offer<Match> match_op(const Scope& scope, std::size_t first, OpKind op) {
  const ComputeNode* node = scope.node(first);
  if (node == nullptr || node->op != op) return Offer<Match>::refuse("not a " + std::string(op_kind_name(op)));
  return Match{1, node->inputs, node->outputs, {}};
}

/// The output takes over the first of the inputs at `candidates` that nobody reads later.
void alias_first(const Scope& scope, std::size_t first, Match& match, std::initializer_list<std::size_t> candidates) {
  for (const std::size_t i : candidates) {
    if (!scope.last_use(match.inputs[i], first)) continue;
    match.aliases.push_back({match.outputs[0], match.inputs[i]});
    return;
  }
}

Offer<Match> match_activation(const Scope& scope, std::size_t first) {
  Offer<Match> match = match_op(scope, first, OpKind::activation);
  if (!match.value) return match;
  if (scope.node(first)->pass == Pass::backward) alias_first(scope, first, *match.value, {1, 0});
  return match;
}

Offer<Match> match_add(const Scope& scope, std::size_t first) {
  Offer<Match> match = match_op(scope, first, OpKind::add);
  if (!match.value) return match;
  if (match.value->inputs.size() != 2) return Offer<Match>::refuse("not a sum of two");
  alias_first(scope, first, *match.value, {0, 1});
  return match;
}

Offer<Match> match_flatten(const Scope& scope, std::size_t first) {
  Offer<Match> match = match_op(scope, first, OpKind::flatten);
  if (match.value) match.value->aliases.push_back({match.value->outputs[0], match.value->inputs[0]});
  return match;
}

Offer<Kernel> make_activation(const Leaf& leaf, const Site& site) {
  const ComputeNode& node = site.node();
  const std::int64_t elems = site.shape(node.outputs[0]).elems();
  const bool backward = node.pass == Pass::backward;
  const auto params = std::get<ActivationParams>(node.params);
  Kernel kernel;
  kernel.bind = [=, dtype = leaf.dtype](const Operands& at) -> Call {
    return [=] {
      if (backward) {
        launch_activation_grad(at.inputs[0], at.inputs[1], at.outputs[0], elems, params, dtype, queue_of(at));
      } else {
        launch_activation(at.inputs[0], at.outputs[0], elems, params, dtype, queue_of(at));
      }
    };
  };
  return kernel;
}

Offer<Kernel> make_add(const Leaf& leaf, const Site& site) {
  const std::int64_t elems = site.shape(site.node().outputs[0]).elems();
  Kernel kernel;
  kernel.bind = [=, dtype = leaf.dtype](const Operands& at) -> Call {
    return [=] { launch_add(at.inputs[0], at.inputs[1], at.outputs[0], elems, dtype, queue_of(at)); };
  };
  return kernel;
}

Offer<Kernel> make_concat(const Leaf& leaf, const Site& site) {
  const ComputeNode& node = site.node();
  const bool split = node.pass == Pass::backward;
  const Shape& joined = site.shape(split ? node.inputs[0] : node.outputs[0]);
  const std::vector<TensorId>& parts = split ? node.outputs : node.inputs;
  std::vector<ColumnCopy> copies;
  std::int64_t column = 0;
  for (const TensorId part : parts) {
    const std::int64_t c = site.shape(part).c();
    ColumnCopy copy;
    copy.rows = joined.elems() / joined.c();
    copy.columns = c;
    copy.dtype = leaf.dtype;
    (split ? copy.from_pitch : copy.to_pitch) = joined.c();
    (split ? copy.from_column : copy.to_column) = column;
    (split ? copy.to_pitch : copy.from_pitch) = c;
    copies.push_back(copy);
    column += c;
  }
  Kernel kernel;
  kernel.bind = [copies, split](const Operands& at) -> Call {
    std::vector<ColumnCopy> bound = copies;
    for (std::size_t i = 0; i < bound.size(); ++i) {
      bound[i].from = at.inputs[split ? 0 : i];
      bound[i].to = at.outputs[split ? i : 0];
    }
    return [bound = std::move(bound), queue = queue_of(at)] {
      for (const ColumnCopy& copy : bound) launch(copy, queue);
    };
  };
  return kernel;
}

Offer<Kernel> make_dropout(const Leaf& leaf, const Site& site) {
  const std::int64_t elems = site.shape(site.node().outputs[0]).elems();
  const auto params = std::get<DropoutParams>(site.node().params);
  Kernel kernel;
  kernel.bind = [=, dtype = leaf.dtype](const Operands& at) -> Call {
    const auto* control = reinterpret_cast<const ControlBlock*>(at.inputs[1]);
    return [=] { launch_dropout(at.inputs[0], at.outputs[0], elems, params, control, dtype, queue_of(at)); };
  };
  return kernel;
}

Offer<Kernel> make_view(const Site&) {
  Kernel kernel;
  kernel.bind = [](const Operands&) -> Call { return {}; };
  return kernel;
}

}  // namespace

std::vector<Implementation> elementwise_implementations(const Leaf& leaf) {
  const auto match = [](OpKind op) {
    return [op](const Scope& scope, std::size_t first) { return match_op(scope, first, op); };
  };
  return {{"own.activation", match_activation, [&leaf](const Site& site) { return make_activation(leaf, site); }},
          {"own.add", match_add, [&leaf](const Site& site) { return make_add(leaf, site); }},
          {"own.concat", match(OpKind::concat), [&leaf](const Site& site) { return make_concat(leaf, site); }},
          {"own.dropout", match(OpKind::dropout), [&leaf](const Site& site) { return make_dropout(leaf, site); }},
          {"view", match_flatten, make_view}};
}

}  // namespace renai::cuda
