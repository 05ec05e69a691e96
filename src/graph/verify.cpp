// The verifier of ComputationGraph.

#include <algorithm>
#include <map>
#include <set>

#include "node_rules.hpp"
#include "renai/base/error.hpp"
#include "renai/graph/computation_graph.hpp"
#include "renai/graph/happens_before.hpp"
#include "renai/graph/region_name.hpp"
#include "renai/graph/segments.hpp"

namespace renai {
namespace {

using graph_detail::check_compute_node;
using graph_detail::check_range_node;
using graph_detail::fail_node;

/// Roles that a step writes and reads: they must be written before they are read. The rest have values from the start.
bool written_in_step(TensorRole role) {
  switch (role) {
    case TensorRole::slot:
    case TensorRole::weight:
    case TensorRole::momentum:
    case TensorRole::second_moment:
    case TensorRole::running_mean:
    case TensorRole::running_var:
    case TensorRole::folded_scale:
    case TensorRole::folded_bias: return false;
    default: return true;
  }
}

bool has_bucket_parts(GraphId id) { return id == GraphId::DEEP_COMM || id == GraphId::CAST_DEEP_GRAD; }

bool may_have_parts(GraphId id) {
  return has_bucket_parts(id) || id == GraphId::ZERO_GRAD ||
         std::find(kUpdateGraphs.begin(), kUpdateGraphs.end(), id) != kUpdateGraphs.end();
}

class Verifier {
 public:
  explicit Verifier(const ComputationGraph& graph) : graph_(graph) {}

  void run() {
    if (graph_.parts().nodes.size() != kGraphIdCount) {
      throw InternalError("the graph's table has " + std::to_string(graph_.parts().nodes.size()) + " ids",
                          "it must have " + std::to_string(kGraphIdCount));
    }
    check_tables();
    for (int i = 0; i < kGraphIdCount; ++i) check_graph(static_cast<GraphId>(i));
    // Graphs in the order in which a shard runs them; each may read what earlier ones wrote.
    check_sequence({GraphId::FIRST_LAYER_FWD_A, GraphId::DEEP_FWD_BWD, GraphId::FIRST_LAYER_BWD_A});
    check_sequence({GraphId::FIRST_LAYER_FWD_B, GraphId::DEEP_FWD_BWD, GraphId::FIRST_LAYER_BWD_B});
    for (const GraphId id : {GraphId::INF_MAIN_A, GraphId::INF_MAIN_B, GraphId::INF_EMA_A, GraphId::INF_EMA_B}) {
      check_sequence({id});
    }
    check_sequence({GraphId::SIMPLE_TASK_GRAPH}, External::allowed);
    check_slot_pair(GraphId::FIRST_LAYER_FWD_A, GraphId::FIRST_LAYER_FWD_B);
    check_slot_pair(GraphId::FIRST_LAYER_BWD_A, GraphId::FIRST_LAYER_BWD_B);
    check_slot_pair(GraphId::INF_MAIN_A, GraphId::INF_MAIN_B);
    check_slot_pair(GraphId::INF_EMA_A, GraphId::INF_EMA_B);
    if (!graph_.empty(GraphId::DEEP_FWD_BWD)) {
      check_gradients();
      check_events();
      check_updates();
    }
  }

 private:
  void check_tables() const {
    const auto tensors = static_cast<TensorId>(graph_.tensors().size());
    const auto require = [&](bool good, const std::string& what) {
      if (!good) throw InternalError(what, "a table of the graph refers to a tensor with another role");
    };
    const auto is = [&](TensorId id, TensorRole role) {
      return id >= 0 && id < tensors && graph_.tensor(id).role == role;
    };
    const bool averages = graph_.options().ema_decay > 0.0;
    const auto is_average = [&](TensorId id, TensorRole role) {
      return averages ? is(id, role) && graph_.tensor(id).average : id == kNoTensor;
    };
    for (std::size_t i = 0; i < graph_.params().size(); ++i) {
      const ParamInfo& param = graph_.params()[i];
      require(is(param.weight, TensorRole::weight) && is(param.grad, TensorRole::grad) &&
                  is(param.momentum, TensorRole::momentum) &&
                  (param.second_moment == kNoTensor || is(param.second_moment, TensorRole::second_moment)),
              "parameter '" + param.name + "' lacks a tensor");
      for (const TensorId id : {param.weight, param.grad, param.momentum, param.second_moment}) {
        if (id == kNoTensor) continue;
        require(graph_.tensor(id).param == static_cast<std::int32_t>(i),
                "parameter '" + param.name + "' is not its tensor's");
      }
      require(is_average(param.ema, TensorRole::weight), "the average of parameter '" + param.name + "'");
      require(param.bucket >= 0 && param.bucket <= graph_.deep_buckets() &&
                  param.first_layer == (param.bucket == graph_.deep_buckets()),
              "parameter '" + param.name + "' is in bucket " + std::to_string(param.bucket));
    }
    for (const NormInfo& norm : graph_.norms()) {
      require(is(norm.running_mean, TensorRole::running_mean) && is(norm.running_var, TensorRole::running_var) &&
                  is(norm.batch_mean, TensorRole::batch_mean) && is(norm.batch_var, TensorRole::batch_var) &&
                  is(norm.folded_scale, TensorRole::folded_scale) && is(norm.folded_bias, TensorRole::folded_bias),
              "batch norm '" + norm.name + "' lacks a tensor");
      require(is_average(norm.ema_mean, TensorRole::running_mean) &&
                  is_average(norm.ema_var, TensorRole::running_var) &&
                  is_average(norm.ema_scale, TensorRole::folded_scale) &&
                  is_average(norm.ema_bias, TensorRole::folded_bias),
              "the averages of batch norm '" + norm.name + "'");
      const auto params = static_cast<std::int32_t>(graph_.params().size());
      require(norm.scale_param >= 0 && norm.scale_param < params && norm.bias_param >= 0 && norm.bias_param < params,
              "batch norm '" + norm.name + "' lacks a parameter");
    }
  }

  void check_graph(GraphId id) const {
    const std::vector<Node>& nodes = graph_.nodes(id);
    int part = 0;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const Node& node = nodes[i];
      if (node.is_compute()) {
        check_compute_node(graph_, id, std::get<ComputeNode>(node.work));
      } else {
        check_range_node(id, std::get<RangeNode>(node.work));
      }
      if (node.branch < 0) fail_node(id, node.name(), "its branch is negative");
      if (node.part != part && node.part != part + (i > 0 ? 1 : 0))
        fail_node(id, node.name(), "parts must rise one by one from 0");
      part = node.part;
      if (part > 0 && !may_have_parts(id)) fail_node(id, node.name(), "this graph has one part");
      if (node.records_event >= 0 && (id != GraphId::DEEP_FWD_BWD || node.records_event >= graph_.deep_buckets())) {
        fail_node(id, node.name(), "it records event " + std::to_string(node.records_event) + ", which does not exist");
      }
      for (const std::int32_t wait : node.waits) {
        if (wait < 0 || wait >= static_cast<std::int32_t>(i))
          fail_node(id, node.name(), "it waits for a node that is not earlier");
        if (nodes[static_cast<std::size_t>(wait)].branch == node.branch) {
          fail_node(id, node.name(), "it waits for a node of its own branch");
        }
      }
    }
    if (has_bucket_parts(id) && !nodes.empty() && graph_.part_count(id) != graph_.deep_buckets()) {
      fail_node(id, nodes.back().name(), "there must be one part for each deep bucket");
    }
  }

  /// Whether tensors that no node writes may be read: the caller of a hand-built graph fills them before each launch.
  enum class External { refused, allowed };

  /// One writer for each tensor, and every read after its write along happens-before.
  void check_sequence(const std::vector<GraphId>& ids, External external = External::refused) const {
    struct Writer {
      std::size_t graph;
      std::int32_t node;
    };
    std::map<TensorId, Writer> writers;
    std::set<TensorId> filled_by_caller;
    for (std::size_t g = 0; g < ids.size(); ++g) {
      const std::vector<Node>& nodes = graph_.nodes(ids[g]);
      const HappensBefore order(nodes);
      for (std::int32_t i = 0; i < order.size(); ++i) {
        const auto* node = std::get_if<ComputeNode>(&nodes[static_cast<std::size_t>(i)].work);
        if (node == nullptr) continue;
        for (const TensorId input : node->inputs) {
          const TensorInfo& info = graph_.tensor(input);
          if (!written_in_step(info.role)) continue;
          const auto writer = writers.find(input);
          if (writer == writers.end()) {
            if (external == External::refused)
              fail_node(ids[g], node->name, "it reads '" + info.name + "' before anything wrote it");
            filled_by_caller.insert(input);
            continue;
          }
          if (writer->second.graph == g && !order.before(writer->second.node, i)) {
            fail_node(ids[g], node->name, "nothing orders it after the writer of '" + info.name + "'");
          }
        }
        for (const TensorId output : node->outputs) {
          if (filled_by_caller.contains(output)) {
            fail_node(ids[g], node->name, "it writes '" + graph_.tensor(output).name + "' after it was read");
          }
          if (!writers.try_emplace(output, Writer{g, i}).second) {
            fail_node(ids[g], node->name, "'" + graph_.tensor(output).name + "' has two writers");
          }
        }
      }
    }
  }

  /// A and B differ in the slot that they read, and in nothing else.
  void check_slot_pair(GraphId id_a, GraphId id_b) const {
    const std::vector<Node>&a = graph_.nodes(id_a), &b = graph_.nodes(id_b);
    if (a.size() != b.size()) {
      throw InternalError("graphs " + std::string(graph_id_name(id_a)) + " and " + std::string(graph_id_name(id_b)),
                          "they differ in length");
    }
    for (std::size_t i = 0; i < a.size(); ++i) {
      const auto *left = std::get_if<ComputeNode>(&a[i].work), *right = std::get_if<ComputeNode>(&b[i].work);
      if (left == nullptr || right == nullptr) fail_node(id_b, b[i].name(), "it must be a COMPUTE node");
      std::vector<TensorId> inputs = left->inputs;
      std::replace(inputs.begin(), inputs.end(), graph_.parts().slot_a, graph_.parts().slot_b);
      const bool same = left->name == right->name && left->op == right->op && left->pass == right->pass &&
                        print(left->params) == print(right->params) && inputs == right->inputs &&
                        left->outputs == right->outputs && a[i].branch == b[i].branch && a[i].waits == b[i].waits;
      if (!same) fail_node(id_b, right->name, "it differs from its twin for slot A");
    }
  }

  /// Every parameter's gradient is written, in the graph that its bucket says.
  void check_gradients() const {
    std::set<TensorId> deep, first;
    collect_outputs(GraphId::DEEP_FWD_BWD, deep);
    collect_outputs(GraphId::FIRST_LAYER_BWD_A, first);
    for (const ParamInfo& param : graph_.params()) {
      const bool written = (param.first_layer ? first : deep).contains(param.grad);
      if (!written) {
        throw InternalError("no gradient for parameter '" + param.name + "'",
                            param.first_layer ? "FIRST_LAYER_BWD does not write it" : "DEEP_FWD_BWD does not write it");
      }
    }
  }

  /// Each segment's weights are updated by one node, so that the graphs of LARS may run at the same time.
  void check_updates() const {
    std::map<std::string, int> updates;
    for (const GraphId id : kUpdateGraphs) {
      for (const Node& node : graph_.nodes(id)) {
        const auto* work = std::get_if<RangeNode>(&node.work);
        if (work == nullptr) fail_node(id, node.name(), "it must be a RANGE node");
        for (const std::string& output : work->outputs) ++updates[output];
      }
    }
    for (const Segment& segment : parameter_segments(graph_)) {
      const std::string name = region_name::child(region_name::kWeights, segment.name);
      if (updates[name] == 1) continue;
      throw InternalError("region '" + name + "'", std::to_string(updates[name]) + " nodes update it, not one");
    }
  }

  void collect_outputs(GraphId id, std::set<TensorId>& outputs) const {
    for (const Node& node : graph_.nodes(id)) {
      const auto& work = std::get<ComputeNode>(node.work);
      outputs.insert(work.outputs.begin(), work.outputs.end());
    }
  }

  /// Each deep bucket's event is recorded once, after all of the bucket's gradients.
  void check_events() const {
    const GraphId id = GraphId::DEEP_FWD_BWD;
    const std::vector<Node>& nodes = graph_.nodes(id);
    const HappensBefore order(nodes);
    std::vector<std::int32_t> recorder(static_cast<std::size_t>(graph_.deep_buckets()), -1);
    for (std::int32_t i = 0; i < order.size(); ++i) {
      const Node& node = nodes[static_cast<std::size_t>(i)];
      if (node.records_event < 0) continue;
      std::int32_t& slot = recorder[static_cast<std::size_t>(node.records_event)];
      if (slot >= 0) fail_node(id, node.name(), "event " + std::to_string(node.records_event) + " is recorded twice");
      slot = i;
    }
    for (std::int32_t i = 0; i < order.size(); ++i) {
      const auto& work = std::get<ComputeNode>(nodes[static_cast<std::size_t>(i)].work);
      for (const TensorId output : work.outputs) {
        const TensorInfo& info = graph_.tensor(output);
        if (info.role != TensorRole::grad) continue;
        const int bucket = graph_.params()[static_cast<std::size_t>(info.param)].bucket;
        const std::int32_t event = recorder[static_cast<std::size_t>(bucket)];
        if (event < 0 || (event != i && !order.before(i, event))) {
          fail_node(id, work.name, "the event of bucket " + std::to_string(bucket) + " does not cover it");
        }
      }
    }
    for (std::size_t b = 0; b < recorder.size(); ++b) {
      if (recorder[b] < 0) throw InternalError("DEEP_FWD_BWD records no event for bucket " + std::to_string(b), "");
    }
  }

  const ComputationGraph& graph_;
};

}  // namespace

void verify(const ComputationGraph& graph) { Verifier(graph).run(); }

}  // namespace renai
