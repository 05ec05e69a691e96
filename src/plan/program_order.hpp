#pragma once
// The order that streams, branches and waits guarantee between the kernel entries of several graphs run one after the
// other on one stream.

#include <cstdint>
#include <span>
#include <vector>

#include "renai/graph/computation_graph.hpp"
#include "renai/plan/kernel_book.hpp"

namespace renai::plan_detail {

/// Families of graphs whose transients are planned together; no two of them ever run at the same time, and none holds
/// transients for another.
enum class Family : std::uint8_t { training, inference, simple };
inline constexpr int kFamilyCount = 3;

/// The graphs that one shard runs, in order, on one stream. A pass ends before the next one starts and leaves no
/// transients behind, so lifetimes are a matter within each pass.
using ShardPass = std::vector<GraphId>;

/// The passes of a family: with slot A or B, with main or EMA weights.
const std::vector<ShardPass>& passes_of(Family family);

/// Happens-before between entries. An entry waits for the whole entry that holds a node it waits for; a graph starts
/// when the one before has ended.
class ProgramOrder {
 public:
  ProgramOrder(const ComputationGraph& graph, const KernelBook& book, const ShardPass& program);

  /// Number of entries in the program.
  std::size_t size() const { return size_; }
  /// Program index of a graph's first entry.
  std::size_t base(std::size_t graph) const { return base_[graph]; }
  /// Bits of all entries that have ended before entry `index` starts.
  std::span<const std::uint64_t> before(std::size_t index) const {
    return std::span(bits_).subspan(index * words_, words_);
  }
  bool before(std::size_t first, std::size_t second) const {
    return (bits_[second * words_ + first / 64] >> (first % 64) & 1) != 0;
  }
  std::size_t words() const { return words_; }

 private:
  void add_graph(const std::vector<Node>& nodes, const std::vector<KernelEntry>& entries, std::size_t base);
  void follow(std::size_t later, std::size_t earlier);

  std::vector<std::size_t> base_;
  std::size_t size_ = 0, words_ = 0;
  std::vector<std::uint64_t> bits_;
};

}  // namespace renai::plan_detail
