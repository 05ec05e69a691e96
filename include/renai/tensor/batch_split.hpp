#pragma once
// BatchSplit: how an epoch of samples falls into global batches and logical shards. Shared by plan (variants) and data
// (sampler).

#include <cstdint>

namespace renai {

/// Rows of one shard, or of one of its K micro-batches, in a full batch and in the epoch's last one (0: there is none).
struct BatchSplit {
  std::int64_t full_batches = 0;  ///< Whole global batches in an epoch.
  std::int64_t shard_rows = 0;    ///< global_batch / (V * K).
  std::int64_t last_rows =
      0;  ///< Rows of each shard in the last batch: remainder / (V * K), training rounds down, validation up.
  std::int64_t dropped = 0;  ///< Training only: samples of an epoch left out (< V * K).
  std::int64_t batches() const { return full_batches + (last_rows > 0 ? 1 : 0); }
  bool operator==(const BatchSplit&) const = default;
};

/// Errors: UserError when a count is below 1, V is not a power of two, V does not divide the batch (nearest batches
/// that work are named), the set is empty, or a training set is smaller than V. The same for V * K with `micro_batches`
/// K.
BatchSplit split_batches(std::int64_t samples, std::int64_t global_batch, int logical_shards, bool training,
                         int micro_batches = 1);

}  // namespace renai
