#pragma once
// Freezing: which parameters are left as they are in which epochs (--freeze-until, --freeze-after).

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "renai/graph/computation_graph.hpp"
#include "renai/train/recipe.hpp"

namespace renai {

/// The parameters that one name of the options stands for.
struct FreezeGroup {
  /// "first", or the layer or stage: "layer1" is every layer "layer1..." below it; "stage3", where no layer is called
  /// so, is every layer whose `stage` in the model is 3.
  std::string name;
  std::int64_t until = 0;                                         ///< Frozen before this epoch,
  std::int64_t after = std::numeric_limits<std::int64_t>::max();  ///< and from this one on.
  bool frozen(std::int64_t epoch) const { return epoch < until || epoch >= after; }
};

/// The groups of a run, and the parameters in each.
struct FreezePlan {
  std::vector<FreezeGroup> groups;      ///< Group g + 1 of the graph; its group 0 is never frozen.
  std::vector<int> group_of_param;      ///< Empty: nothing is ever frozen.
  std::vector<int> first_layer_groups;  ///< Of the parameters whose gradients FIRST_LAYER_BWD makes.

  bool frozen(int group, std::int64_t epoch) const {
    return group > 0 && groups[static_cast<std::size_t>(group) - 1].frozen(epoch);
  }
  /// Whether nothing needs FIRST_LAYER_BWD.
  bool first_layer_frozen(std::int64_t epoch) const;
};

/// Errors: UserError for text that is no list of NAME@EPOCH, a name that no layer has (the nearest is named), a
/// parameter that two names stand for, and epochs in which everything would be frozen.
FreezePlan make_freeze_plan(const Recipe& recipe, std::span<const ParamInfo> params);

/// "first before epoch 2, layer1 from epoch 5 on": for the dry run; empty without groups.
std::string print(const FreezePlan& plan);

}  // namespace renai
