#pragma once
// A pack as a list of shards: who makes which, what is told while they work, going on after an interruption.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "renai/data/pack.hpp"
#include "shard_summary.hpp"

namespace renai {

/// Which samples of which split go to which file.
struct ShardPlan {
  std::size_t split = 0;
  std::int64_t index = 0, count = 1;  ///< Of the split's shards.
  std::int64_t first = 0, samples = 0;
  std::string file;
};

/// Called with the number of samples that were handled since the last call; throws when the pack is given up.
using Advance = std::function<void(std::int64_t)>;

struct PackPlan {
  Manifest manifest;  ///< All but shards and statistics; splits by name, the training split first.
  std::vector<ShardPlan> shards;
  /// Lines "name = value" of the options that shape the result. Equal on all ranks, and when an interrupted pack
  /// goes on.
  std::string settings;
  /// The same of the input, which may be mended in between. Equal on all ranks.
  std::string input;
  /// Makes one shard, or finds it complete.
  std::function<ShardSummary(const ShardPlan&, const Advance&)> make;
  /// Looks at all summaries before the set is declared complete; may throw.
  std::function<void(const std::vector<ShardSummary>&)> check;
};

/// Appends the shards of a split.
void plan_shards(std::size_t split, const std::string& name, std::int64_t samples, std::int64_t shard_samples,
                 std::vector<ShardPlan>& plans);

/// Errors: as write_dataset, and those of `make` and `check`. Effects: the set's folder; notes and progress of options.
Manifest run_pack(const PackPlan& plan, const PackOptions& options);

}  // namespace renai
