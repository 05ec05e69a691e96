#pragma once
// Sampler: which sample stands at which place. A pure function of (seed, epoch, global position).

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "renai/tensor/batch_split.hpp"

namespace renai {

/// Keyed permutation of [0, size): a Feistel network over the next even power of two with cycle walking; O(1) memory.
/// Determinism: a pure function of its arguments. Source: Luby-Rackoff rounds with Philox as the round function.
std::uint64_t permute(std::uint64_t position, std::uint64_t size, std::uint64_t seed, std::uint64_t epoch);

/// The order of a training epoch. Always each sample once.
enum class Shuffle {
  global,  ///< A permutation of all samples.
  block,   ///< Blocks (shards) in a random order, `window` of them at a time, whose samples are permuted together.
  none,    ///< As stored.
};
/// "global", "block", "none".
std::string shuffle_name(Shuffle shuffle);
/// Errors: UserError with the nearest known name.
Shuffle parse_shuffle(const std::string& name);

/// The order of one epoch by blocks. Sizes: O(blocks). Determinism: a pure function of sizes, window, seed and epoch.
class BlockOrder {
 public:
  BlockOrder(const std::vector<std::int64_t>& sizes, int window, std::uint64_t seed, std::uint64_t epoch);
  /// Sample at a position of the epoch.
  std::int64_t sample(std::int64_t position) const;

  std::int64_t windows() const;
  std::int64_t window_of(std::int64_t position) const;
  /// The blocks of a window, in the epoch's order.
  std::vector<std::size_t> blocks_of(std::int64_t window) const;

 private:
  std::size_t place_at(std::int64_t position) const;

  int window_;
  std::uint64_t seed_, epoch_;
  std::vector<std::size_t> blocks_;           ///< In the epoch's order.
  std::vector<std::int64_t> first_sample_;    ///< Of each block, in the epoch's order.
  std::vector<std::int64_t> first_position_;  ///< The same as positions; one more for the end.
};

/// What the places of an epoch follow from.
struct SamplerConfig {
  std::int64_t samples = 0, global_batch = 0;
  int logical_shards = 8;
  std::uint64_t seed = 0;
  bool training = true;  ///< Training shuffles and drops; validation keeps order and pads.
  int micro_batches =
      1;  ///< K: each shard has K parts, which stand in the place of shards: part k of shard s is s * K + k.
  Shuffle shuffle = Shuffle::global;   ///< Of training.
  std::vector<std::int64_t> blocks{};  ///< Samples of each, for Shuffle::block; they sum to `samples`.
  int window = 8;                      ///< Blocks whose samples are permuted together.
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
  /// The same of rows [first_row, first_row + samples.size()), with one look at what threads share.
  void samples(std::int64_t epoch, std::int64_t batch, int shard, std::int64_t first_row,
               std::span<std::int64_t> samples) const;
  /// Position at which a batch begins.
  std::int64_t first_position(std::int64_t batch) const { return batch * config_.global_batch; }
  /// Of an epoch. Only with Shuffle::block; blocks without samples are not counted.
  std::shared_ptr<const BlockOrder> block_order(std::int64_t epoch) const;

 private:
  struct Cache;
  std::int64_t position_of(std::int64_t batch, int shard, std::int64_t row) const;
  std::int64_t shuffled(std::int64_t epoch, std::int64_t position, const BlockOrder* blocks) const;

  SamplerConfig config_;
  BatchSplit split_;
  std::shared_ptr<Cache> cache_;  ///< Of block orders: a copy of the sampler shares it.
};

}  // namespace renai
