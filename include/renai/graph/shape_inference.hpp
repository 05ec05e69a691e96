#pragma once
// Shape inference: the shape of every tensor for one input shape.

#include <span>
#include <string>
#include <vector>

#include "renai/graph/computation_graph.hpp"
#include "renai/tensor/dtype.hpp"
#include "renai/tensor/shape.hpp"

namespace renai {

/// Output shapes of one operator in pass forward or inference. Parameters need not stand in `inputs` (see
/// infer_param_shapes) but are checked when they do. For unpack_slot and normalize_input the one input is the variant's
/// [n, h, w, c]. Errors: UserError naming the layer, its input shape and the attribute (kernel larger than the padded
/// input, channels not divisible by groups, unequal shapes of add, one value per channel in training batch norm ...).
std::vector<Shape> infer_shapes(const ComputeNode& node, std::span<const Shape> inputs);

/// Shapes of the parameters of conv2d [w, b], linear [w, b] and batch_norm [scale, bias] for input `x`; empty for other
/// operators. Errors: UserError as above.
std::vector<Shape> infer_param_shapes(const ComputeNode& node, const Shape& x);

/// Output shapes of a backward pass, from the shapes of the activations that the forward pass reads (without
/// parameters, labels and control): gradients have the shapes of what they are gradients of. Errors: as above;
/// InternalError for other passes.
std::vector<Shape> infer_backward_shapes(const ComputeNode& node, std::span<const Shape> forward_inputs);

/// Shape of every tensor of the graph, by TensorId, for input [n, h, w, c]. Tensors only touched by a family of graphs
/// that this spec does not use keep rank 0. `training` selects the family.
std::vector<Shape> infer_shapes(const ComputationGraph& graph, const Shape& input, bool training);

/// Parameters are common to all inputs: a model whose linear layer sees the whole map fits one resolution only.
/// Errors: UserError naming the first parameter with different shapes under two inputs of infer_shapes.
void check_equal_params(const ComputationGraph& graph, std::span<const Shape> shapes, std::span<const Shape> others);

/// Element type of a tensor by role: f32, but i32 for labels and mix_labels, u8 for slots and control.
DType tensor_dtype(TensorRole role);

/// The model as a table: layer, kind, output shape, parameters; totals last.
std::string print_model(const ComputationGraph& graph, const Shape& input);

}  // namespace renai
