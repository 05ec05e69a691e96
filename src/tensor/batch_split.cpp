#include "renai/tensor/batch_split.hpp"

#include <algorithm>
#include <string>

#include "renai/base/error.hpp"

namespace renai {

BatchSplit split_batches(std::int64_t samples, std::int64_t global_batch, int logical_shards, bool training,
                         int micro_batches) {
  const std::string kind = training ? "training" : "validation";
  const std::int64_t shards = logical_shards;
  if (shards < 1 || (shards & (shards - 1)) != 0) {
    throw UserError("--logical-shards " + std::to_string(shards), "the number of logical shards must be a power of two",
                    "use 1, 2, 4, 8 ...");
  }
  if (micro_batches < 1) {
    throw UserError("--accumulate " + std::to_string(micro_batches), "a batch has at least one micro-batch",
                    "use 1 or more");
  }
  const std::int64_t v = shards * micro_batches;
  const std::string parts = "--logical-shards " + std::to_string(shards) +
                            (micro_batches > 1 ? " times --accumulate " + std::to_string(micro_batches) : "");
  if (global_batch < 1) {
    throw UserError("--global-batch " + std::to_string(global_batch), "a batch has at least one sample",
                    "use a positive multiple of --logical-shards");
  }
  if (global_batch % v != 0) {
    const std::int64_t below = global_batch / v * v;
    throw UserError("--global-batch " + std::to_string(global_batch), "it is not divisible by " + parts,
                    "the nearest batches that work are " +
                        (below > 0 ? std::to_string(below) + " and " : std::string{}) + std::to_string(below + v));
  }
  if (samples < 1)
    throw DataError("the " + kind + " set is empty", "it has no samples", "pack a set with at least one");
  if (training && samples < v) {
    throw UserError("a training set of " + std::to_string(samples) + " samples", "it is smaller than " + parts,
                    micro_batches > 1
                        ? "lower one of the two"
                        : "lower --logical-shards to at most " + std::to_string(samples) + " (a power of two)");
  }
  BatchSplit split;
  split.full_batches = samples / global_batch;
  split.shard_rows = global_batch / v;
  const std::int64_t rest = samples % global_batch;
  if (training) {
    split.last_rows = rest / v;
    split.dropped = rest - split.last_rows * v;
  } else {
    split.last_rows = (rest + v - 1) / v;
  }
  return split;
}

}  // namespace renai
