#pragma once
// Which tensors of a kernel book are one value (views) and which merely lie in one storage (in-place kernels).

#include <algorithm>
#include <set>
#include <vector>

#include "renai/plan/kernel_book.hpp"

namespace renai::testing_support {

class SharedValues {
 public:
  SharedValues(const ComputationGraph& graph, const KernelBook& book) : book_(book) {
    std::set<std::pair<TensorId, TensorId>> views;
    for (int i = 0; i < kGraphIdCount; ++i) {
      for (const Node& node : graph.nodes(static_cast<GraphId>(i))) {
        const auto* work = std::get_if<ComputeNode>(&node.work);
        if (work != nullptr && work->op == OpKind::flatten) views.emplace(work->outputs[0], work->inputs[0]);
      }
    }
    const std::size_t tensors = graph.tensors().size() + book.tensors.size();
    for (std::size_t t = 0; t < tensors; ++t) first_.push_back(static_cast<int>(t));
    for (bool changed = true; changed;) {
      changed = false;
      for (const StorageAlias& alias : book.aliases) {
        if (!views.contains({alias.out, alias.in})) continue;
        int &a = first_[static_cast<std::size_t>(alias.out)], &b = first_[static_cast<std::size_t>(alias.in)];
        if (a != b) changed = true;
        a = b = std::min(a, b);
      }
    }
  }

  /// The first tensor with the same value.
  int value(TensorId tensor) const { return first_[static_cast<std::size_t>(tensor)]; }

  /// True when the kernel itself writes in place over this input.
  bool written_over(const KernelEntry& entry, TensorId input) const {
    return std::any_of(entry.outputs.begin(), entry.outputs.end(), [&](TensorId output) {
      return value(output) != value(input) && storage(output) == storage(input);
    });
  }
  bool written_over(GraphId id, TensorId tensor) const {
    const auto& entries = book_.of(id);
    return std::any_of(entries.begin(), entries.end(),
                       [&](const KernelEntry& entry) { return written_over(entry, tensor); });
  }

 private:
  /// The tensor at the end of the chain of aliases: one for each storage.
  TensorId storage(TensorId tensor) const {
    for (bool changed = true; changed;) {
      changed = false;
      for (const StorageAlias& alias : book_.aliases) {
        if (alias.out != tensor) continue;
        tensor = alias.in;
        changed = true;
      }
    }
    return tensor;
  }

  const KernelBook& book_;
  std::vector<int> first_;
};

}  // namespace renai::testing_support
