#pragma once
// Storages: what the planner places. A storage is one tensor, several tensors that share their bytes (views, in-place
// kernels), or one entry's workspace.

#include <cstdint>
#include <vector>

#include "program_order.hpp"
#include "renai/plan/memory_plan.hpp"

namespace renai::plan_detail {

struct Storage {
  std::int64_t size_bytes = 0;     ///< Aligned, the largest over the variants.
  std::vector<TensorId> tensors;   ///< Empty for a workspace.
  GraphId graph = GraphId::COUNT;  ///< Workspace: its entry.
  std::size_t entry = 0;
  bool always = false;                             ///< Live through every pass of its family.
  std::vector<std::vector<std::size_t>> accesses;  ///< By pass of the family: entries that touch it, rising.
};

/// All storages: those planned by lifetime within one family, and those that keep their bytes for the whole run because
/// graphs of other streams or several families touch them.
struct StorageSet {
  std::vector<Storage> by_family[kFamilyCount];
  std::vector<Storage> lasting;
  /// Tensors that lie in a tensor with a place of its own: (tensor, that tensor).
  std::vector<std::pair<TensorId, TensorId>> in_fixed;
};

StorageSet collect_storages(const PlanRequest& request, const SlotMaxima& maxima);

/// Which pairs of storages must not share bytes: those where, in some pass, neither is finished before the other is
/// first touched.
class Conflicts {
 public:
  explicit Conflicts(std::size_t count);
  /// Adds the conflicts of one pass.
  void add_pass(const std::vector<Storage>& storages, std::size_t pass, const ProgramOrder& order);
  bool operator()(std::size_t a, std::size_t b) const { return (bits_[a * words_ + b / 64] >> (b % 64) & 1) != 0; }

 private:
  void add(std::size_t a, std::size_t b);

  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

}  // namespace renai::plan_detail
