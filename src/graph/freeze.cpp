// Freeze groups: parameters whose update a run may leave out for some epochs, by leaving out parts of graphs.

#include <algorithm>
#include <map>

#include "lowering.hpp"
#include "renai/base/check.hpp"
#include "renai/graph/region_name.hpp"
#include "renai/graph/segments.hpp"

namespace renai::graph_detail {
namespace {

namespace region = region_name;

/// Freeze group of a node that updates parameters, or counts their updates: that of the segments whose regions it
/// writes.
int group_of(const RangeNode& node, const std::map<std::string, int>& group_of_segment) {
  if (node.op == RangeOp::adam_corrections) return node.params.freeze_group;
  int group = -1;
  for (const std::string& name : node.outputs) {
    const std::size_t dot = name.find('.');
    const auto found = group_of_segment.find(dot == std::string::npos ? "" : name.substr(dot + 1));
    if (found == group_of_segment.end()) continue;
    RENAI_CHECK(group < 0 || group == found->second, "'" + node.name + "' updates one freeze group");
    group = found->second;
  }
  return std::max(group, 0);
}

/// One part for each group that the graph has nodes of, in rising order.
void split_by_group(std::vector<Node>& nodes, const std::map<std::string, int>& group_of_segment) {
  std::map<int, std::vector<Node>> by_group;
  for (Node& node : nodes) {
    by_group[group_of(std::get<RangeNode>(node.work), group_of_segment)].push_back(std::move(node));
  }
  nodes.clear();
  int part = 0;
  for (auto& [group, list] : by_group) {
    for (Node& node : list) {
      node.part = part;
      nodes.push_back(std::move(node));
    }
    ++part;
  }
}

}  // namespace

void assign_freeze_groups(ComputationGraph::Parts& parts) {
  const std::vector<int>& groups = parts.options.freeze_group_of_param;
  RENAI_CHECK(groups.empty() || groups.size() == parts.params.size(),
              "freeze_group_of_param has one entry for each parameter");
  for (std::size_t i = 0; i < groups.size(); ++i) {
    RENAI_CHECK(groups[i] >= 0, "parameter '" + parts.params[i].name + "' has a negative freeze group");
    parts.params[i].freeze_group = groups[i];
  }
}

void add_freeze_parts(ComputationGraph::Parts& parts) {
  std::map<std::string, int> group_of_segment;
  std::map<int, std::vector<std::string>> gradients;
  for (const Segment& segment : parameter_segments(parts.params, parts.deep_buckets)) {
    group_of_segment[segment.name] = segment.freeze_group;
    if (segment.freeze_group > 0) gradients[segment.freeze_group].push_back(region::child(region::kGrad, segment.name));
  }
  if (gradients.empty()) return;
  for (const GraphId id : kUpdateGraphs) split_by_group(nodes_of(parts, id), group_of_segment);
  int part = 0;
  for (auto& [group, regions] : gradients) {
    Node node;
    node.work = RangeNode{"zero." + regions[0], RangeOp::zero, {}, {}, std::move(regions)};
    node.part = ++part;
    nodes_of(parts, GraphId::ZERO_GRAD).push_back(std::move(node));
  }
}

}  // namespace renai::graph_detail

namespace renai {

std::vector<int> freeze_group_of_parts(const ComputationGraph& graph, GraphId id) {
  std::map<std::string, int> group_of_segment;
  for (const Segment& segment : parameter_segments(graph)) group_of_segment[segment.name] = segment.freeze_group;
  std::vector<int> groups(static_cast<std::size_t>(graph.part_count(id)), 0);
  for (const Node& node : graph.nodes(id)) {
    groups.at(static_cast<std::size_t>(node.part)) =
        graph_detail::group_of(std::get<RangeNode>(node.work), group_of_segment);
  }
  return groups;
}

}  // namespace renai
