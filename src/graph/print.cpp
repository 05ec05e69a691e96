// Readable listing of a graph.

#include <array>

#include "naming.hpp"
#include "renai/graph/computation_graph.hpp"
#include "renai/graph/segments.hpp"

namespace renai {
namespace {

using graph_detail::double_text;
using graph_detail::float_text;

constexpr std::array<const char*, 20> kRoleNames{
    "slot",      "control",      "labels",      "mix_labels",    "mix_lambda",      "sample_weights", "metrics",
    "weight",    "grad",         "momentum",    "second_moment", "running_mean",    "running_var",    "batch_mean",
    "batch_var", "folded_scale", "folded_bias", "activation",    "activation_grad", "saved"};
static_assert(kRoleNames.size() == static_cast<std::size_t>(TensorRole::saved) + 1);

constexpr std::array<const char*, 5> kParamKindNames{"conv_weight", "linear_weight", "bias", "bn_scale", "bn_bias"};

constexpr std::array<const char*, 4> kLarsGroupNames{"none", "conv", "fc", "exempt"};

std::string number(std::int64_t value) { return std::to_string(value); }

/// "%3 layer1.0.conv1": a tensor by id and name.
std::string tensor_text(const ComputationGraph& graph, TensorId id) {
  return "%" + number(id) + ":" + graph.tensor(id).name;
}

std::string list_text(const std::vector<std::string>& items) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) text += (i > 0 ? ", " : "") + items[i];
  return text;
}

std::vector<std::string> tensors_text(const ComputationGraph& graph, const std::vector<TensorId>& ids) {
  std::vector<std::string> items;
  for (const TensorId id : ids) items.push_back(tensor_text(graph, id));
  return items;
}

std::string options_text(const ComputationGraph& graph) {
  const GraphOptions& o = graph.options();
  return "options classes " + number(o.classes) + " input_channels " + number(o.input_channels) + " world_size " +
         number(o.world_size) + " logical_shards " + number(o.logical_shards) +
         (o.micro_batches > 1 ? " micro_batches " + number(o.micro_batches) : "") + " input " +
         print(OpParams{o.input}) + " label_smoothing " + float_text(o.label_smoothing) +
         print(o.optimizer, o.adam, o.lars) + " momentum " + float_text(o.momentum) + (o.nesterov ? " nesterov" : "") +
         " weight_decay " + float_text(o.weight_decay) + (o.bn_weight_decay ? " bn_weight_decay" : "") + " clip_norm " +
         float_text(o.clip_norm) + (o.ema_decay > 0.0 ? " ema_decay " + double_text(o.ema_decay) : "") +
         (o.bn_momentum > 0.0f ? " bn_momentum " + float_text(o.bn_momentum) : "") + (o.sync_bn ? " sync_bn" : "") +
         (o.half_weights ? " half_weights" : "") + (o.dynamic_loss_scale ? " dynamic_loss_scale" : "") +
         (o.parallel_branches ? " parallel_branches" : "") + " deep_buckets " + number(graph.deep_buckets()) + "\n";
}

std::string tensor_lines(const ComputationGraph& graph) {
  std::string text;
  for (std::size_t i = 0; i < graph.tensors().size(); ++i) {
    const TensorInfo& info = graph.tensors()[i];
    text += "tensor %" + number(static_cast<std::int64_t>(i)) + " " + info.name + " " +
            kRoleNames[static_cast<std::size_t>(info.role)];
    if (info.param >= 0) text += " param " + number(info.param);
    if (info.norm >= 0) text += " norm " + number(info.norm);
    if (info.average) text += " average";
    text += "\n";
  }
  const ComputationGraph::Parts& p = graph.parts();
  text += "ends slot_a %" + number(p.slot_a) + " slot_b %" + number(p.slot_b) + " control %" + number(p.control) +
          " logits %" + number(p.logits) + " metrics %" + number(p.metrics) + " inference_logits %" +
          number(p.inference_logits) + "\n";
  return text;
}

std::string param_lines(const ComputationGraph& graph) {
  std::string text;
  for (std::size_t i = 0; i < graph.params().size(); ++i) {
    const ParamInfo& p = graph.params()[i];
    text += "param " + number(static_cast<std::int64_t>(i)) + " " + p.name + " " +
            kParamKindNames[static_cast<std::size_t>(p.kind)] + " layer " + number(p.layer) + " stage " +
            number(p.stage) + (p.first_layer ? " first_layer" : "") + (p.decay ? " decay" : " nodecay") +
            (p.zero_init ? " zero_init" : "") + (p.freeze_group > 0 ? " freeze_group " + number(p.freeze_group) : "") +
            " bucket " + bucket_name(p.bucket, graph.deep_buckets()) + " weight %" + number(p.weight) + " grad %" +
            number(p.grad) + " momentum %" + number(p.momentum);
    if (p.lars != LarsGroup::none) text += std::string(" lars ") + kLarsGroupNames[static_cast<std::size_t>(p.lars)];
    if (p.second_moment != kNoTensor) text += " second_moment %" + number(p.second_moment);
    if (p.ema != kNoTensor) text += " ema %" + number(p.ema);
    text += "\n";
  }
  for (std::size_t i = 0; i < graph.norms().size(); ++i) {
    const NormInfo& n = graph.norms()[i];
    text += "norm " + number(static_cast<std::int64_t>(i)) + " " + n.name + " momentum " + float_text(n.momentum) +
            " eps " + float_text(n.eps) + " params " + number(n.scale_param) + " " + number(n.bias_param) +
            " running %" + number(n.running_mean) + " %" + number(n.running_var) + " batch %" + number(n.batch_mean) +
            " %" + number(n.batch_var) + " folded %" + number(n.folded_scale) + " %" + number(n.folded_bias);
    if (n.ema_mean != kNoTensor) {
      text += " ema %" + number(n.ema_mean) + " %" + number(n.ema_var) + " folded %" + number(n.ema_scale) + " %" +
              number(n.ema_bias);
    }
    text += "\n";
  }
  return text;
}

std::string node_line(const ComputationGraph& graph, const Node& node) {
  std::string text;
  if (node.is_compute()) {
    const auto& work = std::get<ComputeNode>(node.work);
    text = work.name + ": " + list_text(tensors_text(graph, work.outputs)) + " = " +
           std::string(op_kind_name(work.op)) + "." + std::string(pass_name(work.pass)) + "(" +
           list_text(tensors_text(graph, work.inputs)) + ")";
    if (const std::string params = print(work.params); !params.empty()) text += " [" + params + "]";
    if (work.layer >= 0) text += " layer " + number(work.layer);
  } else {
    const auto& work = std::get<RangeNode>(node.work);
    text = work.name + ": " + list_text(work.outputs) + " = " + std::string(range_op_name(work.op)) + "(" +
           list_text(work.inputs) + ") [" + print(work.params) + "]";
  }
  if (node.part > 0) text += " part " + number(node.part);
  if (node.branch > 0) text += " branch " + number(node.branch);
  for (const std::int32_t wait : node.waits) text += " waits #" + number(wait);
  if (node.records_event >= 0) text += " records " + number(node.records_event);
  return text;
}

}  // namespace

std::string print(const ComputationGraph& graph) {
  std::string text = "model " + graph.model().name + " init " + number(static_cast<int>(graph.model().init)) + "\n";
  text += options_text(graph) + tensor_lines(graph) + param_lines(graph);
  for (int i = 0; i < kGraphIdCount; ++i) {
    const auto id = static_cast<GraphId>(i);
    if (graph.empty(id)) continue;
    text += "graph " + std::string(graph_id_name(id)) + "\n";
    for (std::size_t k = 0; k < graph.nodes(id).size(); ++k) {
      text += "  #" + number(static_cast<std::int64_t>(k)) + " " + node_line(graph, graph.nodes(id)[k]) + "\n";
    }
  }
  return text;
}

}  // namespace renai
