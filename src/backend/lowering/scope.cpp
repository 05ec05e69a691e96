#include "scope.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace renai::lowering {
namespace {

/// Order of the graphs of one training or inference pass; graphs of one rank never run one after the other in a pass.
int pass_order(GraphId id) {
  switch (id) {
    case GraphId::FIRST_LAYER_FWD_A:
    case GraphId::FIRST_LAYER_FWD_B: return 0;
    case GraphId::DEEP_FWD_BWD: return 1;
    case GraphId::FIRST_LAYER_BWD_A:
    case GraphId::FIRST_LAYER_BWD_B: return 2;
    default: return 3;
  }
}

}  // namespace

Uses::Uses(const ComputationGraph& graph)
    : readers_(graph.tensors().size()),
      writers_(graph.tensors().size()),
      storage_readers_(graph.tensors().size()),
      storage_(graph.tensors().size()) {
  std::iota(storage_.begin(), storage_.end(), 0);
  std::set<NodeKey> forward, backward;
  for (int g = 0; g < kGraphIdCount; ++g) {
    const auto id = static_cast<GraphId>(g);
    const std::vector<Node>& nodes = graph.nodes(id);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const auto* node = std::get_if<ComputeNode>(&nodes[i].work);
      if (node == nullptr) continue;
      for (const TensorId input : node->inputs) readers_[static_cast<std::size_t>(input)].push_back({id, i});
      for (const TensorId output : node->outputs) writers_[static_cast<std::size_t>(output)].push_back({id, i});
      if (node->op == OpKind::flatten) {
        storage_[static_cast<std::size_t>(node->outputs[0])] = storage_[static_cast<std::size_t>(node->inputs[0])];
      }
      if (graph_family(id) != GraphFamily::inference) {
        (node->pass == Pass::forward ? forward : backward).insert({node->op, node->layer, node->inputs.at(0)});
      }
    }
  }
  std::set_intersection(forward.begin(), forward.end(), backward.begin(), backward.end(),
                        std::inserter(gradients_, gradients_.end()));
  for (std::size_t tensor = 0; tensor < readers_.size(); ++tensor) {
    auto& all = storage_readers_[static_cast<std::size_t>(storage_[tensor])];
    all.insert(all.end(), readers_[tensor].begin(), readers_[tensor].end());
  }
}

Scope::Scope(const ComputationGraph& graph, const Uses& uses, GraphId id, int threads)
    : graph_(&graph), uses_(&uses), id_(id), threads_(threads), order_(graph.nodes(id)) {}

const ComputeNode* Scope::node(std::size_t index) const {
  const std::vector<Node>& nodes = graph_->nodes(id_);
  return index < nodes.size() ? std::get_if<ComputeNode>(&nodes[index].work) : nullptr;
}

const ComputeNode* Scope::follower(std::size_t first, std::size_t index) const {
  const std::vector<Node>& nodes = graph_->nodes(id_);
  if (index >= nodes.size()) return nullptr;
  for (std::size_t i = first; i < index; ++i) {
    if (nodes[i].records_event >= 0) return nullptr;
  }
  const Node& head = nodes[first];
  const Node& node = nodes[index];
  if (node.branch != head.branch || node.part != head.part || !node.waits.empty()) return nullptr;
  return std::get_if<ComputeNode>(&node.work);
}

bool Scope::only_reader(TensorId tensor, std::size_t index) const {
  if (!is_transient(graph_->tensor(tensor).role) || tensor == graph_->parts().logits ||
      tensor == graph_->parts().inference_logits) {
    return false;
  }
  const auto& readers = uses_->readers(tensor);
  const ComputeNode* self = node(index);
  // The twins A and B of a graph hold the same node: they count as one reader.
  return !readers.empty() && std::all_of(readers.begin(), readers.end(), [&](const NodePlace& place) {
    const auto& other = std::get<ComputeNode>(graph_->nodes(place.id)[place.index].work);
    return place.index == index && pass_order(place.id) == pass_order(id_) && other.name == self->name;
  });
}

std::optional<std::vector<std::size_t>> Scope::readers_here(TensorId tensor) const {
  if (!is_transient(graph_->tensor(tensor).role)) return std::nullopt;
  std::vector<std::size_t> indices;
  for (const NodePlace& place : uses_->readers(tensor)) {
    if (place.id == id_) {
      indices.push_back(place.index);
    } else if (pass_order(place.id) != pass_order(id_)) {
      return std::nullopt;
    }
  }
  return indices;
}

bool Scope::last_use(TensorId tensor, std::size_t index) const {
  if (!is_transient(graph_->tensor(tensor).role) || uses_->writers(tensor).empty()) return false;
  if (id_ == GraphId::SIMPLE_TASK_GRAPH) return false;
  const auto& readers = uses_->storage_readers(tensor);
  return std::all_of(readers.begin(), readers.end(), [&](const NodePlace& place) {
    if (place.id == id_) {
      return place.index == index ||
             order_.before(static_cast<std::int32_t>(place.index), static_cast<std::int32_t>(index));
    }
    if (pass_order(place.id) == pass_order(id_)) return place.index <= index;
    return pass_order(place.id) < pass_order(id_);
  });
}

bool Scope::ends_before(std::size_t index, const NodePlace& later) const {
  if (later.id == id_) return order_.before(static_cast<std::int32_t>(index), static_cast<std::int32_t>(later.index));
  return pass_order(id_) <= pass_order(later.id);  // Equal: twins, or graphs of different passes.
}

}  // namespace renai::lowering
