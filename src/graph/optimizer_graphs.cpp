#include "optimizer_graphs.hpp"

#include <algorithm>
#include <set>

#include "lowering.hpp"
#include "renai/base/error.hpp"
#include "renai/graph/region_name.hpp"

namespace renai::graph_detail {
namespace {

namespace region = region_name;

GraphId graph_of(const Segment& segment, int deep_buckets) {
  switch (segment.lars) {
    case LarsGroup::none:
    case LarsGroup::exempt: return GraphId::OPTIMIZER;
    case LarsGroup::linear: return GraphId::LARS_FC_OPT;
    case LarsGroup::conv:
      return segment.bucket_index == deep_buckets ? GraphId::LARS_FIRST_CONV_OPT : GraphId::LARS_DEEP_CONV_OPT;
  }
  return GraphId::OPTIMIZER;
}

RangeOp op_of(const Segment& segment, OptimizerKind kind) {
  if (has_second_moments(kind)) return RangeOp::adam;
  return kind == OptimizerKind::lars && segment.lars != LarsGroup::exempt ? RangeOp::lars : RangeOp::sgd;
}

RangeNode update_node(const Segment& segment, const GraphOptions& options, const RangeParams& shards) {
  RangeNode node;
  node.op = op_of(segment, options.optimizer);
  node.params = shards;
  node.params.weight_decay = segment.decay ? options.weight_decay : 0.0f;
  const std::string weights = region::child(region::kWeights, segment.name);
  const std::string momentum = region::child(region::kMomentum, segment.name);
  node.inputs = {region::child(region::kGrad, segment.name), weights, momentum};
  node.outputs = {weights, momentum};
  if (node.op == RangeOp::adam) {
    node.inputs.push_back(region::child(region::kSecondMoment, segment.name));
    node.outputs.push_back(node.inputs.back());
  } else {
    node.params.momentum = options.momentum;
    node.params.nesterov = options.nesterov;
  }
  if (node.op == RangeOp::adam) node.params.freeze_group = segment.freeze_group;
  if (node.op != RangeOp::sgd) {
    node.params.optimizer = options.optimizer;
    node.params.adam = options.adam;
    node.params.lars = options.lars;
  }
  node.inputs.emplace_back(region::kScalars);
  node.name = std::string(range_op_name(node.op)) + "." + weights;
  return node;
}

/// Adam's corrections count the updates of a freeze group, as PyTorch counts those of a parameter with a gradient: the
/// group's part of the graph, which is launched while the group is trained, begins with its count. Those of what is
/// never frozen come with the decision whether a step is skipped.
void add_corrections(ComputationGraph::Parts& parts, const std::vector<Segment>& segments) {
  std::set<int> groups;
  for (const Segment& segment : segments) groups.insert(segment.freeze_group);
  for (const int group : groups) {
    if (group == 0) continue;
    Node node;
    RangeNode work{"adam_corrections.g" + std::to_string(group),
                   RangeOp::adam_corrections,
                   {},
                   {std::string(region::kScalars)},
                   {std::string(region::kScalars)}};
    work.params.optimizer = parts.options.optimizer;
    work.params.adam = parts.options.adam;
    work.params.freeze_group = group;
    node.work = std::move(work);
    nodes_of(parts, GraphId::OPTIMIZER).push_back(std::move(node));
  }
}

}  // namespace

void add_optimizer_graphs(ComputationGraph::Parts& parts, const std::vector<Segment>& segments,
                          const RangeParams& shards) {
  const auto adapts = [](const Segment& segment) {
    return segment.lars == LarsGroup::conv || segment.lars == LarsGroup::linear;
  };
  if (parts.options.optimizer == OptimizerKind::lars && std::none_of(segments.begin(), segments.end(), adapts)) {
    throw UserError("--optimizer lars with model '" + parts.model.name + "'",
                    "LARS adapts the rates of convolution and linear weights, and none is trained",
                    "use --optimizer sgd");
  }
  if (has_second_moments(parts.options.optimizer)) add_corrections(parts, segments);
  for (const Segment& segment : segments) {
    Node node;
    node.work = update_node(segment, parts.options, shards);
    nodes_of(parts, graph_of(segment, parts.deep_buckets)).push_back(std::move(node));
  }
}

}  // namespace renai::graph_detail
