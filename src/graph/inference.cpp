// The inference walk.

#include <map>

#include "lowering.hpp"
#include "naming.hpp"

namespace renai::graph_detail {

std::vector<ComputeNode> walk_inference(ComputationGraph::Parts& parts, const ForwardWalk& forward) {
  const auto new_activation = [&](const std::string& name) {
    return add_tensor(parts, {"inference." + name, TensorRole::activation, -1, -1});
  };
  // Training tensor -> what stands for it in inference.
  std::map<TensorId, TensorId> twin{{forward.input, new_activation("input")}};
  std::vector<ComputeNode> nodes{make_normalize(parts, parts.slot_a, twin.at(forward.input))};
  for (const ComputeNode& trained : forward.nodes) {
    const TensorId y = trained.outputs[0];
    if (trained.op == OpKind::dropout) {
      twin[y] = twin.at(trained.inputs[0]);
      continue;
    }
    ComputeNode node = trained;
    for (TensorId& input : node.inputs) {
      if (const auto found = twin.find(input); found != twin.end()) input = found->second;
    }
    if (node.op == OpKind::batch_norm) {
      const NormInfo& norm =
          parts.norms[static_cast<std::size_t>(parts.tensors[static_cast<std::size_t>(node.outputs[1])].norm)];
      const std::string& name = norm.name;
      node.name = node_name(name, Pass::inference);
      node.pass = Pass::inference;
      std::get<BatchNormParams>(node.params).sync_shards = 1;
      node.inputs = {node.inputs[0], norm.folded_scale, norm.folded_bias};
    }
    twin[y] = new_activation(parts.tensors[static_cast<std::size_t>(y)].name);
    node.outputs = {twin.at(y)};
    nodes.push_back(std::move(node));
  }
  parts.inference_logits = twin.at(parts.logits);
  ComputeNode loss = forward.loss;
  loss.inputs[0] = parts.inference_logits;
  nodes.push_back(std::move(loss));
  return nodes;
}

}  // namespace renai::graph_detail
