#pragma once
// Sampler: which sample stands at which place. A pure function of (seed, epoch, global position).

#include <cstdint>

#include "renai/tensor/batch_split.hpp"

namespace renai {

/// Keyed permutation of [0, size): a Feistel network over the next even power of two with cycle walking; O(1) memory.
/// Determinism: a pure function of its arguments. Source: Luby-Rackoff rounds with Philox as the round function.
std::uint64_t permute(std::uint64_t position, std::uint64_t size, std::uint64_t seed, std::uint64_t epoch);

struct SamplerConfig {
  std::int64_t samples = 0, global_batch = 0;
  int logical_shards = 8;
  std::uint64_t seed = 0;
  bool training = true;  ///< Training shuffles and drops; validation keeps order and pads.
  int micro_batches =
      1;  ///< K: each shard has K parts, which stand in the place of shards: part k of shard s is s * K + k.
};

/// Batch b of an epoch is positions [b * B, ...); shard s of a batch with n rows a shard takes its rows [s * n, (s + 1)
/// * n).
class Sampler {
 public:
  explicit Sampler(const SamplerConfig& config);
  const BatchSplit& split() const { return split_; }
  std::int64_t rows(std::int64_t batch) const;  ///< Rows of each shard in this batch.
  /// Sample id at a place, or -1 for a padding row of the last validation batch.
  std::int64_t sample(std::int64_t epoch, std::int64_t batch, int shard, std::int64_t row) const;

 private:
  SamplerConfig config_;
  BatchSplit split_;
};

}  // namespace renai
