#include "renai/graph/computation_graph.hpp"

#include <algorithm>

namespace renai {

const std::string& Node::name() const {
  return std::visit([](const auto& node) -> const std::string& { return node.name; }, work);
}

ComputationGraph::ComputationGraph(Parts parts) : parts_(std::move(parts)) { verify(*this); }

bool has_collectives(const ComputationGraph& graph, GraphId id) {
  const std::vector<Node>& nodes = graph.nodes(id);
  return is_collective(id) || std::any_of(nodes.begin(), nodes.end(), [](const Node& node) {
           const auto* work = std::get_if<ComputeNode>(&node.work);
           const auto* norm = work != nullptr ? std::get_if<BatchNormParams>(&work->params) : nullptr;
           return norm != nullptr && norm->sync_shards > 1;
         });
}

int ComputationGraph::part_count(GraphId id) const {
  int last = 0;
  for (const Node& node : nodes(id)) last = std::max(last, node.part);
  return last + 1;
}

}  // namespace renai
