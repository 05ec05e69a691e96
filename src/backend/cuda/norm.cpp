// Batch norm with the sum and the relu around it, forward, backward and for inference.

#include "kernels/norm.hpp"

#include "../sync_norm.hpp"
#include "leaf.hpp"

namespace renai::cuda {
namespace {

// ---- patterns -------------------------------------------------------------------------------------------------------

/// Two-sided sum behind the node at `first` whose output is `y` and which alone reads it; null otherwise.
const ComputeNode* sum_behind(const Scope& scope, std::size_t first, std::size_t index, TensorId y) {
  const ComputeNode* add = scope.follower(first, index);
  if (!is_op(add, OpKind::add, Pass::forward) || add->inputs.size() != 2) return nullptr;
  if ((add->inputs[0] == y) == (add->inputs[1] == y) || !scope.only_reader(y, index)) return nullptr;
  return add;
}

/// relu(bn(x) + other) at `first`, forward or inference.
bool is_norm_add_relu(const Scope& scope, std::size_t first, Pass pass) {
  const ComputeNode* norm = scope.node(first);
  if (!is_op(norm, OpKind::batch_norm, pass)) return false;
  const ComputeNode* add = sum_behind(scope, first, first + 1, norm->outputs[0]);
  const ComputeNode* relu = scope.follower(first, first + 2);
  return add != nullptr && is_relu(relu, Pass::forward) && relu->inputs[0] == add->outputs[0] &&
         scope.only_reader(add->outputs[0], first + 2);
}

/// relu(bn(x)) at `first`.
bool is_norm_relu(const Scope& scope, std::size_t first, Pass pass) {
  const ComputeNode* norm = scope.node(first);
  const ComputeNode* relu = scope.follower(first, first + 1);
  return is_op(norm, OpKind::batch_norm, pass) && is_relu(relu, Pass::forward) && relu->inputs[0] == norm->outputs[0] &&
         scope.only_reader(norm->outputs[0], first + 1);
}

/// Gradients of relu and batch norm in a row, at `first`.
bool is_relu_norm_grad(const Scope& scope, std::size_t first) {
  const ComputeNode* relu = scope.node(first);
  const ComputeNode* norm = scope.follower(first, first + 1);
  return is_relu(relu, Pass::backward) && is_op(norm, OpKind::batch_norm, Pass::backward) &&
         norm->inputs[1] == relu->outputs[0];
}

/// The forward kernel that made the relu's output y, seen from the gradients: add_relu where a norm_add_relu of the
/// same layer did it (its mask is kept), relu where the norm fed the relu directly, none where neither.
NormTail forward_tail(const Scope& scope, TensorId y, const ComputeNode& norm_grad) {
  const auto& writers = scope.uses().writers(y);
  if (writers.size() != 1 || writers[0].id != scope.id()) return NormTail::none;
  const std::size_t relu = writers[0].index;
  const auto same_layer = [&](std::size_t index) {
    const ComputeNode* norm = scope.node(index);
    return norm->layer == norm_grad.layer && norm->inputs[0] == norm_grad.inputs[0];
  };
  if (relu >= 2 && is_norm_add_relu(scope, relu - 2, Pass::forward) && same_layer(relu - 2)) return NormTail::add_relu;
  if (relu >= 1 && is_norm_relu(scope, relu - 1, Pass::forward) && same_layer(relu - 1)) return NormTail::relu;
  return NormTail::none;
}

// ---- forward --------------------------------------------------------------------------------------------------------

/// Outputs of all forward matches: y mean var_unbiased var_biased [mask].
Match forward_match(const Scope& scope, std::size_t first, std::size_t count, TensorId y) {
  const ComputeNode& norm = *scope.node(first);
  return Match{count, norm.inputs, {y, norm.outputs[1], norm.outputs[2], norm.outputs[3]}, {}};
}

TensorId other_side(const ComputeNode& add, TensorId y) { return add.inputs[add.inputs[0] == y ? 1 : 0]; }

/// Inputs: x scale bias other.
Offer<Match> match_add_relu(const Scope& scope, std::size_t first) {
  if (!is_norm_add_relu(scope, first, Pass::forward)) return Offer<Match>::refuse("not a batch norm, sum and relu");
  const ComputeNode& norm = *scope.node(first);
  Match match = forward_match(scope, first, 3, scope.node(first + 2)->outputs[0]);
  match.inputs.push_back(other_side(*scope.node(first + 1), norm.outputs[0]));
  if (scope.uses().has_gradient(norm, norm.inputs[0])) match.outputs.push_back(saved_by(norm.layer));
  return match;
}

Offer<Match> match_relu(const Scope& scope, std::size_t first) {
  if (!is_norm_relu(scope, first, Pass::forward)) return Offer<Match>::refuse("not a batch norm and relu");
  return forward_match(scope, first, 2, scope.node(first + 1)->outputs[0]);
}

/// Inputs: x scale bias other.
Offer<Match> match_relu_add(const Scope& scope, std::size_t first) {
  if (!is_norm_relu(scope, first, Pass::forward)) return Offer<Match>::refuse("not a batch norm and relu");
  const TensorId y = scope.node(first + 1)->outputs[0];
  const ComputeNode* add = scope.follower(first, first + 2);
  if (!is_op(add, OpKind::add, Pass::forward) || add->inputs.size() != 2 ||
      (add->inputs[0] == y) == (add->inputs[1] == y)) {
    return Offer<Match>::refuse("no sum follows");
  }
  // The relu's output is not stored: only its own gradient, which finds the sign again, may read it besides the sum.
  const std::optional<std::vector<std::size_t>> readers = scope.readers_here(y);
  if (!readers) return Offer<Match>::refuse("others read the relu's output");
  for (const std::size_t reader : *readers) {
    if (reader == first + 2) continue;
    if (!is_relu_norm_grad(scope, reader) || scope.node(reader)->inputs[0] != y ||
        !scope.only_reader(scope.node(reader)->outputs[0], reader + 1)) {
      return Offer<Match>::refuse("others read the relu's output");
    }
  }
  Match match = forward_match(scope, first, 3, add->outputs[0]);
  match.inputs.push_back(other_side(*add, y));
  return match;
}

Offer<Match> match_plain(const Scope& scope, std::size_t first) {
  if (!is_op(scope.node(first), OpKind::batch_norm, Pass::forward)) return Offer<Match>::refuse("not a batch norm");
  return forward_match(scope, first, 1, scope.node(first)->outputs[0]);
}

/// Where the blocks of all shards lie in the workspace of a batch norm over several: behind everything else.
std::int64_t shards_offset(std::int64_t rows, std::int64_t c) { return align_slot(norm_workspace_bytes(rows, c)); }

std::int64_t workspace_bytes(std::int64_t rows, std::int64_t c, int shards) {
  return shards == 1 ? norm_workspace_bytes(rows, c) : shards_offset(rows, c) + shards * sync_norm::block_bytes(c);
}

/// One shard: one launch. Several: what this rank knows, an exchange on the same stream, and the rest. (Warming up, no
/// other rank is there, and its blocks are what the memory holds.)
template <typename Norm>
Call make_call(const Operands& at, Norm norm, int shards, const std::string& node) {
  if (shards == 1) return [norm, queue = queue_of(at)] { launch(norm, queue); };
  const sync_norm::Blocks blocks =
      sync_norm::make_blocks(*at.context, at.workspace + shards_offset(norm.rows, norm.c), norm.c, shards);
  norm.shards = {blocks.data, blocks.shards, blocks.own};
  return [norm, blocks, node, context = at.context, stream = at.stream, queue = queue_of(at)] {
    launch_own_sums(norm, queue);
    if (stream != nullptr) sync_norm::gather(*context, blocks, *stream, node);
    launch_shared(norm, queue);
  };
}

Offer<Kernel> make_forward(const Leaf& leaf, const Site& site, NormTail tail) {
  const ComputeNode& node = site.node();
  const Shape& x = site.shape(node.inputs[0]);
  NormForward norm;
  norm.c = x.c();
  norm.rows = x.elems() / x.c();
  norm.eps = std::get<BatchNormParams>(node.params).eps;
  norm.tail = tail;
  norm.dtype = leaf.dtype;
  const bool masks = site.match->outputs.size() > 4;
  Kernel kernel;
  const int shards = std::get<BatchNormParams>(node.params).sync_shards;
  kernel.workspace_bytes = workspace_bytes(norm.rows, norm.c, shards);
  if (masks) kernel.saved_bytes = norm_mask_bytes(norm.rows, norm.c);
  kernel.bind = [norm, masks, shards, &node](const Operands& at) -> Call {
    NormForward bound = norm;
    bound.x = at.inputs[0];
    bound.scale = at.in(1);
    bound.bias = at.in(2);
    if (at.inputs.size() > 3) bound.other = at.inputs[3];
    bound.y = at.outputs[0];
    bound.mean = at.out(1);
    bound.var_unbiased = at.out(2);
    bound.var_biased = at.out(3);
    if (masks) bound.mask = reinterpret_cast<std::uint32_t*>(at.outputs[4]);
    bound.workspace = at.workspace;
    return make_call(at, bound, shards, node.name);
  };
  return kernel;
}

// ---- inference ------------------------------------------------------------------------------------------------------

Offer<Match> match_folded(const Scope& scope, std::size_t first, NormTail tail) {
  const ComputeNode* norm = scope.node(first);
  if (!is_op(norm, OpKind::batch_norm, Pass::inference)) return Offer<Match>::refuse("not an inference batch norm");
  Match match{1, norm->inputs, {norm->outputs[0]}, {}};
  if (tail == NormTail::add_relu) {
    if (!is_norm_add_relu(scope, first, Pass::inference)) return Offer<Match>::refuse("no sum and relu follow");
    match.node_count = 3;
    match.inputs.push_back(other_side(*scope.node(first + 1), norm->outputs[0]));
    match.outputs = {scope.node(first + 2)->outputs[0]};
  } else if (tail == NormTail::relu) {
    if (!is_norm_relu(scope, first, Pass::inference)) return Offer<Match>::refuse("no relu follows");
    match.node_count = 2;
    match.outputs = {scope.node(first + 1)->outputs[0]};
  }
  return match;
}

Offer<Kernel> make_folded(const Leaf& leaf, const Site& site, NormTail tail) {
  const Shape& x = site.shape(site.node().inputs[0]);
  NormFolded norm;
  norm.c = x.c();
  norm.rows = x.elems() / x.c();
  norm.tail = tail;
  norm.dtype = leaf.dtype;
  Kernel kernel;
  kernel.bind = [norm](const Operands& at) -> Call {
    NormFolded bound = norm;
    bound.x = at.inputs[0];
    bound.scale = at.in(1);
    bound.bias = at.in(2);
    if (at.inputs.size() > 3) bound.other = at.inputs[3];
    bound.y = at.outputs[0];
    return [bound, queue = queue_of(at)] { launch(bound, queue); };
  };
  return kernel;
}

// ---- backward -------------------------------------------------------------------------------------------------------

// Inputs of all backward matches: x dy scale mean var_biased, then by kind [bias] or [mask], then [dy2].
// Outputs: dx dscale dbias, then [dz].

TensorId bias_of(const Scope& scope, TensorId scale) {
  const std::int32_t param = scope.graph().tensor(scale).param;
  for (const NormInfo& info : scope.graph().norms()) {
    if (info.scale_param != param) continue;
    return scope.graph().params()[static_cast<std::size_t>(info.bias_param)].weight;
  }
  return kNoTensor;
}

Offer<Match> match_grad(const Scope& scope, std::size_t first) {
  const ComputeNode* norm = scope.node(first);
  if (!is_op(norm, OpKind::batch_norm, Pass::backward)) return Offer<Match>::refuse("not a batch norm's gradient");
  Match match{1, norm->inputs, norm->outputs, {}};
  if (scope.last_use(norm->inputs[0], first)) match.aliases.push_back({norm->outputs[0], norm->inputs[0]});
  return match;
}

/// Gradients of relu and batch norm, nobody else reading what lies between.
Offer<Match> match_relu_grad(const Scope& scope, std::size_t first) {
  if (!is_relu_norm_grad(scope, first)) return Offer<Match>::refuse("not the gradients of relu and batch norm");
  const ComputeNode& relu = *scope.node(first);
  const ComputeNode& norm = *scope.node(first + 1);
  if (!scope.only_reader(relu.outputs[0], first + 1) || forward_tail(scope, relu.inputs[0], norm) != NormTail::relu) {
    return Offer<Match>::refuse("the relu does not follow the batch norm alone");
  }
  const TensorId bias = bias_of(scope, norm.inputs[2]);
  if (bias == kNoTensor) return Offer<Match>::refuse("the batch norm's bias is unknown");
  Match match{2, norm.inputs, norm.outputs, {}};
  match.inputs[1] = relu.inputs[1];
  match.inputs.push_back(bias);
  if (scope.last_use(norm.inputs[0], first + 1)) match.aliases.push_back({norm.outputs[0], norm.inputs[0]});
  return match;
}

/// Gradients of [a sum of two gradients,] relu, sum and batch norm: the masked gradient is kept for the sum's other
/// side.
Offer<Match> match_add_relu_grad(const Scope& scope, std::size_t first, bool summed) {
  const std::size_t at = first + (summed ? 1 : 0);
  const ComputeNode* add = scope.node(first);
  if (summed && (!is_op(add, OpKind::add, Pass::forward) || add->inputs.size() != 2 ||
                 scope.follower(first, first + 1) == nullptr || scope.follower(first, first + 2) == nullptr)) {
    return Offer<Match>::refuse("not a sum of gradients");
  }
  if (!is_relu_norm_grad(scope, at)) return Offer<Match>::refuse("not the gradients of relu and batch norm");
  const ComputeNode& relu = *scope.node(at);
  const ComputeNode& norm = *scope.node(at + 1);
  if (summed && (relu.inputs[1] != add->outputs[0] || !scope.only_reader(add->outputs[0], at))) {
    return Offer<Match>::refuse("the sum is not the relu's alone");
  }
  if (forward_tail(scope, relu.inputs[0], norm) != NormTail::add_relu) {
    return Offer<Match>::refuse("no mask was kept of the relu");
  }
  Match match{summed ? 3u : 2u, norm.inputs, norm.outputs, {}};
  match.inputs[1] = summed ? add->inputs[0] : relu.inputs[1];
  match.inputs.push_back(saved_by(norm.layer));
  if (summed) match.inputs.push_back(add->inputs[1]);
  match.outputs.push_back(relu.outputs[0]);
  // Element by element: dx takes over x, the masked gradient one of its summands.
  if (scope.last_use(norm.inputs[0], at + 1)) match.aliases.push_back({norm.outputs[0], norm.inputs[0]});
  if (scope.last_use(match.inputs[1], at + 1)) {
    match.aliases.push_back({relu.outputs[0], match.inputs[1]});
  } else if (summed && scope.last_use(add->inputs[1], at + 1)) {
    match.aliases.push_back({relu.outputs[0], add->inputs[1]});
  }
  return match;
}

Offer<Kernel> make_backward(const Leaf& leaf, const Site& site, NormTail tail) {
  const ComputeNode& node = site.node(site.match->node_count - 1);
  const Shape& x = site.shape(node.inputs[0]);
  NormBackward norm;
  norm.c = x.c();
  norm.rows = x.elems() / x.c();
  norm.eps = std::get<BatchNormParams>(node.params).eps;
  norm.tail = tail;
  norm.dtype = leaf.dtype;
  Kernel kernel;
  const int shards = std::get<BatchNormParams>(node.params).sync_shards;
  kernel.workspace_bytes = workspace_bytes(norm.rows, norm.c, shards);
  if (tail == NormTail::add_relu) kernel.saved_bytes = norm_mask_bytes(norm.rows, norm.c);
  kernel.bind = [norm, shards, &node](const Operands& at) -> Call {
    NormBackward bound = norm;
    bound.x = at.inputs[0];
    bound.dy = at.inputs[1];
    bound.scale = at.in(2);
    bound.mean = at.in(3);
    bound.var_biased = at.in(4);
    if (norm.tail == NormTail::relu) bound.bias = at.in(5);
    if (norm.tail == NormTail::add_relu) {
      bound.mask = reinterpret_cast<const std::uint32_t*>(at.inputs[5]);
      if (at.inputs.size() > 6) bound.dy2 = at.inputs[6];
      bound.dz = at.outputs[3];
    }
    bound.dx = at.outputs[0];
    bound.dscale = at.out(1);
    bound.dbias = at.out(2);
    bound.workspace = at.workspace;
    return make_call(at, bound, shards, node.name);
  };
  return kernel;
}

}  // namespace

std::vector<Implementation> norm_implementations(const Leaf& leaf) {
  const auto forward = [&leaf](NormTail tail) {
    return [&leaf, tail](const Site& site) { return make_forward(leaf, site, tail); };
  };
  const auto folded = [&leaf](std::string_view name, NormTail tail) {
    return Implementation{name,
                          [tail](const Scope& scope, std::size_t first) { return match_folded(scope, first, tail); },
                          [&leaf, tail](const Site& site) { return make_folded(leaf, site, tail); }};
  };
  const auto backward = [&leaf](NormTail tail) {
    return [&leaf, tail](const Site& site) { return make_backward(leaf, site, tail); };
  };
  const auto masked = [](bool summed) {
    return [summed](const Scope& scope, std::size_t first) { return match_add_relu_grad(scope, first, summed); };
  };
  return {{"own.norm_add_relu", match_add_relu, forward(NormTail::add_relu)},
          {"own.norm_relu_add", match_relu_add, forward(NormTail::relu_add)},
          {"own.norm_relu", match_relu, forward(NormTail::relu)},
          {"own.norm", match_plain, forward(NormTail::none)},
          folded("own.norm_folded_add_relu", NormTail::add_relu),
          folded("own.norm_folded_relu", NormTail::relu),
          folded("own.norm_folded", NormTail::none),
          {"own.sum_relu_norm_grad", masked(true), backward(NormTail::add_relu)},
          {"own.add_relu_norm_grad", masked(false), backward(NormTail::add_relu)},
          {"own.relu_norm_grad", match_relu_grad, backward(NormTail::relu)},
          {"own.norm_grad", match_grad, backward(NormTail::none)}};
}

}  // namespace renai::cuda
