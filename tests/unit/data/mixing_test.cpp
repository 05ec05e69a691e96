// Mixing and erasing: distributions, exact shares, and what the draws depend on.
#include "renai/data/mixing.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

namespace renai {
namespace {

constexpr int kDraws = 4000;

/// Mean and variance within five standard errors.
struct Moments {
  double sum = 0, squares = 0;
  int count = 0;
  void add(double value) {
    sum += value;
    squares += value * value;
    ++count;
  }
  double mean() const { return sum / count; }
  double variance() const { return squares / count - mean() * mean(); }
};

TEST(Mixup, SharesFollowTheBetaDistribution) {
  for (const double alpha : {0.1, 0.2, 0.4, 1.0, 3.0, 40.0}) {
    Moments shares;
    int extreme = 0;
    for (int step = 0; step < kDraws; ++step) {
      const ShardMix mix = draw_mix({alpha, 0}, 16, 8, 8, 5, step, 3);
      EXPECT_TRUE(mix.lambda >= 0.0f && mix.lambda <= 1.0f && mix.box[2] == 0);
      shares.add(double{mix.lambda});
      extreme += mix.lambda < 0.05f || mix.lambda > 0.95f ? 1 : 0;
    }
    const double variance = 1.0 / (4.0 * (2.0 * alpha + 1.0));
    EXPECT_NEAR(shares.mean(), 0.5, 5 * std::sqrt(variance / kDraws)) << alpha;
    EXPECT_NEAR(shares.variance(), variance, 0.1 * variance) << alpha;
    // The uniform case by its distribution function.
    if (alpha == 1.0) {
      EXPECT_NEAR(extreme, 0.1 * kDraws, 5 * std::sqrt(0.09 * kDraws));
    }
  }
  // The limits: coins, and half of each.
  for (int step = 0; step < 50; ++step) {
    const float coin = draw_mix({1e-6, 0}, 2, 8, 8, 1, step, 0).lambda,
                even = draw_mix({1e6, 0}, 2, 8, 8, 1, step, 0).lambda;
    EXPECT_TRUE(coin == 0.0f || coin == 1.0f) << coin;
    EXPECT_NEAR(even, 0.5f, 0.01f);
  }
}

TEST(Mixup, EveryOtherRowIsAPartnerEquallyOften) {
  std::map<std::int64_t, int> counts;
  for (int step = 0; step < kDraws; ++step) ++counts[draw_mix({1, 0}, 5, 8, 8, 9, step, 0).shift];
  ASSERT_EQ(counts.size(), 4u);
  EXPECT_EQ(counts.begin()->first, 1);
  for (const auto& [shift, count] : counts) EXPECT_NEAR(count, kDraws / 4, 5 * std::sqrt(kDraws * 0.1875)) << shift;
  std::set<std::int32_t> partners;
  for (std::int64_t row = 0; row < 5; ++row) {
    SampleParams params;
    apply_mix(draw_mix({1, 0}, 5, 8, 8, 9, 1, 0), 5, row, params);
    EXPECT_NE(params.mix_partner, row);
    partners.insert(params.mix_partner);
  }
  EXPECT_EQ(partners, (std::set<std::int32_t>{0, 1, 2, 3, 4}));
}

TEST(Cutmix, TheShareIsTheExactAreaKept) {
  std::set<std::int32_t> rows, columns;
  for (int step = 0; step < kDraws; ++step) {
    const ShardMix mix = draw_mix({0, 1}, 8, 12, 20, 7, step, 1);
    if (mix.shift == 0) {
      EXPECT_TRUE(mix.lambda == 1.0f && mix.box[2] == 0) << "an empty box mixes nothing";
      continue;
    }
    const auto& [y, x, h, w] = mix.box;
    ASSERT_TRUE(y >= 0 && x >= 0 && h >= 1 && w >= 1 && y + h <= 12 && x + w <= 20);
    EXPECT_EQ(mix.lambda, static_cast<float>(1.0 - h * w / 240.0));
    for (std::int32_t i = y; i < y + h; ++i) rows.insert(i);
    for (std::int32_t i = x; i < x + w; ++i) columns.insert(i);
  }
  EXPECT_EQ(rows.size(), 12u);
  EXPECT_EQ(columns.size(), 20u);
}

/// With centres in the middle half the box is whole; there its area is 1 - Beta up to the rounding of its sides.
TEST(Cutmix, BoxesHaveTheSizeOfTheirShare) {
  Moments sides;
  for (int step = 0; step < kDraws; ++step) {
    const ShardMix mix = draw_mix({0, 1}, 8, 1000, 1000, 7, step, 1);
    const auto& [y, x, h, w] = mix.box;
    if (h == w && y > 0 && x > 0 && y + h < 1000 && x + w < 1000) sides.add(h / 1000.0);
  }
  // Side s has density 2 s, and is whole with probability (1 - s)^2: mean 0.4 of the rest, 2 s (1 - s)^2.
  ASSERT_GT(sides.count, kDraws / 10);
  EXPECT_NEAR(sides.mean(), 0.4, 5 * 0.2 / std::sqrt(sides.count));
}

TEST(Mixing, BothTakeTurnsAndKeepTheirOwnShares) {
  int cut = 0;
  for (int step = 0; step < kDraws; ++step) {
    const ShardMix both = draw_mix({0.2, 1}, 8, 32, 32, 3, step, 2);
    const bool is_cut = both.box[2] > 0 || both.shift == 0;
    cut += is_cut ? 1 : 0;
    const ShardMix alone = is_cut ? draw_mix({0, 1}, 8, 32, 32, 3, step, 2) : draw_mix({0.2, 0}, 8, 32, 32, 3, step, 2);
    EXPECT_TRUE(both.lambda == alone.lambda && both.box == alone.box && both.shift == alone.shift);
  }
  EXPECT_NEAR(cut, kDraws / 2, 5 * std::sqrt(kDraws / 4.0));
}

TEST(Mixing, EveryPartOfTheKeyMatters) {
  std::set<float> shares;
  int count = 0;
  for (std::uint64_t seed : {std::uint64_t{1}, std::uint64_t{1} << 40}) {
    for (std::int64_t step : {std::int64_t{0}, std::int64_t{1}, std::int64_t{1} << 33}) {
      for (int shard : {0, 1, 65535}) {
        shares.insert(draw_mix({1, 0}, 8, 4, 4, seed, step, shard).lambda);
        EXPECT_EQ(draw_mix({1, 0}, 8, 4, 4, seed, step, shard).lambda,
                  draw_mix({1, 0}, 8, 4, 4, seed, step, shard).lambda);
        ++count;
      }
    }
  }
  EXPECT_EQ(static_cast<int>(shares.size()), count);
}

TEST(Mixing, OneRowAndNoAlphaMixNothing) {
  for (const ShardMix& mix : {draw_mix({1, 1}, 1, 8, 8, 1, 2, 3), draw_mix({}, 8, 8, 8, 1, 2, 3)}) {
    SampleParams params;
    apply_mix(mix, 1, 0, params);
    EXPECT_TRUE(mix.shift == 0 && params.mix_partner == -1 && params.mix_lambda == 1.0f);
  }
}

TEST(Erasing, BoxesFollowTheDefinition) {
  Moments areas, ratios;  // Of a square image nearly every first try fits: no bias from those that do not.
  int erased = 0;
  std::set<std::int32_t> rows, columns;
  for (std::int64_t sample = 0; sample < kDraws; ++sample) {
    const auto [y, x, h, w] = draw_erasing(0.25, 250, 250, 1, 2, sample);
    if (h == 0) continue;
    ++erased;
    ASSERT_TRUE(y >= 0 && x >= 0 && w > 0 && h < 250 && w < 250 && y + h <= 250 && x + w <= 250);
    areas.add(h * w / 62500.0);
    ratios.add(std::log(static_cast<double>(h) / w));
    rows.insert(y);
    columns.insert(x);
  }
  EXPECT_NEAR(erased, kDraws / 4, 5 * std::sqrt(kDraws * 0.1875));
  const double root = std::sqrt(erased);
  EXPECT_NEAR(areas.mean(), 0.175, 5 * 0.31 / std::sqrt(12) / root);
  EXPECT_NEAR(areas.variance(), 0.31 * 0.31 / 12, 0.1 * 0.31 * 0.31 / 12);
  const double low = std::log(0.3), high = std::log(3.3);
  EXPECT_NEAR(ratios.mean(), (low + high) / 2, 5 * (high - low) / std::sqrt(12) / root);
  EXPECT_NEAR(ratios.variance(), (high - low) * (high - low) / 12, 0.1 * (high - low) * (high - low) / 12);
  EXPECT_GT(rows.size(), 100u);
  EXPECT_GT(columns.size(), 100u);
}

TEST(Erasing, IsKeyedBySampleAndEpoch) {
  std::set<std::array<std::int32_t, 4>> boxes;
  for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
    for (std::int64_t sample = 0; sample < 5; ++sample) {
      boxes.insert(draw_erasing(1, 500, 500, 1, epoch, sample));
      boxes.insert(draw_erasing(1, 500, 500, 2, epoch, sample));
      EXPECT_EQ(draw_erasing(1, 500, 500, 1, epoch, sample), draw_erasing(1, 500, 500, 1, epoch, sample));
    }
  }
  EXPECT_EQ(boxes.size(), 50u);
  EXPECT_EQ(draw_erasing(0, 500, 500, 1, 0, 0)[2], 0);
  EXPECT_EQ(draw_erasing(1, 1, 1, 1, 0, 0)[2], 0) << "no box is smaller than one pixel";
}

}  // namespace
}  // namespace renai
