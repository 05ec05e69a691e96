// build_computation_graph: the stages of lowering.hpp put together.

#include <algorithm>
#include <map>

#include "lowering.hpp"
#include "renai/base/check.hpp"

namespace renai {
namespace {

using namespace graph_detail;

void set_nodes(ComputationGraph::Parts& parts, GraphId id, const std::vector<ComputeNode>& nodes) {
  std::vector<Node>& target = nodes_of(parts, id);
  for (const ComputeNode& node : nodes) {
    Node placed;
    placed.work = node;
    target.push_back(std::move(placed));
  }
}

/// The same nodes for slots A and B: only the slot that the input nodes read differs.
void set_slot_pair(ComputationGraph::Parts& parts, GraphId id_a, GraphId id_b, std::vector<ComputeNode> nodes) {
  set_nodes(parts, id_a, nodes);
  for (ComputeNode& node : nodes) std::replace(node.inputs.begin(), node.inputs.end(), parts.slot_a, parts.slot_b);
  set_nodes(parts, id_b, nodes);
}

std::vector<ComputeNode> first_layer_forward(const ComputationGraph::Parts& parts, const ForwardWalk& forward) {
  std::vector<ComputeNode> nodes{make_unpack(parts, forward.staged, parts.slot_a),
                                 make_normalize(parts, parts.slot_a, forward.input)};
  const auto first = forward.nodes.begin();
  nodes.insert(nodes.end(), first, first + static_cast<std::ptrdiff_t>(forward.first_count));
  return nodes;
}

std::vector<ComputeNode> deep_forward_backward(const ForwardWalk& forward, const ReverseWalk& reverse) {
  std::vector<ComputeNode> nodes(forward.nodes.begin() + static_cast<std::ptrdiff_t>(forward.first_count),
                                 forward.nodes.end());
  nodes.push_back(forward.loss);
  nodes.insert(nodes.end(), reverse.deep.begin(), reverse.deep.end());
  return nodes;
}

/// The first layer's backward nodes, reading an x made anew from the slot: x and its views do not live through the deep
/// layers.
std::vector<ComputeNode> first_layer_backward(ComputationGraph::Parts& parts, const ForwardWalk& forward,
                                              const ReverseWalk& reverse) {
  std::map<TensorId, const ComputeNode*> views;  // x (made by no layer) and flattened x.
  views[forward.input] = nullptr;
  for (std::size_t i = 0; i < forward.first_count; ++i) {
    const ComputeNode& node = forward.nodes[i];
    if (node.op == OpKind::flatten && views.contains(node.inputs[0])) views[node.outputs[0]] = &node;
  }
  std::map<TensorId, TensorId> again;
  std::vector<ComputeNode> made, nodes = reverse.first;
  const auto make_again = [&](const auto& self, TensorId tensor) -> TensorId {
    if (const auto found = again.find(tensor); found != again.end()) return found->second;
    const std::string name = parts.tensors[static_cast<std::size_t>(tensor)].name + ".again";
    const ComputeNode* view = views.at(tensor);
    if (view == nullptr) {
      const TensorId x = add_tensor(parts, {name, TensorRole::activation, -1, -1});
      made.push_back(make_normalize(parts, parts.slot_a, x));
      return again[tensor] = x;
    }
    ComputeNode node = *view;
    node.inputs = {self(self, node.inputs[0])};
    node.outputs = {add_tensor(parts, {name, TensorRole::activation, -1, -1})};
    made.push_back(node);
    return again[tensor] = node.outputs[0];
  };
  for (ComputeNode& node : nodes) {
    for (TensorId& input : node.inputs) {
      if (views.contains(input)) input = make_again(make_again, input);
    }
  }
  made.insert(made.end(), nodes.begin(), nodes.end());
  return made;
}

void spread_branches(ComputationGraph::Parts& parts) {
  for (std::vector<Node>& nodes : parts.nodes) {
    if (!nodes.empty() && nodes.front().is_compute()) assign_branches(nodes);
  }
}

}  // namespace

ComputationGraph build_computation_graph(const ModelSpec& model, const GraphOptions& options) {
  RENAI_CHECK(!options.sync_bn || options.logical_shards == options.world_size,
              "statistics of all shards need a rank for each shard");
  RENAI_CHECK(!options.sync_bn || options.micro_batches == 1, "statistics of the whole batch need it in one pass");
  ComputationGraph::Parts parts;
  parts.model = model;
  parts.options = options;
  parts.nodes.resize(kGraphIdCount);
  const ForwardWalk forward = walk_forward(parts);
  const ReverseWalk reverse = walk_reverse(parts, forward);
  const bool averages = options.ema_decay > 0.0;
  if (averages) add_averages(parts);
  assign_parameter_buckets(parts, reverse.deep);
  assign_freeze_groups(parts);

  set_slot_pair(parts, GraphId::FIRST_LAYER_FWD_A, GraphId::FIRST_LAYER_FWD_B, first_layer_forward(parts, forward));
  set_nodes(parts, GraphId::DEEP_FWD_BWD, deep_forward_backward(forward, reverse));
  set_slot_pair(parts, GraphId::FIRST_LAYER_BWD_A, GraphId::FIRST_LAYER_BWD_B,
                first_layer_backward(parts, forward, reverse));
  std::vector<ComputeNode> inference = walk_inference(parts, forward);
  inference.insert(inference.begin(), make_unpack(parts, forward.staged, parts.slot_a));
  if (averages) set_slot_pair(parts, GraphId::INF_EMA_A, GraphId::INF_EMA_B, with_averages(parts, inference));
  set_slot_pair(parts, GraphId::INF_MAIN_A, GraphId::INF_MAIN_B, std::move(inference));
  if (options.parallel_branches) spread_branches(parts);
  assign_bucket_events(parts);
  add_range_graphs(parts);
  if (averages) add_ema_graphs(parts);
  add_freeze_parts(parts);
  return ComputationGraph(std::move(parts));
}

}  // namespace renai
