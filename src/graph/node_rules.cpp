#include "node_rules.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "renai/base/error.hpp"
#include "renai/graph/region_name.hpp"

namespace renai::graph_detail {
namespace {

/// Inputs and outputs of an operator in a pass. Letters stand for groups of roles: 'a' activations, 'g' activation
/// gradients or activations (sums of gradients read and write gradients), 'w' weight, 'd' parameter gradient, others
/// below.
struct Signature {
  OpKind op;
  Pass pass;
  std::string_view inputs, outputs;
  std::size_t optional_inputs = 0, optional_outputs = 0;  ///< How many at the end may be absent.
};

/// After a letter: one tensor of this kind or more.
constexpr char kMany = '+';

constexpr std::array kSignatures{
    Signature{OpKind::unpack_slot, Pass::forward, "S", "lmLWC"},
    Signature{OpKind::normalize_input, Pass::forward, "S", "a"},
    Signature{OpKind::conv2d, Pass::forward, "aww", "a", 1},
    Signature{OpKind::conv2d, Pass::backward_data, "aw", "a"},
    Signature{OpKind::conv2d, Pass::backward_weights, "aa", "dd", 0, 1},
    Signature{OpKind::linear, Pass::forward, "aww", "a", 1},
    Signature{OpKind::linear, Pass::backward_data, "aw", "a"},
    Signature{OpKind::linear, Pass::backward_weights, "aa", "dd", 0, 1},
    Signature{OpKind::batch_norm, Pass::forward, "aww", "auva"},
    Signature{OpKind::batch_norm, Pass::inference, "afb", "a"},
    Signature{OpKind::batch_norm, Pass::backward, "aawua", "add"},
    Signature{OpKind::activation, Pass::forward, "a", "a"},
    Signature{OpKind::activation, Pass::backward, "aa", "a"},
    Signature{OpKind::max_pool, Pass::forward, "a", "a"},
    Signature{OpKind::max_pool, Pass::backward, "aa", "a"},
    Signature{OpKind::avg_pool, Pass::forward, "a", "a"},
    Signature{OpKind::avg_pool, Pass::backward, "a", "a"},
    Signature{OpKind::global_avg_pool, Pass::forward, "a", "a"},
    Signature{OpKind::global_avg_pool, Pass::backward, "a", "a"},
    Signature{OpKind::adaptive_avg_pool, Pass::forward, "a", "a"},
    Signature{OpKind::adaptive_avg_pool, Pass::backward, "a", "a"},
    Signature{OpKind::add, Pass::forward, "aa", "a"},
    Signature{OpKind::concat, Pass::forward, "a+", "a"},
    Signature{OpKind::concat, Pass::backward, "a", "a+"},
    Signature{OpKind::flatten, Pass::forward, "a", "a"},
    Signature{OpKind::flatten, Pass::backward, "a", "a"},
    Signature{OpKind::dropout, Pass::forward, "aC", "a"},
    Signature{OpKind::dropout, Pass::backward, "aC", "a"},
    Signature{OpKind::softmax_cross_entropy, Pass::forward, "almLW", "M"},
    Signature{OpKind::softmax_cross_entropy, Pass::backward, "almLW", "a"},
};

bool role_fits(char letter, TensorRole role) {
  switch (letter) {
    case 'a': return is_transient(role);
    case 'w': return role == TensorRole::weight;
    case 'd': return role == TensorRole::grad;
    case 'u': return role == TensorRole::batch_mean;
    case 'v': return role == TensorRole::batch_var;
    case 'f': return role == TensorRole::folded_scale;
    case 'b': return role == TensorRole::folded_bias;
    case 'S': return role == TensorRole::slot;
    case 'C': return role == TensorRole::control;
    case 'M': return role == TensorRole::metrics;
    case 'l': return role == TensorRole::labels;
    case 'm': return role == TensorRole::mix_labels;
    case 'L': return role == TensorRole::mix_lambda;
    case 'W': return role == TensorRole::sample_weights;
    default: return false;
  }
}

/// Index of the alternative of OpParams that the operator takes.
std::size_t params_index(OpKind op) {
  switch (op) {
    case OpKind::conv2d: return OpParams(Conv2dParams{}).index();
    case OpKind::linear: return OpParams(LinearParams{}).index();
    case OpKind::batch_norm: return OpParams(BatchNormParams{}).index();
    case OpKind::activation: return OpParams(ActivationParams{}).index();
    case OpKind::max_pool:
    case OpKind::avg_pool: return OpParams(PoolParams{}).index();
    case OpKind::adaptive_avg_pool: return OpParams(AdaptivePoolParams{}).index();
    case OpKind::dropout: return OpParams(DropoutParams{}).index();
    case OpKind::softmax_cross_entropy: return OpParams(LossParams{}).index();
    case OpKind::normalize_input: return OpParams(InputParams{}).index();
    case OpKind::unpack_slot:
    case OpKind::global_avg_pool:
    case OpKind::add:
    case OpKind::concat:
    case OpKind::flatten: return OpParams(NoParams{}).index();
  }
  return std::variant_npos;
}

/// The bias flag of conv2d and linear; nothing for operators without one.
std::optional<bool> bias_flag(const OpParams& params) {
  if (const auto* conv = std::get_if<Conv2dParams>(&params)) return conv->bias;
  if (const auto* linear = std::get_if<LinearParams>(&params)) return linear->bias;
  return std::nullopt;
}

void check_tensors(const ComputationGraph& graph, GraphId id, const ComputeNode& node,
                   const std::vector<TensorId>& tensors, std::string_view letters, std::size_t optional,
                   const char* what) {
  const bool many = letters.ends_with(kMany);
  if (many ? tensors.empty() : tensors.size() > letters.size() || tensors.size() + optional < letters.size()) {
    fail_node(id, node.name,
              "it has " + std::to_string(tensors.size()) + " " + what + ", not " +
                  (many ? "1 or more" : std::to_string(letters.size())));
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (role_fits(letters[many ? 0 : i], graph.tensor(tensors[i]).role)) continue;
    fail_node(id, node.name, "'" + graph.tensor(tensors[i]).name + "' cannot be its " + what + " " + std::to_string(i));
  }
}

Signature find_signature(GraphId id, const ComputeNode& node) {
  const auto found = std::find_if(kSignatures.begin(), kSignatures.end(), [&](const Signature& signature) {
    return signature.op == node.op && signature.pass == node.pass;
  });
  if (found != kSignatures.end()) return *found;
  fail_node(id, node.name, std::string(op_kind_name(node.op)) + " has no pass " + std::string(pass_name(node.pass)));
}

bool known_region(const std::string& name) {
  namespace region = region_name;
  for (const std::string_view root :
       {region::kMetrics,      region::kBnBatch,      region::kShardValues, region::kBnRunning, region::kBnFolded,
        region::kScalars,      region::kAccumulators, region::kDigests,     region::kSlotA,     region::kSlotB,
        region::kStaged,       region::kWeights,      region::kWeightsHalf, region::kGrad,      region::kMomentum,
        region::kSecondMoment, region::kCommScratch,  region::kTransient,   region::kEma,       region::kEmaHalf,
        region::kEmaRunning,   region::kEmaFolded,    region::kMicro}) {
    if (name == root) return true;
  }
  for (const std::string_view parent :
       {region::kWeights, region::kGrad, region::kMomentum, region::kSecondMoment, region::kEma}) {
    if (name.starts_with(std::string(parent) + ".")) return true;
  }
  const std::string_view counter = region::kCounter;
  return name.starts_with(counter) && name.size() > counter.size() &&
         name.find_first_not_of("0123456789", counter.size()) == std::string::npos;
}

/// Least counts of inputs and outputs of a RANGE operation.
std::pair<std::size_t, std::size_t> least_regions(RangeOp op) {
  switch (op) {
    case RangeOp::copy_slot:
    case RangeOp::zero:
    case RangeOp::clear_accumulators: return {0, 1};
    case RangeOp::merge_shard: return {2, 1};
    case RangeOp::adam_corrections:
    case RangeOp::cast_weights:
    case RangeOp::tree_reduce:
    case RangeOp::reduce_accumulators:
    case RangeOp::digest: return {1, 1};
    case RangeOp::check_and_scale: return {2, 2};
    case RangeOp::sgd:
    case RangeOp::lars: return {4, 2};
    case RangeOp::adam: return {5, 3};
    case RangeOp::ema:
    case RangeOp::update_statistics:
    case RangeOp::fold_batch_norm:
    case RangeOp::accumulate: return {2, 1};
    case RangeOp::read_back: return {2, 0};
  }
  return {0, 0};
}

}  // namespace

void fail_node(GraphId id, const std::string& node, const std::string& why) {
  throw InternalError("graph " + std::string(graph_id_name(id)) + ", node '" + node + "'", why);
}

void check_compute_node(const ComputationGraph& graph, GraphId id, const ComputeNode& node) {
  const auto count = static_cast<TensorId>(graph.tensors().size());
  for (const auto* tensors : {&node.inputs, &node.outputs}) {
    for (const TensorId tensor : *tensors) {
      if (tensor < 0 || tensor >= count)
        fail_node(id, node.name, "tensor " + std::to_string(tensor) + " does not exist");
    }
  }
  if (node.params.index() != params_index(node.op)) fail_node(id, node.name, "its parameters are another operator's");
  Signature signature = find_signature(id, node);
  if (const std::optional<bool> bias = bias_flag(node.params);
      bias && signature.optional_inputs + signature.optional_outputs > 0) {
    if (!*bias) {
      signature.inputs.remove_suffix(signature.optional_inputs);
      signature.outputs.remove_suffix(signature.optional_outputs);
    }
    signature.optional_inputs = signature.optional_outputs = 0;
  }
  check_tensors(graph, id, node, node.inputs, signature.inputs, signature.optional_inputs, "inputs");
  check_tensors(graph, id, node, node.outputs, signature.outputs, signature.optional_outputs, "outputs");
}

void check_range_node(GraphId id, const RangeNode& node) {
  const auto [inputs, outputs] = least_regions(node.op);
  if (node.inputs.size() < inputs || node.outputs.size() < outputs) fail_node(id, node.name, "it lacks regions");
  for (const auto* names : {&node.inputs, &node.outputs}) {
    for (const std::string& name : *names) {
      if (!known_region(name)) fail_node(id, node.name, "there is no region '" + name + "'");
    }
  }
}

}  // namespace renai::graph_detail
