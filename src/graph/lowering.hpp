#pragma once
// Stages of build_computation_graph: forward walk, reverse walk, inference walk, auxiliary graphs. Each adds to one
// Parts value.

#include <cstddef>
#include <string>
#include <vector>

#include "renai/graph/computation_graph.hpp"

namespace renai::graph_detail {

/// Adds a tensor to the graph and returns its id.
TensorId add_tensor(ComputationGraph::Parts& parts, TensorInfo info);

/// Tensors that every graph shares: labels, mix, sample weights (control and metrics stand in Parts).
struct StagedTensors {
  TensorId labels = kNoTensor, mix_labels = kNoTensor, mix_lambda = kNoTensor, sample_weights = kNoTensor;
};

/// The training forward pass: one node for each layer in the model's order, then the flatten of rank-4 logits if
/// needed.
struct ForwardWalk {
  StagedTensors staged;
  TensorId input = kNoTensor;  ///< x, written by normalize_input.
  std::vector<ComputeNode> nodes;
  std::size_t first_count = 0;  ///< Nodes of the first layer: the shortest prefix that holds every reader of x.
  ComputeNode loss;
};

/// Number of layers in the shortest prefix of the model after which the network input is not read any more, through
/// views too.
std::size_t first_layer_count(const ModelSpec& model);

/// Adds slots, staged tensors, parameters, norms and activations. Errors: UserError for a model that cannot be trained.
ForwardWalk walk_forward(ComputationGraph::Parts& parts);

/// Backward nodes in execution order: of the deep layers (loss first), then of the first layer (reading x by its
/// forward id).
struct ReverseWalk {
  std::vector<ComputeNode> deep, first;
};

/// Reverse-mode differentiation of a forward walk. Determinism: a tensor with several readers gets the sum of its
/// readers' gradients, last reader first, by nested add nodes.
ReverseWalk walk_reverse(ComputationGraph::Parts& parts, const ForwardWalk& forward);

/// The inference pass with tensor ids of its own: folded batch norm, no dropout, then the loss for the metrics.
std::vector<ComputeNode> walk_inference(ComputationGraph::Parts& parts, const ForwardWalk& forward);

/// unpack_slot and normalize_input of a slot.
ComputeNode make_unpack(const ComputationGraph::Parts& parts, const StagedTensors& staged, TensorId slot);
ComputeNode make_normalize(const ComputationGraph::Parts& parts, TensorId slot, TensorId x);
/// The forward node of a layer, without tensors.
ComputeNode make_layer_node(const ComputationGraph::Parts& parts, std::size_t layer);

/// Gives every parameter its bucket: all parameters of a layer one bucket, deep buckets numbered in the order in which
/// `deep` completes them, first-layer parameters the last. Sets deep_buckets.
void assign_parameter_buckets(ComputationGraph::Parts& parts, const std::vector<ComputeNode>& deep);

/// Marks the node of DEEP_FWD_BWD after which each bucket is complete; with branches, makes it wait for the bucket's
/// other writers.
void assign_bucket_events(ComputationGraph::Parts& parts);

/// With --ema, an average of every weight and running statistic: tensors of their own, otherwise alike.
void add_averages(ComputationGraph::Parts& parts);
/// The inference pass reading averages. Activations are those of the pass with the weights: the two never run at once.
std::vector<ComputeNode> with_averages(const ComputationGraph::Parts& parts, std::vector<ComputeNode> inference);
/// Update, half copies and folding of the averages.
void add_ema_graphs(ComputationGraph::Parts& parts);

/// The groups that GraphOptions says.
void assign_freeze_groups(ComputationGraph::Parts& parts);
/// Where there are freeze groups: graphs that update parameters get a part for each group, and ZERO_GRAD, behind the
/// part that starts a step, one that clears the gradient of each group but 0.
void add_freeze_parts(ComputationGraph::Parts& parts);

/// Fills the graphs made of RANGE nodes.
void add_range_graphs(ComputationGraph::Parts& parts);

/// Spreads a list of nodes, ordered by their tensors, over two branches with waits: a node goes on in the branch of the
/// producer it directly follows; one that follows none starts or continues branch 1.
void assign_branches(std::vector<Node>& nodes);

std::vector<Node>& nodes_of(ComputationGraph::Parts& parts, GraphId id);

}  // namespace renai::graph_detail
