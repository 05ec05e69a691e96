#pragma once
// HappensBefore: the order that streams, branches and waits guarantee between the nodes of one graph.

#include <cstdint>
#include <span>
#include <vector>

#include "renai/graph/computation_graph.hpp"

namespace renai {

/// The transitive order of one graph's nodes: list order within a branch, and waits between branches. Nothing else
/// orders two nodes, so unordered ones may run at the same time. Nodes of different parts (executables) are ordered
/// like one list.
class HappensBefore {
 public:
  /// Errors: InternalError for a wait on the node itself or a later one.
  explicit HappensBefore(std::span<const Node> nodes);

  /// True when node `first` has ended before node `second` starts. Never true for first == second.
  bool before(std::int32_t first, std::int32_t second) const {
    const auto i = static_cast<std::size_t>(second);
    return (reached_[i * words_ + static_cast<std::size_t>(first) / 64] >> (static_cast<std::size_t>(first) % 64) &
            1) != 0;
  }
  /// True when neither order is guaranteed.
  bool concurrent(std::int32_t a, std::int32_t b) const { return a != b && !before(a, b) && !before(b, a); }
  std::int32_t size() const { return size_; }

 private:
  std::int32_t size_ = 0;
  std::size_t words_ = 0;
  std::vector<std::uint64_t> reached_;  ///< Row by node: bits of all nodes before it.
};

}  // namespace renai
