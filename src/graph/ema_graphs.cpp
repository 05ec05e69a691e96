// Exponential averages of weights and running statistics (EMA): their tensors, their update, inference with them.

#include <algorithm>
#include <map>

#include "lowering.hpp"
#include "renai/graph/region_name.hpp"

namespace renai::graph_detail {
namespace {

namespace region = region_name;
using Names = std::vector<std::string>;

void add_range(ComputationGraph::Parts& parts, GraphId id, RangeOp op, Names inputs, Names outputs,
               double decay = 0.0) {
  Node node;
  RangeParams params;
  params.ema_decay = decay;
  node.work =
      RangeNode{std::string(range_op_name(op)) + "." + outputs[0], op, params, std::move(inputs), std::move(outputs)};
  nodes_of(parts, id).push_back(std::move(node));
}

}  // namespace

void add_averages(ComputationGraph::Parts& parts) {
  const auto average_of = [&parts](TensorId id) {
    TensorInfo info = parts.tensors[static_cast<std::size_t>(id)];
    info.name = "ema." + info.name;
    info.average = true;
    return add_tensor(parts, std::move(info));
  };
  for (ParamInfo& param : parts.params) param.ema = average_of(param.weight);
  for (NormInfo& norm : parts.norms) {
    norm.ema_mean = average_of(norm.running_mean);
    norm.ema_var = average_of(norm.running_var);
    norm.ema_scale = average_of(norm.folded_scale);
    norm.ema_bias = average_of(norm.folded_bias);
  }
}

std::vector<ComputeNode> with_averages(const ComputationGraph::Parts& parts, std::vector<ComputeNode> inference) {
  std::map<TensorId, TensorId> averages;
  for (const ParamInfo& param : parts.params) averages[param.weight] = param.ema;
  for (const NormInfo& norm : parts.norms) {
    averages[norm.folded_scale] = norm.ema_scale;
    averages[norm.folded_bias] = norm.ema_bias;
  }
  for (ComputeNode& node : inference) {
    for (TensorId& input : node.inputs) {
      if (const auto found = averages.find(input); found != averages.end()) input = found->second;
    }
  }
  return inference;
}

void add_ema_graphs(ComputationGraph::Parts& parts) {
  const std::string weights(region::kWeights), ema(region::kEma), running(region::kEmaRunning);
  Names values{weights}, averages{ema};
  if (!parts.norms.empty()) {
    values.emplace_back(region::kBnRunning);
    averages.push_back(running);
    add_range(parts, GraphId::UPDATE_BN_INF_PARAMS, RangeOp::fold_batch_norm, {running, ema},
              {std::string(region::kEmaFolded)});
  }
  values.emplace_back(region::kScalars);
  add_range(parts, GraphId::EMA_UPDATE, RangeOp::ema, std::move(values), std::move(averages), parts.options.ema_decay);
  if (parts.options.half_weights) {
    add_range(parts, GraphId::CAST_EMA, RangeOp::cast_weights, {ema}, {std::string(region::kEmaHalf)});
  }
}

}  // namespace renai::graph_detail
