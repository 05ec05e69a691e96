#pragma once
// Random kernel books, variants and shapes for random graphs.

#include "random_schedule.hpp"
#include "renai/base/error.hpp"
#include "renai/graph/shape_inference.hpp"

namespace renai::testing_support {

class RandomBook {
 public:
  RandomBook(RandomSource& random, const ComputationGraph& graph, const std::vector<CompileSpec>& specs)
      : random_(random), graph_(graph), specs_(specs) {}

  KernelBook build() {
    book_.backend = "random";
    book_.entries.resize(kGraphIdCount);
    for (int i = 0; i < kGraphIdCount; ++i) count_readers(static_cast<GraphId>(i));
    for (int i = 0; i < kGraphIdCount; ++i) add_entries(static_cast<GraphId>(i));
    add_aliases();
    for (const GraphId id : {GraphId::DEEP_FWD_BWD, GraphId::INF_MAIN_A, GraphId::SIMPLE_TASK_GRAPH}) add_saved(id);
    add_lasting();
    add_dtypes();
    if (random_.chance(30)) {
      book_.padded_c.assign(graph_.tensors().size(), 0);
      for (std::int64_t& padded : book_.padded_c) padded = random_.chance(30) ? random_.between(1, 300) : 0;
    }
    return std::move(book_);
  }

 private:
  void count_readers(GraphId id) {
    for (const Node& node : graph_.nodes(id)) {
      if (!node.is_compute()) continue;
      for (const TensorId input : std::get<ComputeNode>(node.work).inputs) ++readers_[input];
    }
  }

  /// Bytes by spec: 0 where the family does not run the graph, or sometimes by chance.
  std::vector<std::int64_t> sizes(GraphId id) {
    std::vector<std::int64_t> bytes;
    for (const CompileSpec& spec : specs_) {
      const GraphFamily family = graph_family(id);
      const bool runs = family == GraphFamily::training    ? spec.kind == VariantKind::training
                        : family == GraphFamily::inference ? spec.kind == VariantKind::validation
                                                           : true;
      bytes.push_back(runs && random_.chance(90) ? random_.between(1, 3000) : 0);
    }
    return bytes;
  }

  void add_entries(GraphId id) {
    const std::vector<Node>& nodes = graph_.nodes(id);
    const HappensBefore order(nodes);
    std::vector<KernelEntry>& entries = book_.entries[static_cast<std::size_t>(id)];
    std::map<int, std::size_t> last_of_branch;
    for (std::int32_t i = 0; i < order.size(); ++i) {
      const Node& node = nodes[static_cast<std::size_t>(i)];
      const auto last = last_of_branch.find(node.branch);
      const bool fuse = last != last_of_branch.end() && random_.chance(25) &&
                        std::all_of(node.waits.begin(), node.waits.end(), [&](std::int32_t wait) {
                          return order.before(wait, entries[last->second].nodes.front());
                        });
      if (!fuse) {
        last_of_branch[node.branch] = entries.size();
        entries.push_back({{}, "random", {}, {}, {}});
      }
      entries[last_of_branch[node.branch]].nodes.push_back(i);
    }
    for (KernelEntry& entry : entries) {
      touch_tensors(nodes, entry);
      if (random_.chance(40)) entry.workspace_bytes = sizes(id);
    }
  }

  /// What the fused kernel reads and writes; a tensor that stays inside it may get no memory.
  void touch_tensors(const std::vector<Node>& nodes, KernelEntry& entry) {
    std::map<TensorId, int> inside;
    std::set<TensorId> inputs, outputs;
    for (const std::int32_t index : entry.nodes) {
      const auto* work = std::get_if<ComputeNode>(&nodes[static_cast<std::size_t>(index)].work);
      if (work == nullptr) continue;
      for (const TensorId input : work->inputs) {
        ++inside[input];
        if (!outputs.contains(input)) inputs.insert(input);
      }
      outputs.insert(work->outputs.begin(), work->outputs.end());
    }
    for (const TensorId output : outputs) {
      const bool hidden = inside.contains(output) && inside[output] == readers_[output] && random_.chance(60);
      if (!hidden) entry.outputs.push_back(output);
    }
    entry.inputs.assign(inputs.begin(), inputs.end());
  }

  /// Views, and in-place kernels where nobody reads the overwritten value later (the replay checks that on its own).
  void add_aliases() {
    std::set<TensorId> aliased;
    for (int i = 0; i < kGraphIdCount; ++i) {
      for (const KernelEntry& entry : book_.of(static_cast<GraphId>(i))) {
        if (entry.inputs.size() != 1 || entry.outputs.size() != 1 || !random_.chance(30)) continue;
        if (!is_transient(graph_.tensor(entry.inputs[0]).role)) continue;
        if (!aliased.insert(entry.outputs[0]).second) continue;
        book_.aliases.push_back({entry.outputs[0], entry.inputs[0]});
        try {
          verify(book_, graph_, static_cast<int>(specs_.size()));
        } catch (const InternalError&) {
          book_.aliases.pop_back();
        }
      }
    }
  }

  /// Sometimes half types for transient tensors, equal ones for aliases.
  void add_dtypes() {
    if (!random_.chance(40)) return;
    for (std::size_t t = 0; t < graph_.tensors().size(); ++t) {
      const TensorRole role = graph_.tensors()[t].role;
      const bool half = (role == TensorRole::activation || role == TensorRole::activation_grad) && random_.chance(50);
      book_.dtypes.push_back(half ? random_.chance(50) ? DType::bf16 : DType::f16 : tensor_dtype(role));
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (const StorageAlias& alias : book_.aliases) {
        DType& out = book_.dtypes[static_cast<std::size_t>(alias.out)];
        DType& in = book_.dtypes[static_cast<std::size_t>(alias.in)];
        if (out == in) continue;
        out = in = DType::f32;
        changed = true;
      }
    }
  }

  TensorId new_book_tensor(GraphId id) {
    book_.tensors.push_back({"saved" + std::to_string(book_.tensors.size()), sizes(id)});
    return static_cast<TensorId>(graph_.tensors().size() + book_.tensors.size()) - 1;
  }

  /// Tensors that one kernel saves for a later one.
  void add_saved(GraphId id) {
    std::vector<KernelEntry>& entries = book_.entries[static_cast<std::size_t>(id)];
    const HappensBefore order(graph_.nodes(id));
    for (std::size_t from = 0; from < entries.size(); ++from) {
      if (!random_.chance(15)) continue;
      const TensorId saved = new_book_tensor(id);
      entries[from].outputs.push_back(saved);
      for (std::size_t to = from + 1; to < entries.size(); ++to) {
        if (!order.before(entries[from].nodes.front(), entries[to].nodes.front()) || !random_.chance(20)) continue;
        entries[to].inputs.push_back(saved);
      }
    }
  }

  /// Values that passes read and none writes, or that the UPDATE graph writes: live all the time.
  void add_lasting() {
    for (const bool updated : {false, true}) {
      if (!random_.chance(40)) continue;
      const TensorId lasting = new_book_tensor(GraphId::ZERO_GRAD);
      if (updated) book_.entries[static_cast<std::size_t>(GraphId::ZERO_GRAD)][0].outputs.push_back(lasting);
      random_entry(GraphId::DEEP_FWD_BWD).inputs.push_back(lasting);
      if (random_.chance(50)) random_entry(GraphId::INF_MAIN_A).inputs.push_back(lasting);
    }
  }

  KernelEntry& random_entry(GraphId id) {
    std::vector<KernelEntry>& entries = book_.entries[static_cast<std::size_t>(id)];
    return entries[static_cast<std::size_t>(random_.between(0, static_cast<std::int64_t>(entries.size()) - 1))];
  }

  RandomSource& random_;
  const ComputationGraph& graph_;
  const std::vector<CompileSpec>& specs_;
  KernelBook book_;
  std::map<TensorId, int> readers_;
};

/// Six variants with random rows; sizes of a tensor grow and shrink from variant to variant.
inline RandomCase random_case(std::uint64_t seed, int most_nodes = 24) {
  RandomSource random(seed);
  ComputationGraph graph = RandomGraph(random, most_nodes).build();
  std::vector<CompileSpec> specs;
  for (const char* name : {"train_base", "train_last", "train_lowres", "train_lowres_last", "val_base", "val_last"}) {
    const auto kind = specs.size() < 4 ? VariantKind::training : VariantKind::validation;
    specs.push_back({name, kind, {random.between(1, 4), 2, 2, 1}, specs.size() % 2 == 1});
  }
  ShapeTable shapes(specs.size(), std::vector<Shape>(graph.tensors().size()));
  for (std::size_t t = 0; t < graph.tensors().size(); ++t) {
    if (!is_transient(graph.tensors()[t].role)) continue;
    const std::int64_t width = random.between(1, 250);
    for (std::size_t s = 0; s < specs.size(); ++s) shapes[s][t] = {specs[s].shape.n, width + random.between(0, 50)};
  }
  KernelBook book = RandomBook(random, graph, specs).build();
  return {std::move(graph), std::move(book), std::move(specs), std::move(shapes), SlotLayout::make(4, 2, 2, 1)};
}

}  // namespace renai::testing_support
