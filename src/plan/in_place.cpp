#include "in_place.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "program_order.hpp"
#include "renai/base/error.hpp"
#include "union_find.hpp"

namespace renai::plan_detail {
namespace {

/// Entries of one pass that touch a value, and those of them that write it, as program indices.
struct Uses {
  std::vector<std::size_t> uses, writers;
  bool result = false;  ///< Nobody reads it in the caller's graph: the caller does.
};

class InPlaceCheck {
 public:
  InPlaceCheck(const KernelBook& book, const ComputationGraph& graph)
      : book_(book),
        graph_(graph),
        values_(graph.tensors().size() + book.tensors.size()),
        storages_(graph.tensors().size() + book.tensors.size()) {}

  void run() {
    if (book_.aliases.empty()) return;
    const std::map<TensorId, TensorId> views = find_views();
    for (const StorageAlias& alias : book_.aliases) {
      const auto out = static_cast<std::size_t>(alias.out), in = static_cast<std::size_t>(alias.in);
      storages_.join(out, in);
      const auto view = views.find(alias.out);
      if (view != views.end() && view->second == alias.in) values_.join(out, in);
    }
    for (const Family family : {Family::training, Family::inference, Family::simple}) {
      for (const ShardPass& pass : passes_of(family)) check_pass(pass);
    }
  }

 private:
  /// Output of each flatten node -> its input.
  std::map<TensorId, TensorId> find_views() const {
    std::map<TensorId, TensorId> views;
    for (int i = 0; i < kGraphIdCount; ++i) {
      for (const Node& node : graph_.nodes(static_cast<GraphId>(i))) {
        const auto* work = std::get_if<ComputeNode>(&node.work);
        if (work != nullptr && work->op == OpKind::flatten) views[work->outputs[0]] = work->inputs[0];
      }
    }
    return views;
  }

  /// Values by storage, for storages with more than one.
  std::map<std::size_t, std::map<std::size_t, Uses>> find_uses(const ShardPass& pass) {
    std::map<std::size_t, std::map<std::size_t, Uses>> uses;
    for (const StorageAlias& alias : book_.aliases) uses[storages_.find(static_cast<std::size_t>(alias.out))];
    std::size_t index = 0;
    const auto note = [&](TensorId tensor, bool writes) {
      const auto t = static_cast<std::size_t>(tensor);
      const auto storage = uses.find(storages_.find(t));
      if (storage == uses.end()) return;
      Uses& value = storage->second[values_.find(t)];
      value.uses.push_back(index);
      if (writes) value.writers.push_back(index);
    };
    for (const GraphId id : pass) {
      for (const KernelEntry& entry : book_.of(id)) {
        for (const TensorId tensor : entry.inputs) note(tensor, false);
        for (const TensorId tensor : entry.outputs) note(tensor, true);
        ++index;
      }
    }
    if (pass[0] == GraphId::SIMPLE_TASK_GRAPH) mark_results(uses);
    return uses;
  }

  void mark_results(std::map<std::size_t, std::map<std::size_t, Uses>>& uses) {
    std::set<TensorId> read;
    const std::vector<KernelEntry>& entries = book_.of(GraphId::SIMPLE_TASK_GRAPH);
    for (const KernelEntry& entry : entries) read.insert(entry.inputs.begin(), entry.inputs.end());
    for (const KernelEntry& entry : entries) {
      for (const TensorId tensor : entry.outputs) {
        const auto t = static_cast<std::size_t>(tensor);
        const auto storage = uses.find(storages_.find(t));
        if (storage != uses.end() && !read.contains(tensor)) storage->second[values_.find(t)].result = true;
      }
    }
  }

  void check_pass(const ShardPass& pass) {
    const ProgramOrder order(graph_, book_, pass);
    for (const auto& [storage, values] : find_uses(pass)) {
      for (const auto& [overwritten, of_overwritten] : values) {
        for (const auto& [value, uses] : values) {
          if (value != overwritten) check_pair(order, overwritten, of_overwritten, value, uses);
        }
      }
    }
  }

  void check_pair(const ProgramOrder& order, std::size_t overwritten, const Uses& kept, std::size_t value,
                  const Uses& writing) const {
    for (const std::size_t writer : writing.writers) {
      // Before all of the other's writers: what it leaves is overwritten in turn.
      const bool earlier =
          !kept.writers.empty() && std::all_of(kept.writers.begin(), kept.writers.end(),
                                               [&](std::size_t other) { return order.before(writer, other); });
      if (earlier) continue;
      if (kept.result) fail_overwritten(overwritten, value);
      for (const std::size_t use : kept.uses) {
        const bool writes_both = std::find(kept.writers.begin(), kept.writers.end(), writer) != kept.writers.end();
        if ((use == writer && !writes_both) || order.before(use, writer)) continue;
        fail_overwritten(overwritten, value);
      }
    }
  }

  [[noreturn]] void fail_overwritten(std::size_t overwritten, std::size_t value) const {
    throw InternalError(
        "kernel book of backend '" + book_.backend + "'",
        "'" + name(value) + "' is written in place over '" + name(overwritten) + "', which may be used then or later");
  }

  const std::string& name(std::size_t tensor) const {
    const std::size_t in_graph = graph_.tensors().size();
    return tensor < in_graph ? graph_.tensors()[tensor].name : book_.tensors[tensor - in_graph].name;
  }

  const KernelBook& book_;
  const ComputationGraph& graph_;
  UnionFind values_, storages_;
};

}  // namespace

void check_in_place(const KernelBook& book, const ComputationGraph& graph) { InPlaceCheck(book, graph).run(); }

}  // namespace renai::plan_detail
