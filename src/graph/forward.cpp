// The training forward walk.

#include <map>
#include <set>

#include "lowering.hpp"
#include "naming.hpp"
#include "renai/base/check.hpp"

namespace renai::graph_detail {
namespace {

WindowParams window_of(const LayerSpec& layer) {
  return {layer.kernel_h, layer.kernel_w, layer.stride_h,   layer.stride_w,
          layer.pad_h,    layer.pad_w,    layer.dilation_h, layer.dilation_w};
}

struct OpChoice {
  OpKind op;
  OpParams params;
};

OpChoice activation(const LayerSpec& layer, Activation kind) {
  return {OpKind::activation, ActivationParams{kind, kind == Activation::leaky_relu ? layer.slope : 0.0f}};
}

float bn_momentum(const LayerSpec& layer, const GraphOptions& options) {
  return options.bn_momentum > 0.0f ? options.bn_momentum : layer.bn_momentum;
}

OpChoice choose_op(const LayerSpec& layer, std::size_t index, const GraphOptions& options) {
  const std::int64_t out = layer.out > 0 ? layer.out : options.classes;
  switch (layer.kind) {
    case LayerKind::conv2d: return {OpKind::conv2d, Conv2dParams{out, window_of(layer), layer.groups, layer.bias}};
    case LayerKind::linear: return {OpKind::linear, LinearParams{out, layer.bias}};
    case LayerKind::batch_norm:
      return {OpKind::batch_norm,
              BatchNormParams{layer.eps, bn_momentum(layer, options), options.sync_bn ? options.logical_shards : 1}};
    case LayerKind::relu: return activation(layer, Activation::relu);
    case LayerKind::leaky_relu: return activation(layer, Activation::leaky_relu);
    case LayerKind::relu6: return activation(layer, Activation::relu6);
    case LayerKind::silu: return activation(layer, Activation::silu);
    case LayerKind::hard_swish: return activation(layer, Activation::hard_swish);
    case LayerKind::gelu: return activation(layer, Activation::gelu);
    case LayerKind::sigmoid: return activation(layer, Activation::sigmoid);
    case LayerKind::tanh: return activation(layer, Activation::tanh);
    case LayerKind::max_pool: return {OpKind::max_pool, PoolParams{window_of(layer), layer.ceil_mode, true}};
    case LayerKind::avg_pool:
      return {OpKind::avg_pool, PoolParams{window_of(layer), layer.ceil_mode, layer.count_include_pad}};
    case LayerKind::global_avg_pool: return {OpKind::global_avg_pool, NoParams{}};
    case LayerKind::adaptive_avg_pool:
      return {OpKind::adaptive_avg_pool, AdaptivePoolParams{layer.size_h, layer.size_w}};
    case LayerKind::add: return {OpKind::add, NoParams{}};
    case LayerKind::concat: return {OpKind::concat, NoParams{}};
    case LayerKind::flatten: return {OpKind::flatten, NoParams{}};
    case LayerKind::dropout: return {OpKind::dropout, DropoutParams{layer.p, static_cast<std::uint32_t>(index)}};
  }
  throw InternalError("layer '" + layer.name + "' has no operator",
                      "kind " + std::to_string(static_cast<int>(layer.kind)));
}

/// Rank of a layer's output, which needs no shapes: 4 for feature maps, 2 after linear and flatten.
int output_rank(LayerKind kind, int input_rank) {
  return kind == LayerKind::linear || kind == LayerKind::flatten ? 2 : input_rank;
}

LarsGroup lars_group(ParamKind kind) {
  switch (kind) {
    case ParamKind::conv_weight: return LarsGroup::conv;
    case ParamKind::linear_weight: return LarsGroup::linear;
    default: return LarsGroup::exempt;
  }
}

/// The optimizer's state, under the names of PyTorch's for Adam.
void add_moments(ComputationGraph::Parts& parts, ParamInfo& info, std::int32_t index) {
  const bool adam = has_second_moments(parts.options.optimizer);
  info.momentum = add_tensor(parts, {info.name + (adam ? ".exp_avg" : ".momentum"), TensorRole::momentum, index, -1});
  if (adam) info.second_moment = add_tensor(parts, {info.name + ".exp_avg_sq", TensorRole::second_moment, index, -1});
}

std::int32_t add_param(ComputationGraph::Parts& parts, const std::string& name, ParamKind kind, std::size_t layer,
                       bool first_layer) {
  const auto index = static_cast<std::int32_t>(parts.params.size());
  const LayerSpec& spec = parts.model.layers[layer];
  ParamInfo info;
  info.name = name;
  info.kind = kind;
  info.layer = static_cast<std::int32_t>(layer);
  info.stage = spec.stage;
  info.first_layer = first_layer;
  info.decay = kind == ParamKind::conv_weight || kind == ParamKind::linear_weight || parts.options.bn_weight_decay;
  if (parts.options.optimizer == OptimizerKind::lars) info.lars = lars_group(kind);
  info.zero_init = kind == ParamKind::bn_scale && spec.zero_init;
  info.weight = add_tensor(parts, {name, TensorRole::weight, index, -1});
  info.grad = add_tensor(parts, {name + ".grad", TensorRole::grad, index, -1});
  add_moments(parts, info, index);
  parts.params.push_back(info);
  return index;
}

std::int32_t add_norm(ComputationGraph::Parts& parts, const LayerSpec& spec, std::int32_t scale, std::int32_t bias) {
  const auto index = static_cast<std::int32_t>(parts.norms.size());
  const auto tensor = [&](const char* suffix, TensorRole role) {
    return add_tensor(parts, {spec.name + suffix, role, -1, index});
  };
  NormInfo info;
  info.name = spec.name;
  info.momentum = bn_momentum(spec, parts.options);
  info.eps = spec.eps;
  info.scale_param = scale;
  info.bias_param = bias;
  info.running_mean = tensor(".running_mean", TensorRole::running_mean);
  info.running_var = tensor(".running_var", TensorRole::running_var);
  info.batch_mean = tensor(".batch_mean", TensorRole::batch_mean);
  info.batch_var = tensor(".batch_var", TensorRole::batch_var);
  info.folded_scale = tensor(".folded_scale", TensorRole::folded_scale);
  info.folded_bias = tensor(".folded_bias", TensorRole::folded_bias);
  parts.norms.push_back(info);
  return index;
}

/// Appends the layer's parameters to the node's inputs and, for batch norm, its statistics to the outputs after y.
void add_params_and_output(ComputationGraph::Parts& parts, ComputeNode& node, bool first_layer) {
  const auto layer = static_cast<std::size_t>(node.layer);
  const std::string name = parts.model.layers[layer].name;
  const auto append = [&](const char* suffix, ParamKind kind) {
    const std::int32_t param = add_param(parts, name + suffix, kind, layer, first_layer);
    node.inputs.push_back(parts.params[static_cast<std::size_t>(param)].weight);
    return param;
  };
  std::int32_t norm = -1;
  if (node.op == OpKind::conv2d) {
    append(".weight", ParamKind::conv_weight);
    if (std::get<Conv2dParams>(node.params).bias) append(".bias", ParamKind::bias);
  } else if (node.op == OpKind::linear) {
    append(".weight", ParamKind::linear_weight);
    if (std::get<LinearParams>(node.params).bias) append(".bias", ParamKind::bias);
  } else if (node.op == OpKind::batch_norm) {
    const std::int32_t scale = append(".weight", ParamKind::bn_scale);
    norm = add_norm(parts, parts.model.layers[layer], scale, append(".bias", ParamKind::bn_bias));
  } else if (node.op == OpKind::dropout) {
    node.inputs.push_back(parts.control);
  }
  node.outputs.push_back(add_tensor(parts, {name, TensorRole::activation, -1, -1}));
  if (norm < 0) return;
  const NormInfo& info = parts.norms[static_cast<std::size_t>(norm)];
  node.outputs.insert(node.outputs.end(), {info.batch_mean, info.batch_var});
  node.outputs.push_back(add_tensor(parts, {name + ".biased_var", TensorRole::saved, -1, -1}));
}

void check_model(const ModelSpec& model, const GraphOptions& options) {
  const std::string failed = "model '" + model.name + "' cannot be trained";
  if (model.layers.empty()) throw UserError(failed, "it has no layers", "add layers, the last a linear one");
  if (options.classes < 1)
    throw UserError(failed, std::to_string(options.classes) + " classes", "give at least one class");
  if (model.classes != 0 && model.classes != options.classes) {
    throw UserError(
        failed,
        "it is for " + std::to_string(model.classes) + " classes, the data set has " + std::to_string(options.classes),
        "leave the model's key classes away to take the data set's");
  }
  const LayerSpec& last = model.layers.back();
  const bool sized = last.kind == LayerKind::linear || last.kind == LayerKind::conv2d;
  if (sized && last.out != 0 && last.out != options.classes) {
    throw UserError(failed,
                    "its last layer '" + last.name + "' gives " + std::to_string(last.out) + " logits for " +
                        std::to_string(options.classes) + " classes",
                    "write out = \"classes\" to take the data set's");
  }
  RENAI_CHECK(options.world_size >= 1 && options.logical_shards >= options.world_size &&
                  options.logical_shards % options.world_size == 0,
              "the ranks divide the logical shards");
  RENAI_CHECK(options.micro_batches >= 1, "a shard has at least one micro-batch");
}

StagedTensors add_shared_tensors(ComputationGraph::Parts& parts) {
  const auto tensor = [&](const char* name, TensorRole role) { return add_tensor(parts, {name, role, -1, -1}); };
  StagedTensors staged;
  parts.slot_a = tensor("slot_a", TensorRole::slot);
  parts.slot_b = tensor("slot_b", TensorRole::slot);
  parts.control = tensor("control", TensorRole::control);
  staged.labels = tensor("labels", TensorRole::labels);
  staged.mix_labels = tensor("mix_labels", TensorRole::mix_labels);
  staged.mix_lambda = tensor("mix_lambda", TensorRole::mix_lambda);
  staged.sample_weights = tensor("sample_weights", TensorRole::sample_weights);
  parts.metrics = tensor("metrics", TensorRole::metrics);
  return staged;
}

}  // namespace

TensorId add_tensor(ComputationGraph::Parts& parts, TensorInfo info) {
  parts.tensors.push_back(std::move(info));
  return static_cast<TensorId>(parts.tensors.size()) - 1;
}

std::vector<Node>& nodes_of(ComputationGraph::Parts& parts, GraphId id) {
  return parts.nodes[static_cast<std::size_t>(id)];
}

std::size_t first_layer_count(const ModelSpec& model) {
  std::set<std::string> views{"input"};
  std::size_t count = 0;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const LayerSpec& layer = model.layers[i];
    for (const std::string& input : layer.inputs) {
      if (!views.contains(input)) continue;
      count = i + 1;
      if (layer.kind == LayerKind::flatten) views.insert(layer.name);
    }
  }
  return count;
}

ComputeNode make_unpack(const ComputationGraph::Parts& parts, const StagedTensors& staged, TensorId slot) {
  return {"input.unpack",
          OpKind::unpack_slot,
          Pass::forward,
          NoParams{},
          {slot},
          {staged.labels, staged.mix_labels, staged.mix_lambda, staged.sample_weights, parts.control},
          -1};
}

ComputeNode make_normalize(const ComputationGraph::Parts& parts, TensorId slot, TensorId x) {
  return {"input.normalize", OpKind::normalize_input, Pass::forward, parts.options.input, {slot}, {x}, -1};
}

ComputeNode make_layer_node(const ComputationGraph::Parts& parts, std::size_t layer) {
  const LayerSpec& spec = parts.model.layers[layer];
  const OpChoice choice = choose_op(spec, layer, parts.options);
  return {node_name(spec.name, Pass::forward), choice.op, Pass::forward, choice.params, {}, {},
          static_cast<std::int32_t>(layer)};
}

ForwardWalk walk_forward(ComputationGraph::Parts& parts) {
  check_model(parts.model, parts.options);
  ForwardWalk walk;
  walk.staged = add_shared_tensors(parts);
  walk.input = add_tensor(parts, {"input", TensorRole::activation, -1, -1});
  walk.first_count = first_layer_count(parts.model);

  struct Value {
    TensorId tensor = kNoTensor;
    int rank = 4;
  };
  std::map<std::string, Value> values{{"input", {walk.input, 4}}};
  Value last;
  for (std::size_t i = 0; i < parts.model.layers.size(); ++i) {
    const LayerSpec& layer = parts.model.layers[i];
    ComputeNode node = make_layer_node(parts, i);
    int rank = 4;
    for (const std::string& input : layer.inputs) {
      const auto value = values.find(input);
      RENAI_CHECK(value != values.end(),
                  "layer '" + layer.name + "' reads '" + input + "', which is not an earlier layer");
      node.inputs.push_back(value->second.tensor);
      rank = value->second.rank;
    }
    add_params_and_output(parts, node, i < walk.first_count);
    last = {node.outputs[0], output_rank(layer.kind, rank)};
    values[layer.name] = last;
    walk.nodes.push_back(std::move(node));
  }
  if (parts.params.empty()) {
    throw UserError("model '" + parts.model.name + "' cannot be trained", "it has no parameters",
                    "add a conv2d or linear layer");
  }
  parts.logits = last.tensor;
  if (last.rank == 4) {
    parts.logits = add_tensor(parts, {"output.flatten", TensorRole::activation, -1, -1});
    walk.nodes.push_back({node_name("output.flatten", Pass::forward),
                          OpKind::flatten,
                          Pass::forward,
                          NoParams{},
                          {last.tensor},
                          {parts.logits},
                          -1});
  }
  const StagedTensors& staged = walk.staged;
  walk.loss = {node_name("output.loss", Pass::forward),
               OpKind::softmax_cross_entropy,
               Pass::forward,
               LossParams{parts.options.label_smoothing},
               {parts.logits, staged.labels, staged.mix_labels, staged.mix_lambda, staged.sample_weights},
               {parts.metrics},
               -1};
  return walk;
}

}  // namespace renai::graph_detail
