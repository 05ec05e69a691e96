// Which way features lie in memory, and which way files hold them.

#include <algorithm>

#include "renai/base/check.hpp"
#include "renai/train/state.hpp"

namespace renai {
namespace {

class LayoutFinder {
 public:
  /// Shapes of a training variant are those of the training graphs' tensors, shapes of a validation variant those of
  /// the inference graphs'.
  LayoutFinder(const ComputationGraph& graph, std::span<const Shape> shapes)
      : graph_(graph),
        shapes_(shapes),
        graphs_(shape_of(graph.parts().logits).rank() > 0
                    ? std::vector<GraphId>{GraphId::FIRST_LAYER_FWD_A, GraphId::DEEP_FWD_BWD}
                    : std::vector<GraphId>{GraphId::INF_MAIN_A}) {}

  ParamLayout layout_of(const ParamInfo& param) const {
    const Shape& shape = shape_of(param.weight);
    ParamLayout layout;
    if (param.kind == ParamKind::conv_weight) {
      layout.parts = {{shape[1], shape[2], shape[3]}};
      layout.logical = {shape[0], shape[3], shape[1], shape[2]};
      return layout;
    }
    for (int axis = 0; axis < shape.rank(); ++axis) layout.logical.push_back(shape[axis]);
    if (param.kind == ParamKind::bias) return layout;
    const TensorId input = layer_input(param);
    // A batch norm of feature maps has a factor for each channel.
    if (param.kind != ParamKind::linear_weight && shape_of(input).rank() == 4) return layout;
    layout.parts = parts_of(input);
    if (std::all_of(layout.parts.begin(), layout.parts.end(), [](const FeaturePart& p) { return p.h * p.w == 1; })) {
      layout.parts.clear();
    }
    return layout;
  }

 private:
  const Shape& shape_of(TensorId tensor) const { return shapes_[static_cast<std::size_t>(tensor)]; }

  /// Calls visit(node) for the nodes, forward ones first, until it returns true; the node, or null.
  template <typename Visit>
  const ComputeNode* find_node(const Visit& visit) const {
    for (const GraphId id : graphs_) {
      for (const Node& node : graph_.nodes(id)) {
        if (!node.is_compute()) continue;
        const auto& work = std::get<ComputeNode>(node.work);
        if (visit(work)) return &work;
      }
    }
    return nullptr;
  }

  /// What the parameter's layer reads.
  TensorId layer_input(const ParamInfo& param) const {
    const OpKind op = param.kind == ParamKind::linear_weight ? OpKind::linear : OpKind::batch_norm;
    const ComputeNode* node =
        find_node([&](const ComputeNode& work) { return work.layer == param.layer && work.op == op; });
    RENAI_CHECK(node != nullptr, "parameter '" + param.name + "' has a forward node");
    return node->inputs[0];
  }

  /// The maps that a row of features was flattened from: walks back through what leaves features in their places.
  std::vector<FeaturePart> parts_of(TensorId tensor) const {
    const Shape& shape = shape_of(tensor);
    if (shape.rank() == 4) return {{shape.h(), shape.w(), shape.c()}};
    const std::vector<FeaturePart> plain{{1, 1, shape.elems() / shape.n()}};
    const ComputeNode* node = find_node([&](const ComputeNode& work) {
      return std::find(work.outputs.begin(), work.outputs.end(), tensor) != work.outputs.end();
    });
    if (node == nullptr) return plain;
    switch (node->op) {
      case OpKind::flatten:
      case OpKind::activation:
      case OpKind::dropout:
      case OpKind::batch_norm: return parts_of(node->inputs[0]);
      case OpKind::concat: {
        std::vector<FeaturePart> all;
        for (const TensorId input : node->inputs) {
          const std::vector<FeaturePart> parts = parts_of(input);
          all.insert(all.end(), parts.begin(), parts.end());
        }
        return all;
      }
      case OpKind::add: {
        // Terms of different orders have no counterpart in files: features then keep their places in memory.
        std::vector<FeaturePart> parts = parts_of(node->inputs[0]);
        const bool alike = std::all_of(node->inputs.begin(), node->inputs.end(),
                                       [&](TensorId input) { return parts_of(input) == parts; });
        return alike ? parts : plain;
      }
      default: return plain;
    }
  }

  const ComputationGraph& graph_;
  std::span<const Shape> shapes_;
  std::vector<GraphId> graphs_;
};

}  // namespace

std::vector<ParamLayout> param_layouts(const ComputationGraph& graph, std::span<const Shape> shapes) {
  const LayoutFinder finder(graph, shapes);
  std::vector<ParamLayout> layouts;
  layouts.reserve(graph.params().size());
  for (const ParamInfo& param : graph.params()) layouts.push_back(finder.layout_of(param));
  return layouts;
}

}  // namespace renai
