#pragma once
// Nodes of a graph as short text, for tests of structure.

#include <string>
#include <vector>

#include "renai/graph/computation_graph.hpp"

namespace renai::testing {

/// "relu1.backward(relu1, relu1.grad) -> conv1.grad" for each COMPUTE node, "sgd(grad.x, ...) -> weights.x" for RANGE
/// nodes.
inline std::vector<std::string> node_texts(const ComputationGraph& graph, GraphId id) {
  const auto join_names = [](const std::vector<std::string>& names) {
    std::string text;
    for (std::size_t i = 0; i < names.size(); ++i) text += (i > 0 ? ", " : "") + names[i];
    return text;
  };
  std::vector<std::string> texts;
  for (const Node& node : graph.nodes(id)) {
    if (const auto* range = std::get_if<RangeNode>(&node.work)) {
      texts.push_back(std::string(range_op_name(range->op)) + "(" + join_names(range->inputs) + ") -> " +
                      join_names(range->outputs));
      continue;
    }
    const auto& work = std::get<ComputeNode>(node.work);
    std::vector<std::string> inputs, outputs;
    for (const TensorId input : work.inputs) inputs.push_back(graph.tensor(input).name);
    for (const TensorId output : work.outputs) outputs.push_back(graph.tensor(output).name);
    texts.push_back(work.name + "(" + join_names(inputs) + ") -> " + join_names(outputs));
  }
  return texts;
}

/// Texts of the nodes after the loss's forward node: the backward part of DEEP_FWD_BWD.
inline std::vector<std::string> backward_texts(const ComputationGraph& graph) {
  std::vector<std::string> texts = node_texts(graph, GraphId::DEEP_FWD_BWD);
  std::size_t start = 0;
  while (start < texts.size() && !texts[start].starts_with("output.loss.backward")) ++start;
  texts.erase(texts.begin(), texts.begin() + static_cast<std::ptrdiff_t>(start));
  return texts;
}

inline std::int32_t find_node(const ComputationGraph& graph, GraphId id, const std::string& name) {
  const std::vector<Node>& nodes = graph.nodes(id);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].name() == name) return static_cast<std::int32_t>(i);
  }
  return -1;
}

}  // namespace renai::testing
