// Shapes of all tensors of a graph.

#include "renai/graph/shape_inference.hpp"

#include <map>

#include "renai/base/check.hpp"

namespace renai {
namespace {

bool takes_params(OpKind op) { return op == OpKind::conv2d || op == OpKind::linear || op == OpKind::batch_norm; }

class ShapeWalk {
 public:
  ShapeWalk(const ComputationGraph& graph, const Shape& input)
      : graph_(graph), input_(input), shapes_(graph.tensors().size()) {}

  void visit(GraphId id) {
    for (const Node& node : graph_.nodes(id)) {
      if (!node.is_compute()) continue;
      const auto& work = std::get<ComputeNode>(node.work);
      work.pass == Pass::forward || work.pass == Pass::inference ? visit_forward(work) : visit_backward(work);
    }
  }

  void check_logits(TensorId logits) const {
    if (logits == kNoTensor) return;
    const Shape& shape = shapes_[static_cast<std::size_t>(logits)];
    if (shape == Shape{input_.n(), graph_.options().classes}) return;
    throw UserError("model '" + graph_.model().name + "': its output is not one logit for each of " +
                        std::to_string(graph_.options().classes) + " classes",
                    "the output is " + shape.str(), "end the model with a linear layer with out = \"classes\"");
  }

  /// Logits that were flattened from a feature map must come from one position.
  void check_flattened_logits(const ComputeNode& flatten, const Shape& x) const {
    if (flatten.layer >= 0 || x.h() * x.w() == 1) return;
    throw UserError("model '" + graph_.model().name + "': its output is a feature map, not logits",
                    "the output is " + x.str(), "end the model with global_avg_pool or a linear layer");
  }

  std::vector<Shape> take() { return std::move(shapes_); }

 private:
  using Key = std::pair<std::int32_t, OpKind>;  // One layer has one operator; operators around the layers are unique.

  /// Far above what any machine holds, and small enough that byte counts of whole plans cannot overflow.
  void check_size(const std::string& layer, const Shape& shape) const {
    constexpr std::int64_t kMostElems = std::int64_t{1} << 40;
    constexpr std::int64_t kMostExtent = std::int64_t{1} << 31;
    bool fits = shape.elems() <= kMostElems;
    for (int axis = 0; axis < shape.rank(); ++axis) fits = fits && shape[axis] <= kMostExtent;
    if (fits) return;
    throw UserError("layer '" + layer + "': a tensor of shape " + shape.str(), "it is too large for any machine",
                    "lower channels, padding or the resolution");
  }

  void assign(TensorId id, const Shape& shape) {
    check_size(graph_.tensor(id).name, shape);
    shapes_[static_cast<std::size_t>(id)] = shape;
    const TensorInfo& info = graph_.tensor(id);
    if (info.param >= 0) assign_param(info.param, shape);
    if (info.norm < 0) return;
    const NormInfo& norm = graph_.norms()[static_cast<std::size_t>(info.norm)];
    for (const TensorId tensor :
         {norm.running_mean, norm.running_var, norm.batch_mean, norm.batch_var, norm.folded_scale, norm.folded_bias,
          norm.ema_mean, norm.ema_var, norm.ema_scale, norm.ema_bias}) {
      if (tensor != kNoTensor) shapes_[static_cast<std::size_t>(tensor)] = shape;
    }
    assign_param(norm.scale_param, shape);
    assign_param(norm.bias_param, shape);
  }

  void assign_param(std::int32_t param, const Shape& shape) {
    const ParamInfo& info = graph_.params()[static_cast<std::size_t>(param)];
    for (const TensorId tensor : {info.weight, info.grad, info.momentum, info.second_moment, info.ema}) {
      if (tensor != kNoTensor) shapes_[static_cast<std::size_t>(tensor)] = shape;
    }
  }

  std::vector<Shape> activation_shapes(const ComputeNode& node) const {
    if (node.op == OpKind::unpack_slot || node.op == OpKind::normalize_input) return {input_};
    const std::size_t count = node.op == OpKind::add || node.op == OpKind::concat ? node.inputs.size() : 1;
    std::vector<Shape> inputs;
    for (std::size_t i = 0; i < count; ++i) {
      inputs.push_back(shapes_[static_cast<std::size_t>(node.inputs[i])]);
      RENAI_CHECK(inputs.back().rank() > 0, "node '" + node.name + "' reads a tensor without a shape");
    }
    return inputs;
  }

  void visit_forward(const ComputeNode& node) {
    std::vector<Shape> inputs = activation_shapes(node);
    if (node.op == OpKind::flatten) check_flattened_logits(node, inputs[0]);
    const std::vector<Shape> outputs = infer_shapes(node, inputs);
    if (takes_params(node.op)) {
      const std::vector<Shape> params = infer_param_shapes(node, inputs[0]);
      for (std::size_t i = 0; i < params.size(); ++i) assign(node.inputs.at(i + 1), params[i]);
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) assign(node.outputs.at(i), outputs[i]);
    forward_inputs_.try_emplace({node.layer, node.op}, std::move(inputs));
  }

  void visit_backward(const ComputeNode& node) {
    const auto forward = forward_inputs_.find({node.layer, node.op});
    RENAI_CHECK(forward != forward_inputs_.end(), "node '" + node.name + "' has no forward node");
    const std::vector<Shape> outputs = infer_backward_shapes(node, forward->second);
    RENAI_CHECK(outputs.size() == node.outputs.size(), "node '" + node.name + "' has a wrong number of outputs");
    for (std::size_t i = 0; i < outputs.size(); ++i) shapes_[static_cast<std::size_t>(node.outputs[i])] = outputs[i];
  }

  const ComputationGraph& graph_;
  Shape input_;
  std::vector<Shape> shapes_;
  std::map<Key, std::vector<Shape>> forward_inputs_;
};

}  // namespace

std::vector<Shape> infer_shapes(const ComputationGraph& graph, const Shape& input, bool training) {
  const ModelSpec& model = graph.model();
  if (input.rank() != 4 || input.elems() < 1) {
    throw UserError("model '" + model.name + "': the input must be N x H x W x C with no empty extent",
                    "it is " + input.str(), "use images and resolutions of at least one pixel");
  }
  if (model.input_channels != 0 && model.input_channels != input.c()) {
    throw UserError("model '" + model.name + "': the data set's images have " + std::to_string(input.c()) + " channels",
                    "the model is for " + std::to_string(model.input_channels) + " channels",
                    "leave the model's key input_channels away to take the data set's");
  }
  ShapeWalk walk(graph, input);
  if (training) {
    walk.visit(GraphId::FIRST_LAYER_FWD_A);
    walk.visit(GraphId::DEEP_FWD_BWD);
    walk.visit(GraphId::FIRST_LAYER_BWD_A);
    walk.check_logits(graph.parts().logits);
  } else {
    walk.visit(GraphId::INF_MAIN_A);
    walk.check_logits(graph.parts().inference_logits);
  }
  return walk.take();
}

void check_equal_params(const ComputationGraph& graph, std::span<const Shape> shapes, std::span<const Shape> others) {
  RENAI_CHECK(shapes.size() == graph.tensors().size() && others.size() == shapes.size(), "one shape for each tensor");
  for (const ParamInfo& param : graph.params()) {
    const Shape& shape = shapes[static_cast<std::size_t>(param.weight)];
    const Shape& other = others[static_cast<std::size_t>(param.weight)];
    if (shape == other) continue;
    throw UserError(
        "model '" + graph.model().name + "': parameter '" + param.name + "' depends on the resolution",
        "it is " + shape.str() + " for one input and " + other.str() + " for another",
        "train and validate at one resolution, or put global_avg_pool or adaptive_avg_pool before the linear layers");
  }
}

}  // namespace renai
