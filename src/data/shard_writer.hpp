#pragma once
// One shard of a pack: its place in the set, its content's digest and sums, writing it.

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "packing.hpp"

namespace renai {

/// Which samples of which split go to which file.
struct ShardPlan {
  std::size_t split = 0;
  std::int64_t index = 0, count = 1;  ///< Of the split's shards.
  std::int64_t first = 0, samples = 0;
  std::string file;
};

/// Of a shard's content. Sums are exact, so that statistics over shards do not depend on who summed what.
struct ShardSummary {
  std::string digest;
  std::vector<std::uint64_t> sample_digests;
  std::array<std::uint64_t, 4> sum{}, square_sum{};  ///< By channel, over all pixels.
};

/// All shards, split after split.
std::vector<ShardPlan> plan_shards(const PackSource& source, std::int64_t shard_samples);

/// One pass over the source. Errors: DataError naming a sample whose label has no class.
ShardSummary summarize_shard(const PackSource& source, const ShardPlan& plan);

/// Whether `path` already holds this content, complete and undamaged.
bool shard_is_complete(const std::filesystem::path& path, const PackSource& source, const ShardPlan& plan,
                       const ShardSummary& summary);

/// Atomic. Errors: ResourceError naming the file.
void write_shard(const std::filesystem::path& path, const PackSource& source, const ShardPlan& plan,
                 const ShardSummary& summary);

}  // namespace renai
