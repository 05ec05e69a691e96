#pragma once
// Runs a memory plan without kernels: entries start and end in a random order that branches and waits allow, claim what
// they write, and must find what they read untouched from their start to their end. Shares no code with planner and
// verifier.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "random_schedule.hpp"
#include "renai/plan/memory_plan.hpp"
#include "shared_values.hpp"

namespace renai::testing_support {

class ArenaReplay {
 public:
  ArenaReplay(const PlanRequest& request, const MemoryPlan& plan, std::size_t spec, RandomSource& random)
      : graph_(*request.graph),
        book_(*request.book),
        plan_(plan),
        spec_(spec),
        random_(random),
        owner_(static_cast<std::size_t>(plan.arena_bytes / kSlotAlignment), 0),
        values_(graph_, book_) {}

  /// The first problem, or "".
  std::string run() {
    claim_initial();
    using Passes = std::vector<std::vector<GraphId>>;
    const Passes training{{GraphId::FIRST_LAYER_FWD_A, GraphId::DEEP_FWD_BWD, GraphId::FIRST_LAYER_BWD_A},
                          {GraphId::FIRST_LAYER_FWD_B, GraphId::DEEP_FWD_BWD, GraphId::FIRST_LAYER_BWD_B}};
    const Passes inference{{GraphId::INF_MAIN_A}, {GraphId::INF_MAIN_B}, {GraphId::INF_EMA_A}, {GraphId::INF_EMA_B}};
    start(GraphId::ZERO_GRAD, 0);  // Runs on another stream: beside everything.
    for (const auto& pass : plan_.spec.kind == VariantKind::training ? training : inference) run_pass(pass);
    claim_external();
    run_pass({GraphId::SIMPLE_TASK_GRAPH});
    for (const KernelEntry& entry : book_.of(GraphId::SIMPLE_TASK_GRAPH)) {
      for (const TensorId tensor : external_) {
        if (!values_.written_over(GraphId::SIMPLE_TASK_GRAPH, tensor)) check(tensor, "the caller's input");
      }
      for (const TensorId tensor : entry.outputs) {
        if (!read_in_simple(tensor)) check(tensor, "the caller's result");
      }
    }
    end(GraphId::ZERO_GRAD, 0);
    for (std::size_t t = 0; t < graph_.tensors().size(); ++t) {
      if (!is_transient(graph_.tensors()[t].role)) check(static_cast<TensorId>(t), "a tensor with its own place");
    }
    return problem_;
  }

 private:
  /// Calls visit(owner) for each slot of the interval; the arena's end is a problem of its own.
  template <typename Visit>
  void visit_slots(std::int64_t offset, std::int64_t size, const std::string& what, const Visit& visit) {
    for (std::int64_t at = offset / kSlotAlignment; at * kSlotAlignment < offset + size; ++at) {
      if (static_cast<std::size_t>(at) < owner_.size()) {
        visit(owner_[static_cast<std::size_t>(at)]);
      } else if (problem_.empty()) {
        problem_ = plan_.spec.name + ": " + what + " lies outside the arena";
      }
    }
  }

  void claim(std::int64_t offset, std::int64_t size, int tag) {
    visit_slots(offset, size, "a claim", [&](int& owner) { owner = tag; });
  }

  void check(std::int64_t offset, std::int64_t size, int tag, const std::string& what) {
    visit_slots(offset, size, what, [&](int owner) {
      if (owner == tag || !problem_.empty()) return;
      problem_ = plan_.spec.name + ": " + what + " was overwritten by " + std::to_string(owner - 1);
    });
  }

  int tag(TensorId tensor) const { return 1 + values_.value(tensor); }
  void claim(TensorId tensor) {
    const DTensor& at = plan_.tensor(tensor);
    if (at.placed()) claim(at.offset_bytes, at.size_bytes, tag(tensor));
  }
  void check(TensorId tensor, const std::string& what) {
    const DTensor& at = plan_.tensor(tensor);
    if (at.placed()) check(at.offset_bytes, at.size_bytes, tag(tensor), what + " %" + std::to_string(tensor));
  }

  /// Tensors with a place of their own, and book tensors that no pass of COMPUTE writes.
  void claim_initial() {
    std::vector<bool> written(plan_.tensors.size(), false);
    for (int i = 0; i < kGraphIdCount; ++i) {
      for (const KernelEntry& entry : book_.of(static_cast<GraphId>(i))) {
        for (const TensorId tensor : entry.outputs) written[static_cast<std::size_t>(tensor)] = true;
      }
    }
    for (std::size_t t = 0; t < plan_.tensors.size(); ++t) {
      const bool in_graph = t < graph_.tensors().size();
      if (in_graph ? !is_transient(graph_.tensors()[t].role) : !written[t]) claim(static_cast<TensorId>(t));
    }
  }

  void claim_external() {
    std::vector<bool> written(plan_.tensors.size(), false);
    for (const KernelEntry& entry : book_.of(GraphId::SIMPLE_TASK_GRAPH)) {
      for (const TensorId tensor : entry.inputs) {
        if (!written[static_cast<std::size_t>(tensor)] && tensor < static_cast<TensorId>(graph_.tensors().size())) {
          claim(tensor);
          external_.push_back(tensor);
        }
      }
      for (const TensorId tensor : entry.outputs) written[static_cast<std::size_t>(tensor)] = true;
    }
  }

  bool read_in_simple(TensorId tensor) const {
    for (const KernelEntry& entry : book_.of(GraphId::SIMPLE_TASK_GRAPH)) {
      if (std::find(entry.inputs.begin(), entry.inputs.end(), tensor) != entry.inputs.end()) return true;
    }
    return false;
  }

  template <typename Visit>
  void visit_workspace(GraphId id, std::size_t e, const Visit& visit) {
    const KernelEntry& entry = book_.of(id)[e];
    const std::int64_t size = entry.workspace_bytes.empty() ? 0 : entry.workspace_bytes[spec_];
    const int tag = static_cast<int>(plan_.tensors.size() + 1 + e) + 100000 * (1 + static_cast<int>(id));
    if (size > 0) visit(plan_.workspace_offset[static_cast<std::size_t>(id)][e].at(0), size, tag);
  }

  void start(GraphId id, std::size_t e) {
    const KernelEntry& entry = book_.of(id)[e];
    for (const TensorId tensor : entry.inputs) check(tensor, "an input at its start,");
    for (const TensorId tensor : entry.outputs) claim(tensor);
    visit_workspace(id, e, [&](std::int64_t at, std::int64_t size, int tag) { claim(at, size, tag); });
  }

  void end(GraphId id, std::size_t e) {
    const KernelEntry& entry = book_.of(id)[e];
    for (const TensorId tensor : entry.inputs) {
      if (!values_.written_over(entry, tensor)) check(tensor, "an input at its end,");
    }
    for (const TensorId tensor : entry.outputs) check(tensor, "an output at its end,");
    visit_workspace(id, e, [&](std::int64_t at, std::int64_t size, int tag) { check(at, size, tag, "a workspace"); });
  }

  void run_pass(const std::vector<GraphId>& pass) {
    for (const GraphId id : pass) run_graph(id);
  }

  /// Starts and ends entries in a random order that the schedule allows.
  void run_graph(GraphId id) {
    const std::vector<KernelEntry>& entries = book_.of(id);
    const std::vector<Node>& nodes = graph_.nodes(id);
    std::vector<std::size_t> entry_of(nodes.size());
    std::vector<std::vector<std::size_t>> needs(entries.size());
    std::map<int, std::size_t> last;
    for (std::size_t e = 0; e < entries.size(); ++e) {
      for (const std::int32_t node : entries[e].nodes) entry_of[static_cast<std::size_t>(node)] = e;
      const Node& leader = nodes[static_cast<std::size_t>(entries[e].nodes.front())];
      if (const auto before = last.find(leader.branch); before != last.end()) needs[e].push_back(before->second);
      for (const std::int32_t wait : leader.waits) needs[e].push_back(entry_of[static_cast<std::size_t>(wait)]);
      last[leader.branch] = e;
    }
    std::vector<bool> started(entries.size(), false), ended(entries.size(), false);
    for (std::size_t left = 2 * entries.size(); left > 0; --left) {
      std::vector<std::size_t> can_move;
      for (std::size_t e = 0; e < entries.size(); ++e) {
        const bool ready = std::all_of(needs[e].begin(), needs[e].end(), [&](std::size_t n) { return ended[n]; });
        if (!ended[e] && ready) can_move.push_back(e);
      }
      const std::size_t e = random_.pick(can_move);
      started[e] ? end(id, e) : start(id, e);
      (started[e] ? ended : started)[e] = true;
    }
  }

  const ComputationGraph& graph_;
  const KernelBook& book_;
  const MemoryPlan& plan_;
  std::size_t spec_;
  RandomSource& random_;
  std::vector<int> owner_;
  SharedValues values_;
  std::vector<TensorId> external_;
  std::string problem_;
};

}  // namespace renai::testing_support
