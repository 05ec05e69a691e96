// Sums of batch norm over shards: against all rows at once, and in the order of the tree.

#include "../../../src/backend/sync_norm.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace renai::sync_norm {
namespace {

constexpr std::int64_t kChannels = 3;
constexpr int kRows = 7;

/// [shard][row][channel], with a large mean, so that sums of squares would cancel.
std::vector<double> rows_of(int shards) {
  std::mt19937 random(static_cast<unsigned>(shards));
  std::normal_distribution<double> normal(1000.0, 1.0);
  std::vector<double> rows(static_cast<std::size_t>(shards * kRows * kChannels));
  for (double& value : rows) value = normal(random);
  return rows;
}

struct Moments {
  double mean = 0, squares = 0;
};

Moments moments_of(const std::vector<double>& rows, int first_row, int count, std::int64_t ch) {
  Moments moments;
  const auto at = [&](int row) { return rows[static_cast<std::size_t>((first_row + row) * kChannels + ch)]; };
  for (int row = 0; row < count; ++row) moments.mean += at(row) / count;
  for (int row = 0; row < count; ++row) moments.squares += (at(row) - moments.mean) * (at(row) - moments.mean);
  return moments;
}

TEST(SyncNorm, MomentsAreThoseOfAllRows) {
  for (const int shards : {1, 2, 4, 8}) {
    const std::vector<double> rows = rows_of(shards);
    std::vector<double> memory(static_cast<std::size_t>(2 * kChannels * shards));
    const Blocks blocks{memory.data(), kChannels, shards, 0};
    for (int shard = 0; shard < shards; ++shard) {
      const Blocks own{memory.data(), kChannels, shards, shard};
      for (std::int64_t ch = 0; ch < kChannels; ++ch) {
        const Moments moments = moments_of(rows, shard * kRows, kRows, ch);
        own.of_own()[ch] = moments.mean;
        own.of_own()[kChannels + ch] = moments.squares;
      }
    }
    add_moments(blocks, kRows, 0, kChannels);
    for (std::int64_t ch = 0; ch < kChannels; ++ch) {
      const Moments all = moments_of(rows, 0, shards * kRows, ch);
      EXPECT_NEAR(blocks.data[ch], all.mean, 1e-12 * all.mean) << shards;
      EXPECT_NEAR(blocks.data[kChannels + ch], all.squares, 1e-10 * all.squares) << shards;
    }
  }
}

double tree(const std::vector<double>& leaves, std::size_t first, std::size_t count) {
  if (count == 1) return leaves[first];
  return tree(leaves, first, count / 2) + tree(leaves, first + count / 2, count / 2);
}

/// Values whose sum depends on the order: the tree's bits, for each part of the channels by itself.
TEST(SyncNorm, SumsAreTheTree) {
  constexpr int kShards = 8;
  std::mt19937 random(3);
  std::uniform_real_distribution<double> exponent(-30, 30);
  std::vector<double> memory(2 * kChannels * kShards);
  for (double& value : memory) value = std::exp2(exponent(random));
  const std::vector<double> before = memory;
  const Blocks blocks{memory.data(), kChannels, kShards, 0};
  add_sums(blocks, 0, 1);
  add_sums(blocks, 1, kChannels);
  for (std::size_t i = 0; i < 2 * kChannels; ++i) {
    std::vector<double> leaves;
    for (std::size_t shard = 0; shard < kShards; ++shard) leaves.push_back(before[shard * 2 * kChannels + i]);
    EXPECT_EQ(memory[i], tree(leaves, 0, kShards)) << i;
  }
}

}  // namespace
}  // namespace renai::sync_norm
