#pragma once
// Random computation graphs with random branch schedules, and random kernel books for them: fused entries, workspaces,
// saved tensors, aliases, padding. Deterministic: a pure function of the seed.

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "renai/graph/happens_before.hpp"
#include "renai/graph/region_name.hpp"
#include "renai/plan/memory_plan.hpp"

namespace renai::testing_support {

/// Everything that a planning request refers to.
struct RandomCase {
  ComputationGraph graph;
  KernelBook book;
  std::vector<CompileSpec> specs;
  ShapeTable shapes;
  SlotLayout slot;

  PlanRequest request() const {
    PlanRequest request;
    request.graph = &graph;
    request.book = &book;
    request.specs = specs;
    request.shapes = &shapes;
    request.slot = slot;
    return request;
  }
};

class RandomSource {
 public:
  explicit RandomSource(std::uint64_t seed) : engine_(seed) {}
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return between(1, 100) <= percent; }
  template <typename T>
  const T& pick(const std::vector<T>& values) {
    return values[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(values.size()) - 1))];
  }

 private:
  std::mt19937_64 engine_;
};

/// Builds the graph: training passes, inference, sometimes a hand-built graph with external inputs, one UPDATE graph.
class RandomGraph {
 public:
  RandomGraph(RandomSource& random, int most_nodes) : random_(random), most_nodes_(most_nodes) {}

  ComputationGraph build() {
    parts_.nodes.resize(kGraphIdCount);
    parts_.options.logical_shards = 8;
    parts_.slot_a = tensor("slot_a", TensorRole::slot);
    parts_.slot_b = tensor("slot_b", TensorRole::slot);
    std::vector<TensorId> known;
    fill(GraphId::FIRST_LAYER_FWD_A, known, true, random_.between(0, 3));
    fill(GraphId::DEEP_FWD_BWD, known, false, random_.between(3, most_nodes_));
    fill(GraphId::FIRST_LAYER_BWD_A, known, true, random_.between(1, 4));
    twin(GraphId::FIRST_LAYER_FWD_A, GraphId::FIRST_LAYER_FWD_B);
    twin(GraphId::FIRST_LAYER_BWD_A, GraphId::FIRST_LAYER_BWD_B);
    known.clear();
    fill(GraphId::INF_MAIN_A, known, true, random_.between(2, most_nodes_ / 2 + 2));
    twin(GraphId::INF_MAIN_A, GraphId::INF_MAIN_B);
    if (random_.chance(30)) {
      nodes(GraphId::INF_EMA_A) = nodes(GraphId::INF_MAIN_A);
      twin(GraphId::INF_EMA_A, GraphId::INF_EMA_B);
    }
    if (random_.chance(50)) {
      known = {tensor("external0", TensorRole::activation), tensor("external1", TensorRole::activation)};
      fill(GraphId::SIMPLE_TASK_GRAPH, known, false, random_.between(1, 8));
    }
    Node zero;
    zero.work = RangeNode{"zero", RangeOp::zero, {}, {}, {std::string(region_name::kShardValues)}};
    nodes(GraphId::ZERO_GRAD).push_back(zero);
    return ComputationGraph(std::move(parts_));
  }

 private:
  std::vector<Node>& nodes(GraphId id) { return parts_.nodes[static_cast<std::size_t>(id)]; }

  TensorId tensor(std::string name, TensorRole role) {
    parts_.tensors.push_back({std::move(name), role, -1, -1});
    return static_cast<TensorId>(parts_.tensors.size()) - 1;
  }

  TensorId new_transient() {
    static const std::vector<TensorRole> kRoles{TensorRole::activation, TensorRole::activation_grad, TensorRole::saved};
    return tensor("t" + std::to_string(parts_.tensors.size()), random_.pick(kRoles));
  }

  /// Prefers recent tensors but reaches back to any.
  TensorId pick_input(const std::vector<TensorId>& known) {
    const auto last = static_cast<std::int64_t>(known.size()) - 1;
    const std::int64_t from = random_.chance(60) ? std::max<std::int64_t>(0, last - 3) : 0;
    return known[static_cast<std::size_t>(random_.between(from, last))];
  }

  void fill(GraphId id, std::vector<TensorId>& known, bool reads_slot, std::int64_t count) {
    std::map<TensorId, std::int32_t> writer;
    const auto branches = random_.between(1, 4);
    if (reads_slot) {
      Node input;
      const TensorId x = new_transient();
      input.work =
          ComputeNode{"input", OpKind::normalize_input, renai::Pass::forward, InputParams{}, {parts_.slot_a}, {x}, -1};
      nodes(id).push_back(std::move(input));
      writer[x] = 0;
      known.push_back(x);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      add_node(nodes(id), known, writer, static_cast<int>(branches));
    }
  }

  void add_node(std::vector<Node>& list, std::vector<TensorId>& known, std::map<TensorId, std::int32_t>& writer,
                int branches) {
    ComputeNode work{"n" + std::to_string(list.size()), OpKind::concat, renai::Pass::forward, NoParams{}, {}, {}, -1};
    std::int64_t inputs = 1, outputs = 1;
    switch (random_.between(0, 3)) {
      case 0: work.op = OpKind::flatten; break;
      case 1: work.op = OpKind::add, inputs = 2; break;
      case 2: inputs = random_.between(1, 3); break;
      default: work.pass = renai::Pass::backward, outputs = random_.between(1, 3); break;
    }
    Node node;
    std::set<std::int32_t> waits;
    for (; inputs > 0; --inputs) work.inputs.push_back(pick_input(known));
    const auto follows = writer.find(work.inputs[0]);
    node.branch = follows != writer.end() && random_.chance(50) ? list[static_cast<std::size_t>(follows->second)].branch
                                                                : static_cast<int>(random_.between(0, branches - 1));
    for (const TensorId input : work.inputs) {
      if (const auto from = writer.find(input); from != writer.end()) waits.insert(from->second);
    }
    if (!list.empty() && random_.chance(15)) {
      waits.insert(static_cast<std::int32_t>(random_.between(0, static_cast<std::int64_t>(list.size()) - 1)));
    }
    for (const std::int32_t wait : waits) {
      if (list[static_cast<std::size_t>(wait)].branch != node.branch) node.waits.push_back(wait);
    }
    for (; outputs > 0; --outputs) {
      work.outputs.push_back(new_transient());
      known.push_back(work.outputs.back());
      writer[work.outputs.back()] = static_cast<std::int32_t>(list.size());
    }
    node.work = std::move(work);
    list.push_back(std::move(node));
  }

  void twin(GraphId id_a, GraphId id_b) {
    nodes(id_b) = nodes(id_a);
    for (Node& node : nodes(id_b)) {
      auto& work = std::get<ComputeNode>(node.work);
      std::replace(work.inputs.begin(), work.inputs.end(), parts_.slot_a, parts_.slot_b);
    }
  }

  RandomSource& random_;
  int most_nodes_;
  ComputationGraph::Parts parts_;
};

}  // namespace renai::testing_support
