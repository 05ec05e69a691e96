#pragma once
// Scope: one graph under survey: its nodes and who else reads a tensor. Site: one match of it with its shapes.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "renai/graph/computation_graph.hpp"
#include "renai/graph/happens_before.hpp"
#include "renai/tensor/shape.hpp"

namespace renai::lowering {

struct Match;

/// A node's place: graph and index.
struct NodePlace {
  GraphId id = GraphId::SIMPLE_TASK_GRAPH;
  std::size_t index = 0;
};

/// Readers and writers of all tensors of a graph.
class Uses {
 public:
  explicit Uses(const ComputationGraph& graph);
  /// Readers of the tensor and of all views (flatten) of the same storage.
  const std::vector<NodePlace>& storage_readers(TensorId tensor) const {
    return storage_readers_[static_cast<std::size_t>(storage_[static_cast<std::size_t>(tensor)])];
  }
  /// True when the node's layer has a forward and a backward node (training) that both read `x` first.
  bool has_gradient(const ComputeNode& node, TensorId x) const { return gradients_.contains({node.op, node.layer, x}); }
  const std::vector<NodePlace>& readers(TensorId tensor) const { return readers_[static_cast<std::size_t>(tensor)]; }
  const std::vector<NodePlace>& writers(TensorId tensor) const { return writers_[static_cast<std::size_t>(tensor)]; }

 private:
  using NodeKey = std::tuple<OpKind, std::int32_t, TensorId>;  // Operator, layer, first input.
  std::vector<std::vector<NodePlace>> readers_, writers_, storage_readers_;
  std::vector<TensorId> storage_;  ///< What a view is a view of.
  std::set<NodeKey> gradients_;
};

class Scope {
 public:
  Scope(const ComputationGraph& graph, const Uses& uses, GraphId id, int threads);

  const ComputationGraph& graph() const { return *graph_; }
  GraphId id() const { return id_; }
  const Uses& uses() const { return *uses_; }
  int threads() const { return threads_; }
  std::size_t size() const { return graph_->nodes(id_).size(); }
  /// The COMPUTE node at `index`; null past the end and for RANGE nodes.
  const ComputeNode* node(std::size_t index) const;
  /// The COMPUTE node at `index` when it can be fused with all nodes from `first` on: same branch and part, no wait for
  /// another branch in between, no external event recorded before the end. Null otherwise.
  const ComputeNode* follower(std::size_t first, std::size_t index) const;
  /// True when the node at `index` is the only reader of `tensor`, a transient tensor.
  bool only_reader(TensorId tensor, std::size_t index) const;
  /// Nodes of this graph that read `tensor`; nothing when other graphs read it too, or when it is not transient.
  std::optional<std::vector<std::size_t>> readers_here(TensorId tensor) const;
  /// True when `tensor` is transient, made by a node, and nobody reads it after the node at `index` (which itself reads
  /// it): its storage may be taken over.
  bool last_use(TensorId tensor, std::size_t index) const;
  /// True when the node at `index` has ended before `later` starts, in every pass that has both.
  bool ends_before(std::size_t index, const NodePlace& later) const;

 private:
  const ComputationGraph* graph_;
  const Uses* uses_;
  GraphId id_;
  int threads_;
  HappensBefore order_;
};

/// The nodes of one match, and the shapes of one spec.
struct Site {
  const Scope* scope = nullptr;
  std::size_t first = 0;
  const Match* match = nullptr;
  std::span<const Shape> shapes;  ///< By TensorId.

  const ComputeNode& node(std::size_t offset = 0) const { return *scope->node(first + offset); }
  const Shape& shape(TensorId tensor) const { return shapes[static_cast<std::size_t>(tensor)]; }
  int threads() const { return scope->threads(); }
};

}  // namespace renai::lowering
