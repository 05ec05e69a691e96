#include "../../../src/backend/dropout_key.hpp"

#include <gtest/gtest.h>

#include <set>

namespace renai {
namespace {

ControlBlock control(std::uint64_t seed, std::int64_t step, std::int32_t shard) {
  ControlBlock block;
  block.seed = seed;
  block.step = step;
  block.shard = shard;
  return block;
}

/// The packing is part of what a checkpoint's continuation depends on: it must not change unnoticed.
TEST(DropoutKey, PackingIsFixed) {
  const PhiloxBlock wanted =
      philox4x32({7, 5, 3u << 16 | 2u, static_cast<std::uint32_t>(RandomPurpose::dropout)}, {0x89ABCDEFu, 0x01234567u});
  EXPECT_EQ(dropout_block(control(0x0123456789ABCDEFull, 5, 2), 3, 7), wanted);
}

TEST(DropoutKey, EveryPartOfTheKeyMatters) {
  std::set<PhiloxBlock> blocks;
  for (const std::uint64_t seed : {1u, 2u}) {
    for (const std::int64_t step : {0, 1}) {
      for (const std::int32_t shard : {0, 1}) {
        for (const std::uint32_t layer : {0u, 1u}) {
          for (const std::int64_t block : {0, 1})
            blocks.insert(dropout_block(control(seed, step, shard), layer, block));
        }
      }
    }
  }
  EXPECT_EQ(blocks.size(), 32u);
}

/// 40000 draws: six standard deviations are 0.014 at p = 0.3.
TEST(DropoutKey, KeepsTheRightShare) {
  int kept = 0;
  for (std::int64_t block = 0; block < 10000; ++block) {
    for (const std::uint32_t word : dropout_block(control(9, 4, 1), 2, block))
      kept += dropout_keeps(word, 0.3f) ? 1 : 0;
  }
  EXPECT_NEAR(kept / 40000.0, 0.7, 0.014);
  EXPECT_FLOAT_EQ(dropout_scale(0.3f), 1.0f / 0.7f);
}

TEST(DropoutKey, EndsOfTheRange) {
  EXPECT_TRUE(dropout_keeps(0, 0.0f));
  EXPECT_FALSE(dropout_keeps(0xFFFFFFFFu, 1.0f));
  EXPECT_EQ(dropout_scale(0.0f), 1.0f);
  EXPECT_EQ(dropout_scale(1.0f), 0.0f);
}

}  // namespace
}  // namespace renai
