#pragma once
// ComputationGraph: operator topology only. No shape, no dtype, no address, no device. Built once, immutable
// afterwards.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "renai/graph/graph_id.hpp"
#include "renai/graph/op.hpp"
#include "renai/model/model_spec.hpp"

namespace renai {

using TensorId = std::int32_t;
inline constexpr TensorId kNoTensor = -1;

enum class TensorRole : std::uint8_t {
  slot,
  control,
  labels,
  mix_labels,
  mix_lambda,
  sample_weights,
  metrics,  // input side and step sums
  weight,
  grad,
  momentum,
  second_moment,  // parameters
  running_mean,
  running_var,
  batch_mean,
  batch_var,
  folded_scale,
  folded_bias,  // batch norm
  activation,
  activation_grad,
  saved  // transient
};

/// True for roles planned by lifetime; false for those with a place of their own.
constexpr bool is_transient(TensorRole role) { return role >= TensorRole::activation; }

struct TensorInfo {
  std::string name;
  TensorRole role = TensorRole::activation;
  std::int32_t param = -1;  ///< Index into params for weight, grad, momentum, second moment.
  std::int32_t norm = -1;   ///< Index into norms for batch-norm roles.
  bool average = false;     ///< The exponential average (EMA) of what the role says, or made from it.
};

enum class ParamKind : std::uint8_t { conv_weight, linear_weight, bias, bn_scale, bn_bias };

/// How LARS treats a parameter: convolution and linear weights each with a rate of their own, batch norm and biases by
/// plain SGD. `none` with other optimizers.
enum class LarsGroup : std::uint8_t { none, conv, linear, exempt };

struct ParamInfo {
  std::string name;  ///< "conv1.weight"
  ParamKind kind = ParamKind::conv_weight;
  std::int32_t layer = 0;
  int stage = 0;
  bool first_layer = false;  ///< Gradient made by FIRST_LAYER_BWD.
  bool decay = true;
  LarsGroup lars = LarsGroup::none;
  bool zero_init = false;
  int freeze_group = 0;  ///< Parameters of one group are updated together or not at all.
  int bucket = 0;        ///< Deep buckets 0..B-1; first-layer parameters: B (the last bucket).
  TensorId weight = kNoTensor, grad = kNoTensor, momentum = kNoTensor;
  TensorId ema = kNoTensor;            ///< Average of the weight; kNoTensor where the graph has none.
  TensorId second_moment = kNoTensor;  ///< Of Adam and AdamW, whose first moment is `momentum`.
};

struct NormInfo {
  std::string name;  ///< "bn1": running statistics are "bn1.running_mean", "bn1.running_var".
  float momentum = 0.1f, eps = 1e-5f;
  std::int32_t scale_param = -1, bias_param = -1;
  TensorId running_mean = kNoTensor, running_var = kNoTensor, batch_mean = kNoTensor, batch_var = kNoTensor,
           folded_scale = kNoTensor, folded_bias = kNoTensor;
  /// Averages of the running statistics and what is folded from them; kNoTensor where the graph has none.
  TensorId ema_mean = kNoTensor, ema_var = kNoTensor, ema_scale = kNoTensor, ema_bias = kNoTensor;
};

struct ComputeNode {
  std::string name;  ///< "layer1.0.conv1" + pass suffix.
  OpKind op = OpKind::add;
  Pass pass = Pass::forward;
  OpParams params;
  std::vector<TensorId> inputs, outputs;
  std::int32_t layer = -1;
};

struct RangeNode {
  std::string name;
  RangeOp op = RangeOp::zero;
  RangeParams params;
  std::vector<std::string> inputs, outputs;  ///< Region names.
};

/// One node with its place in the schedule of its graph. Nodes of one branch run in list order; nodes of different
/// branches may run at the same time except where `waits` orders them. Branch 0 forks the others at its start unless
/// they wait, and the graph ends when all branches have.
struct Node {
  std::variant<ComputeNode, RangeNode> work;
  int branch = 0;
  std::vector<std::int32_t> waits;  ///< Indices of earlier nodes of the same graph in other branches.
  std::int32_t records_event = -1;  ///< External event (gradient bucket) recorded after this node.
  int part = 0;  ///< Which executable of the slot holds it (DEEP_COMM, CAST_DEEP_GRAD: the bucket; graphs that update:
                 ///< freeze groups).
  const std::string& name() const;
  bool is_compute() const { return work.index() == 0; }
};

/// What the graph is built for: features that decide which GraphIds are filled.
struct GraphOptions {
  std::int64_t classes = 10;
  std::int64_t input_channels = 1;
  int world_size = 1;
  int logical_shards = 8;
  int micro_batches = 1;  ///< K: forward and backward passes of a shard in a step.
  InputParams input;
  float label_smoothing = 0.0f;
  OptimizerKind optimizer = OptimizerKind::sgd;
  AdamParams adam;
  LarsParams lars;
  float momentum = 0.9f;  ///< SGD and LARS.
  bool nesterov = false;  ///< Likewise.
  float weight_decay = 0.0f;
  bool bn_weight_decay = false;  ///< Also decay batch-norm parameters and biases.
  float clip_norm = 0.0f;
  double ema_decay = 0.0;                  ///< 0: no exponential average of weights and running statistics.
  float bn_momentum = 0.0f;                ///< Of every batch norm; 0: each layer's own.
  bool sync_bn = false;                    ///< Statistics of all shards, which the ranks run in lockstep, one each.
  bool half_weights = false;               ///< Keep a half-precision copy of the weights for the kernels (CAST_MAIN).
  bool dynamic_loss_scale = false;         ///< The gradient of the loss is scaled, by a factor that grows and shrinks.
  int loss_scale_interval = 2000;          ///< Good steps after which it doubles.
  std::vector<int> bucket_of_param;        ///< From plan::assign_buckets; empty: one deep bucket.
  std::vector<int> freeze_group_of_param;  ///< 0: never frozen; empty: all are.
  bool parallel_branches = false;          ///< Spread independent operators (residual projections) over two branches.
};

class ComputationGraph {
 public:
  struct Parts {
    ModelSpec model;
    GraphOptions options;
    std::vector<TensorInfo> tensors;
    std::vector<ParamInfo> params;
    std::vector<NormInfo> norms;
    std::vector<std::vector<Node>> nodes;  ///< By GraphId.
    int deep_buckets = 0;
    TensorId slot_a = kNoTensor, slot_b = kNoTensor, control = kNoTensor, logits = kNoTensor, metrics = kNoTensor;
    TensorId inference_logits = kNoTensor;
  };
  explicit ComputationGraph(Parts parts);  ///< Runs verify(). Errors: InternalError.

  const ModelSpec& model() const { return parts_.model; }
  const GraphOptions& options() const { return parts_.options; }
  const std::vector<TensorInfo>& tensors() const { return parts_.tensors; }
  const TensorInfo& tensor(TensorId id) const { return parts_.tensors.at(static_cast<std::size_t>(id)); }
  const std::vector<ParamInfo>& params() const { return parts_.params; }
  const std::vector<NormInfo>& norms() const { return parts_.norms; }
  const std::vector<Node>& nodes(GraphId id) const { return parts_.nodes[static_cast<std::size_t>(id)]; }
  bool empty(GraphId id) const { return nodes(id).empty(); }
  int part_count(GraphId id) const;  ///< 1 + the largest part.
  int deep_buckets() const { return parts_.deep_buckets; }
  int local_shards() const { return parts_.options.logical_shards / parts_.options.world_size; }
  const Parts& parts() const { return parts_; }

 private:
  Parts parts_;
};

/// Forward walk, reverse walk (autodiff), inference walk and auxiliary graphs.
/// Errors: UserError for a model that cannot be trained (no parameters, loss not on [N, classes] logits).
ComputationGraph build_computation_graph(const ModelSpec& model, const GraphOptions& options);

/// Whether a graph holds collectives: those of its id, and batch norms whose statistics cross ranks.
bool has_collectives(const ComputationGraph& graph, GraphId id);

/// Every tensor defined before use along happens-before, one writer per graph, positions and counts of tensors right
/// for each operator, events and parts in range. Errors: InternalError naming graph and node.
void verify(const ComputationGraph& graph);

/// Readable listing: tensors, parameters, nodes by GraphId. Also the input of the fingerprint: every field that matters
/// appears.
std::string print(const ComputationGraph& graph);

}  // namespace renai
