// Reverse-mode differentiation.

#include "lowering.hpp"
#include "naming.hpp"
#include "renai/base/check.hpp"

namespace renai::graph_detail {
namespace {

bool has_params(const ComputeNode& node) {
  return node.op == OpKind::conv2d || node.op == OpKind::linear || node.op == OpKind::batch_norm;
}

/// How many of a forward node's inputs are activations: all of add's and concat's, one otherwise.
std::size_t activation_count(const ComputeNode& node) {
  return node.op == OpKind::add || node.op == OpKind::concat ? node.inputs.size() : 1;
}

class Reverse {
 public:
  Reverse(ComputationGraph::Parts& parts, const ForwardWalk& forward) : parts_(parts), forward_(forward) {}

  ReverseWalk run() {
    find_needed();
    out_ = &walk_.deep;
    const ComputeNode& loss = forward_.loss;
    emit("output.loss", loss, Pass::backward, loss.inputs, {new_gradient(parts_.logits)});
    contribute(parts_.logits, walk_.deep.back().outputs[0]);
    for (std::size_t i = forward_.nodes.size(); i-- > 0;) {
      out_ = i < forward_.first_count ? &walk_.first : &walk_.deep;
      differentiate(forward_.nodes[i]);
    }
    return std::move(walk_);
  }

 private:
  /// State of a tensor's gradient: the sum so far and how many terms it has.
  struct Gradient {
    TensorId sum = kNoTensor;
    int terms = 0;
    int tensors = 0;  ///< Gradient tensors made for it, for their names.
  };

  /// A tensor needs a gradient when a parameter stands before it.
  void find_needed() {
    needed_.assign(parts_.tensors.size(), false);
    gradients_.assign(parts_.tensors.size(), Gradient{});
    for (const ComputeNode& node : forward_.nodes) {
      bool needed = has_params(node);
      for (std::size_t i = 0; i < activation_count(node); ++i) needed = needed || needs(node.inputs[i]);
      needed_[static_cast<std::size_t>(node.outputs[0])] = needed;
    }
  }

  bool needs(TensorId tensor) const { return needed_[static_cast<std::size_t>(tensor)]; }

  void emit(const std::string& stem, const ComputeNode& forward, Pass pass, std::vector<TensorId> inputs,
            std::vector<TensorId> outputs) {
    out_->push_back({node_name(stem, pass), forward.op, pass, forward.params, std::move(inputs), std::move(outputs),
                     forward.layer});
  }

  TensorId new_gradient(TensorId of) {
    Gradient& gradient = gradients_[static_cast<std::size_t>(of)];
    std::string name = parts_.tensors[static_cast<std::size_t>(of)].name + ".grad";
    if (gradient.tensors > 0) name += "." + std::to_string(gradient.tensors);
    ++gradient.tensors;
    return add_tensor(parts_, {std::move(name), TensorRole::activation_grad, -1, -1});
  }

  /// Adds `term` to the gradient of `of`: sum = sum + term, in the order of the calls.
  void contribute(TensorId of, TensorId term) {
    if (!needs(of)) return;
    Gradient& gradient = gradients_[static_cast<std::size_t>(of)];
    ++gradient.terms;
    if (gradient.terms == 1) {
      gradient.sum = term;
      return;
    }
    const std::string stem =
        parts_.tensors[static_cast<std::size_t>(of)].name + ".grad.sum" + std::to_string(gradient.terms - 1);
    const TensorId sum = add_tensor(parts_, {stem, TensorRole::activation_grad, -1, -1});
    out_->push_back(
        {node_name(stem, Pass::forward), OpKind::add, Pass::forward, NoParams{}, {gradient.sum, term}, {sum}, -1});
    gradient.sum = sum;
  }

  std::vector<TensorId> param_gradients(const ComputeNode& node) const {
    std::vector<TensorId> gradients;
    for (const TensorId input : node.inputs) {
      const TensorInfo& info = parts_.tensors[static_cast<std::size_t>(input)];
      if (info.role == TensorRole::weight)
        gradients.push_back(parts_.params[static_cast<std::size_t>(info.param)].grad);
    }
    return gradients;
  }

  /// Emits the backward nodes of one forward node and hands gradients to its inputs.
  void differentiate(const ComputeNode& node) {
    if (!needs(node.outputs[0])) return;
    const TensorId dy = gradients_[static_cast<std::size_t>(node.outputs[0])].sum;
    RENAI_CHECK(dy != kNoTensor, "'" + node.name + "' does not reach the loss");
    const std::string stem = parts_.tensors[static_cast<std::size_t>(node.outputs[0])].name;
    const TensorId x = node.inputs[0];
    switch (node.op) {
      case OpKind::conv2d:
      case OpKind::linear:
        // The weight gradient comes first: it completes the bucket earlier and lets go of x.
        emit(stem, node, Pass::backward_weights, {x, dy}, param_gradients(node));
        if (needs(x)) emit_data_gradient(stem, node, Pass::backward_data, {dy, node.inputs[1]});
        return;
      case OpKind::batch_norm: differentiate_batch_norm(stem, node, dy); return;
      case OpKind::activation: {
        const bool reads_output = backward_reads_output(std::get<ActivationParams>(node.params).kind);
        emit_data_gradient(stem, node, Pass::backward, {reads_output ? node.outputs[0] : x, dy});
        return;
      }
      case OpKind::max_pool: emit_data_gradient(stem, node, Pass::backward, {x, dy}); return;
      case OpKind::avg_pool:
      case OpKind::global_avg_pool:
      case OpKind::adaptive_avg_pool:
      case OpKind::flatten: emit_data_gradient(stem, node, Pass::backward, {dy}); return;
      case OpKind::dropout: emit_data_gradient(stem, node, Pass::backward, {dy, parts_.control}); return;
      case OpKind::add:
        for (const TensorId input : node.inputs) contribute(input, dy);
        return;
      case OpKind::concat: differentiate_concat(stem, node, dy); return;
      case OpKind::unpack_slot:
      case OpKind::normalize_input:
      case OpKind::softmax_cross_entropy: break;
    }
    throw InternalError("'" + node.name + "' has no gradient", std::string(op_kind_name(node.op)));
  }

  void emit_data_gradient(const std::string& stem, const ComputeNode& node, Pass pass, std::vector<TensorId> inputs) {
    const TensorId dx = new_gradient(node.inputs[0]);
    emit(stem, node, pass, std::move(inputs), {dx});
    contribute(node.inputs[0], dx);
  }

  /// Outputs stand by position, so dx exists even where nobody reads it (batch norm of the network's input).
  void differentiate_batch_norm(const std::string& stem, const ComputeNode& node, TensorId dy) {
    const TensorId dx = new_gradient(node.inputs[0]);
    std::vector<TensorId> outputs = param_gradients(node);
    outputs.insert(outputs.begin(), dx);
    emit(stem, node, Pass::backward, {node.inputs[0], dy, node.inputs[1], node.outputs[1], node.outputs[3]},
         std::move(outputs));
    contribute(node.inputs[0], dx);
  }

  void differentiate_concat(const std::string& stem, const ComputeNode& node, TensorId dy) {
    std::vector<TensorId> outputs;
    for (const TensorId input : node.inputs) outputs.push_back(new_gradient(input));
    emit(stem, node, Pass::backward, {dy}, outputs);
    for (std::size_t i = 0; i < outputs.size(); ++i) contribute(node.inputs[i], outputs[i]);
  }

  ComputationGraph::Parts& parts_;
  const ForwardWalk& forward_;
  ReverseWalk walk_;
  std::vector<ComputeNode>* out_ = nullptr;
  std::vector<bool> needed_;
  std::vector<Gradient> gradients_;
};

}  // namespace

ReverseWalk walk_reverse(ComputationGraph::Parts& parts, const ForwardWalk& forward) {
  return Reverse(parts, forward).run();
}

}  // namespace renai::graph_detail
