#include "renai/graph/computation_graph.hpp"

#include <algorithm>

namespace renai {

const std::string& Node::name() const {
  return std::visit([](const auto& node) -> const std::string& { return node.name; }, work);
}

ComputationGraph::ComputationGraph(Parts parts) : parts_(std::move(parts)) { verify(*this); }

int ComputationGraph::part_count(GraphId id) const {
  int last = 0;
  for (const Node& node : nodes(id)) last = std::max(last, node.part);
  return last + 1;
}

}  // namespace renai
