// Loops of the RANGE operations, called alone.

#include "../../../src/backend/host_range_kernels.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "renai/base/error.hpp"
#include "renai/comm/communicator.hpp"

namespace renai::host_range {
namespace {

std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random);
  return values;
}

TEST(SumOfSquares, IsTheSumAtEveryLengthAroundTheBlocks) {
  const std::vector<float> values = random_values(2 * kNormBlockElems + 20, 1);
  for (const std::int64_t elems :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{7}, std::int64_t{8}, std::int64_t{9}, kNormBlockElems - 1,
        kNormBlockElems, kNormBlockElems + 1, 2 * kNormBlockElems + 13}) {
    long double wanted = 0;
    for (std::int64_t i = 0; i < elems; ++i) {
      const long double value = values[static_cast<std::size_t>(i)];
      wanted += value * value;
    }
    EXPECT_NEAR(sum_of_squares(values.data(), elems), static_cast<double>(wanted), 1e-12 * static_cast<double>(elems));
  }
}

/// Zeros after the values (alignment gaps, padding) do not change the bits.
TEST(SumOfSquares, IgnoresTrailingZeros) {
  std::vector<float> values = random_values(5000, 2);
  const double sum = sum_of_squares(values.data(), 5000);
  values.resize(5000 + 59, 0.0f);
  EXPECT_EQ(sum_of_squares(values.data(), 5059), sum);
}

TEST(SumOfSquares, DoesNotOverflow) {
  const std::vector<float> values(100, std::numeric_limits<float>::max());
  EXPECT_TRUE(std::isfinite(sum_of_squares(values.data(), 100)));
}

TEST(AllFinite, SeesOneBadValueAnywhere) {
  std::vector<float> values = random_values(37, 3);
  values[3] = std::numeric_limits<float>::max();
  values[4] = -std::numeric_limits<float>::denorm_min();
  EXPECT_TRUE(all_finite(values.data(), 37));
  EXPECT_TRUE(all_finite(values.data(), 0));
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::signaling_NaN()}) {
      std::vector<float> broken = values;
      broken[i] = bad;
      EXPECT_FALSE(all_finite(broken.data(), 37)) << "at " << i;
    }
  }
}

/// The counter after 2^L shards equals tree_sum, which the reduction across ranks obeys: one tree over all shards.
TEST(MergeShard, EqualsTheTreeOfTheReduction) {
  constexpr std::int64_t kElems = 2048 + 77;
  for (const int levels : {1, 2, 3, 4}) {
    const int shards = 1 << levels;
    std::vector<std::vector<float>> counters(static_cast<std::size_t>(levels), std::vector<float>(kElems, -7.0f));
    std::vector<float*> pointers;
    for (auto& counter : counters) pointers.push_back(counter.data());
    std::vector<std::vector<float>> values;
    std::vector<const float*> leaves;
    std::vector<float> region;
    for (int shard = 0; shard < shards; ++shard) {
      values.push_back(random_values(kElems, static_cast<unsigned>(100 + shard)));
      region = values.back();
      merge_shard(region.data(), pointers, kElems, shard);
      if (shard + 1 < shards) {
        EXPECT_EQ(region, values.back()) << "an early shard's values stay";
      }
    }
    for (const auto& leaf : values) leaves.push_back(leaf.data());
    std::vector<float> wanted(kElems);
    tree_sum(leaves.data(), shards, kElems, wanted.data());
    EXPECT_EQ(region, wanted) << shards << " shards";
  }
}

TEST(MergeShard, RefusesAShardBeyondTheCounter) {
  float value = 1, counter = 0;
  float* pointer = &counter;
  EXPECT_THROW(merge_shard(&value, {&pointer, 1}, 1, 3), InternalError);
  EXPECT_THROW(merge_shard(&value, {&pointer, 1}, 1, -1), InternalError);
}

TEST(TreeSumEntries, AddsInTreeOrder) {
  std::vector<double> entries;
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 4; ++j) entries.push_back(std::ldexp(1.0 + i, j == 0 ? 52 : 0) + 0.1 * j);
  }
  double total[4];
  tree_sum_entries(entries.data(), 8, total);
  for (int j = 0; j < 4; ++j) {
    const auto v = [&](int i) { return entries[static_cast<std::size_t>(4 * i + j)]; };
    EXPECT_EQ(total[j], ((v(0) + v(1)) + (v(2) + v(3))) + ((v(4) + v(5)) + (v(6) + v(7))));
  }
  EXPECT_THROW(tree_sum_entries(entries.data(), 6, total), InternalError);
}

TEST(LossScaleRule, ShrinksOnOverflowAndGrowsAfterTheInterval) {
  RangeParams params;
  params.dynamic_loss_scale = true;
  params.loss_scale_interval = 3;
  LossScale now{8.0f, 0.0f};
  const auto step = [&](bool finite) { now = next_loss_scale(now, finite, params); };
  const auto expect = [&](float scale, float good) {
    EXPECT_EQ(now.scale, scale);
    EXPECT_EQ(now.good_steps, good);
  };
  step(true), step(true), expect(8.0f, 2.0f);
  step(false), expect(4.0f, 0.0f);
  step(true), step(true), expect(4.0f, 2.0f);
  step(true), expect(8.0f, 0.0f);
  for (int i = 0; i < 5; ++i) step(false);
  expect(1.0f, 0.0f);  // the floor
  now = {params.loss_scale_ceiling, 2.0f};
  step(true), expect(params.loss_scale_ceiling, 0.0f);
  params.dynamic_loss_scale = false;
  now = {1.0f, 0.0f};
  step(false), step(true), step(true), step(true), expect(1.0f, 0.0f);
}

float from_f16(std::uint16_t half) {
  const int exponent = half >> 10 & 31, mantissa = half & 1023;
  const double magnitude = exponent == 31  ? (mantissa != 0 ? NAN : INFINITY)
                           : exponent == 0 ? std::ldexp(mantissa, -24)
                                           : std::ldexp(1024 + mantissa, exponent - 25);
  return static_cast<float>((half & 0x8000) != 0 ? -magnitude : magnitude);
}

float from_bf16(std::uint16_t half) { return std::bit_cast<float>(std::uint32_t{half} << 16); }

/// Every half value stays, what lies between two goes to the nearer one, and a tie to the even one.
TEST(HalfRounding, IsToNearestEven) {
  const auto check = [](std::uint16_t infinity, auto decode, auto round) {
    for (std::uint32_t bits = 0; bits < infinity; ++bits) {
      const auto low = static_cast<std::uint16_t>(bits), high = static_cast<std::uint16_t>(bits + 1);
      const float here = decode(low);
      ASSERT_EQ(round(here), low);
      ASSERT_EQ(round(-here), low | 0x8000);
      if (high == infinity) break;
      const auto middle = static_cast<float>((double{here} + double{decode(high)}) / 2);
      ASSERT_EQ(round(middle), low % 2 == 0 ? low : high) << here;
      ASSERT_EQ(round(std::nextafter(middle, 0.0f)), low) << here;
      ASSERT_EQ(round(std::nextafter(middle, INFINITY)), high) << here;
    }
    ASSERT_EQ(round(INFINITY), infinity);
    ASSERT_EQ(round(-INFINITY), infinity | 0x8000);
    ASSERT_TRUE(std::isnan(decode(round(NAN))));
    ASSERT_EQ(round(std::numeric_limits<float>::max()), infinity);
  };
  check(0x7C00, from_f16, to_f16);
  check(0x7F80, from_bf16, to_bf16);
  EXPECT_EQ(to_f16(65519.0f), 0x7BFF);
  EXPECT_EQ(to_f16(65520.0f), 0x7C00);
}

/// A hand-computed step: lr 0.1, momentum 0.5, decay 0.25.
TEST(Sgd, HandComputedSteps) {
  float w = 2, buf = 0;
  const float grad = 1;
  const SgdStep plain{0.125f, 0.5f, 0.25f, false};
  sgd(&grad, &w, &buf, 1, plain);  // g = 1.5, buf = 1.5
  EXPECT_EQ(buf, 1.5f);
  EXPECT_EQ(w, 2.0f - 0.1875f);
  w = 2;
  sgd(&grad, &w, &buf, 1, plain);  // g = 1.5, buf = 0.75 + 1.5
  EXPECT_EQ(buf, 2.25f);
  EXPECT_EQ(w, 2.0f - 0.28125f);
  w = 2;
  buf = 0;
  sgd(&grad, &w, &buf, 1, {0.125f, 0.5f, 0.25f, true});  // g + 0.5 * 1.5 = 2.25
  EXPECT_EQ(buf, 1.5f);
  EXPECT_EQ(w, 2.0f - 0.28125f);
}

}  // namespace
}  // namespace renai::host_range
