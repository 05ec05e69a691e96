// The keyed permutation and what each place of an epoch gets.
#include "renai/data/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "renai/base/error.hpp"

namespace renai {
namespace {

std::vector<std::uint64_t> order_of(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch) {
  std::vector<std::uint64_t> order;
  for (std::uint64_t i = 0; i < size; ++i) order.push_back(permute(i, size, seed, epoch));
  return order;
}

bool is_permutation_of_range(std::vector<std::uint64_t> order) {
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] != i) return false;
  }
  return true;
}

TEST(Permute, IsAPermutationOfEverySize) {
  for (std::uint64_t size = 1; size <= 300; ++size) {
    EXPECT_TRUE(is_permutation_of_range(order_of(size, 7, size % 5))) << size;
  }
  for (const std::uint64_t size : {509u, 1009u, 4093u, 4096u, 4097u, 10007u}) {
    EXPECT_TRUE(is_permutation_of_range(order_of(size, 1, 3))) << size;
  }
}

TEST(Permute, WorksForHugeSets) {
  const std::uint64_t size = (std::uint64_t{1} << 40) + 12345;
  std::set<std::uint64_t> seen;
  for (std::uint64_t i = 0; i < 200; ++i) seen.insert(permute(i * 7'000'000'001 % size, size, 5, 6));
  EXPECT_EQ(seen.size(), 200u);
  EXPECT_GT(*seen.rbegin(), size / 2);
  EXPECT_LT(*seen.rbegin(), size);
}

TEST(Permute, DependsOnSeedAndEpochAndNothingElse) {
  EXPECT_EQ(order_of(100, 1, 2), order_of(100, 1, 2));
  EXPECT_NE(order_of(100, 1, 2), order_of(100, 1, 3));
  EXPECT_NE(order_of(100, 1, 2), order_of(100, 2, 2));
  EXPECT_NE(order_of(100, 1, 2), order_of(100, 1 + (std::uint64_t{1} << 32), 2));
  EXPECT_NE(order_of(100, 1, 2), order_of(100, 1, 2 + (std::uint64_t{1} << 32)));
}

/// Chi-squared statistic of how often each order of a tiny set occurs over epochs.
double chi_squared_of_orders(std::uint64_t size, int orders, int epochs) {
  std::map<std::vector<std::uint64_t>, int> counts;
  for (int epoch = 0; epoch < epochs; ++epoch) ++counts[order_of(size, 11, static_cast<std::uint64_t>(epoch))];
  EXPECT_EQ(static_cast<int>(counts.size()), orders);
  const double expected = static_cast<double>(epochs) / orders;
  double sum = 0;
  for (const auto& [order, count] : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

TEST(Permute, TinySetsSeeAllOrdersEvenly) {
  // Bounds: the 99.99 % quantiles for 1, 5 and 23 degrees of freedom.
  EXPECT_LT(chi_squared_of_orders(2, 2, 500), 15.2);
  EXPECT_LT(chi_squared_of_orders(3, 6, 900), 25.8);
  EXPECT_LT(chi_squared_of_orders(4, 24, 1200), 56.0);
}

TEST(Permute, EveryPlaceOfSevenSeesEverySampleEvenly) {
  std::array<std::array<int, 7>, 7> counts{};
  constexpr int kEpochs = 700;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (std::uint64_t i = 0; i < 7; ++i) ++counts[i][permute(i, 7, 3, static_cast<std::uint64_t>(epoch))];
  }
  for (const auto& place : counts) {
    double sum = 0;
    for (const int count : place) sum += (count - 100.0) * (count - 100.0) / 100.0;
    EXPECT_LT(sum, 27.9);  // 99.99 % quantile for 6 degrees of freedom.
  }
}

Sampler make_sampler(std::int64_t samples, std::int64_t batch, int shards, bool training) {
  SamplerConfig config;
  config.samples = samples;
  config.global_batch = batch;
  config.logical_shards = shards;
  config.seed = 9;
  config.training = training;
  return Sampler(config);
}

std::vector<std::int64_t> epoch_ids(const Sampler& sampler, int shards, std::int64_t epoch) {
  std::vector<std::int64_t> ids;
  for (std::int64_t batch = 0; batch < sampler.split().batches(); ++batch) {
    for (int shard = 0; shard < shards; ++shard) {
      for (std::int64_t row = 0; row < sampler.rows(batch); ++row) {
        ids.push_back(sampler.sample(epoch, batch, shard, row));
      }
    }
  }
  return ids;
}

TEST(Sampler, ValidationCountsEachImageOnceInOrder) {
  for (const int shards : {1, 2, 4, 8}) {
    for (const std::int64_t samples : {1, 7, 97, 1009}) {
      const auto ids = epoch_ids(make_sampler(samples, 64, shards, false), shards, 5);
      std::int64_t next = 0, padding = 0;
      for (const std::int64_t id : ids) {
        if (id < 0) {
          ++padding;
        } else {
          EXPECT_EQ(id, next++);
        }
      }
      EXPECT_EQ(next, samples) << shards;
      EXPECT_LT(padding, shards) << samples;
    }
  }
}

TEST(Sampler, TrainingShowsEachSampleAtMostOnceAndDropsFewerThanTheShards) {
  for (const int shards : {1, 2, 4, 8}) {
    for (const std::int64_t samples : {8, 97, 1009}) {
      const auto ids = epoch_ids(make_sampler(samples, 64, shards, true), shards, 3);
      const std::set<std::int64_t> unique(ids.begin(), ids.end());
      EXPECT_EQ(unique.size(), ids.size());
      EXPECT_EQ(static_cast<std::int64_t>(ids.size()), samples - samples % shards);
      EXPECT_TRUE(*unique.begin() >= 0 && *unique.rbegin() < samples);
    }
  }
}

TEST(Sampler, DroppedSamplesDifferByEpoch) {
  const Sampler sampler = make_sampler(97, 64, 8, true);
  EXPECT_EQ(sampler.split().dropped, 1);
  std::set<std::int64_t> dropped;
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    const auto ids = epoch_ids(sampler, 8, epoch);
    const std::set<std::int64_t> seen(ids.begin(), ids.end());
    for (std::int64_t id = 0; id < 97; ++id) {
      if (!seen.contains(id)) dropped.insert(id);
    }
  }
  EXPECT_GT(dropped.size(), 10u);
}

TEST(Sampler, TheLastBatchIsSpreadShardAfterShard) {
  const Sampler sampler = make_sampler(97, 64, 8, false);
  EXPECT_EQ(sampler.rows(0), 8);
  ASSERT_EQ(sampler.rows(1), 5);  // 33 remaining over 8 shards, rounded up.
  EXPECT_EQ(sampler.sample(0, 1, 0, 0), 64);
  EXPECT_EQ(sampler.sample(0, 1, 1, 0), 69);
  EXPECT_EQ(sampler.sample(0, 1, 6, 2), 96);
  EXPECT_EQ(sampler.sample(0, 1, 6, 3), -1);
  EXPECT_EQ(sampler.sample(0, 1, 7, 0), -1);
}

TEST(Sampler, TrainingFollowsThePermutation) {
  const Sampler sampler = make_sampler(97, 64, 8, true);
  EXPECT_EQ(sampler.sample(4, 0, 3, 2), static_cast<std::int64_t>(permute(3 * 8 + 2, 97, 9, 4)));
  EXPECT_EQ(sampler.sample(4, 1, 3, 2), static_cast<std::int64_t>(permute(64 + 3 * 4 + 2, 97, 9, 4)));
}

Sampler make_block_sampler(const std::vector<std::int64_t>& blocks, int window, int shards = 1) {
  SamplerConfig config;
  for (const std::int64_t size : blocks) config.samples += size;
  config.global_batch = config.samples;
  config.logical_shards = shards;
  config.seed = 9;
  config.shuffle = Shuffle::block;
  config.blocks = blocks;
  config.window = window;
  return Sampler(config);
}

TEST(Sampler, BlockOrderShowsEachSampleOnce) {
  const std::vector<std::vector<std::int64_t>> sets{
      {5, 5, 5, 5, 2}, {1}, {7}, {0, 3, 0, 4}, {1, 1, 1, 1, 1, 1, 900, 3}};
  for (const std::vector<std::int64_t>& blocks : sets) {
    for (const int window : {1, 2, 3, 50}) {
      for (const std::int64_t epoch : {0, 1, 2, 1000}) {
        const auto ids = epoch_ids(make_block_sampler(blocks, window), 1, epoch);
        EXPECT_TRUE(is_permutation_of_range({ids.begin(), ids.end()})) << window << " " << epoch;
      }
    }
  }
}

TEST(Sampler, BlockOrderIsAPureFunctionWhicheverEpochIsAskedFirst) {
  const Sampler a = make_block_sampler({30, 30, 30, 10}, 2), b = make_block_sampler({30, 30, 30, 10}, 2);
  const auto first = epoch_ids(a, 1, 3);
  for (const std::int64_t epoch : {0, 1, 2, 5, 4, 3}) epoch_ids(b, 1, epoch);
  EXPECT_EQ(first, epoch_ids(b, 1, 3));
  EXPECT_NE(first, epoch_ids(b, 1, 4));
  EXPECT_EQ(first, epoch_ids(a, 1, 3));
}

TEST(Sampler, BlockOrderTellsWhichBlocksAWindowShows) {
  const Sampler sampler = make_block_sampler({10, 0, 20, 5, 5}, 3);
  for (const std::int64_t epoch : {0, 7}) {
    const auto order = sampler.block_order(epoch);
    ASSERT_EQ(order->windows(), 2);
    const std::vector<std::int64_t> starts{0, 10, 30, 35, 40};
    const auto ids = epoch_ids(sampler, 1, epoch);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto block = std::upper_bound(starts.begin(), starts.end(), ids[i]) - starts.begin() - 1;
      const auto blocks = order->blocks_of(order->window_of(static_cast<std::int64_t>(i)));
      EXPECT_TRUE(std::find(blocks.begin(), blocks.end(), static_cast<std::size_t>(block)) != blocks.end()) << i;
    }
    EXPECT_EQ(order->blocks_of(1).size(), 1u);
  }
}

TEST(Sampler, AWindowHoldsTheSamplesOfItsBlocks) {
  const Sampler sampler = make_block_sampler({10, 10, 10, 10, 10, 10}, 2);
  std::set<std::set<std::int64_t>> pairs;
  for (std::int64_t epoch = 0; epoch < 30; ++epoch) {
    const auto ids = epoch_ids(sampler, 1, epoch);
    for (std::size_t window = 0; window < 3; ++window) {
      std::set<std::int64_t> blocks;
      for (std::size_t i = 0; i < 20; ++i) blocks.insert(ids[window * 20 + i] / 10);
      EXPECT_EQ(blocks.size(), 2u);
      pairs.insert(blocks);
      EXPECT_FALSE(std::is_sorted(ids.begin() + static_cast<std::ptrdiff_t>(window * 20),
                                  ids.begin() + static_cast<std::ptrdiff_t>(window * 20 + 20)));
    }
  }
  EXPECT_EQ(pairs.size(), 15u) << "all pairs of six blocks meet";
}

/// Over 200 epochs: how often each sample stands at each position, against all being equally likely. In deviations of
/// the chi-squared distribution from its mean.
double deviation_of_positions(const Sampler& sampler, std::int64_t samples, std::int64_t first_epoch) {
  constexpr int kEpochs = 200;
  const auto n = static_cast<std::size_t>(samples);
  std::vector<int> counts(n * n, 0);
  for (std::int64_t epoch = first_epoch; epoch < first_epoch + kEpochs; ++epoch) {
    const auto ids = epoch_ids(sampler, 1, epoch);
    for (std::size_t i = 0; i < n; ++i) ++counts[i * n + static_cast<std::size_t>(ids[i])];
  }
  const double expected = static_cast<double>(kEpochs) / static_cast<double>(n);
  double sum = 0;
  for (const int count : counts) sum += (count - expected) * (count - expected) / expected;
  const double freedom = static_cast<double>((n - 1) * (n - 1));
  return (sum - freedom) / std::sqrt(2 * freedom);
}

/// The same of which sample follows which.
double deviation_of_followers(const Sampler& sampler, std::int64_t samples) {
  constexpr int kEpochs = 200;
  const auto n = static_cast<std::size_t>(samples);
  std::vector<int> counts(n * n, 0);
  for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const auto ids = epoch_ids(sampler, 1, epoch);
    for (std::size_t i = 0; i + 1 < n; ++i) {
      ++counts[static_cast<std::size_t>(ids[i]) * n + static_cast<std::size_t>(ids[i + 1])];
    }
  }
  const double cells = static_cast<double>(n * (n - 1)), expected = kEpochs * static_cast<double>(n - 1) / cells;
  double sum = 0;
  for (std::size_t i = 0; i < n * n; ++i) {
    if (i / n != i % n) sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return (sum - cells) / std::sqrt(2 * cells);
}

TEST(Sampler, PositionsOf200EpochsAreEven) {
  // 4.5 deviations: less than one of 100,000 true shuffles is as far away.
  SamplerConfig config;
  config.samples = config.global_batch = 48;
  config.logical_shards = 1;
  config.seed = 4;
  EXPECT_LT(std::abs(deviation_of_positions(Sampler(config), 48, 0)), 4.5);
  EXPECT_LT(std::abs(deviation_of_followers(Sampler(config), 48)), 4.5);
  for (const int window : {1, 2, 4}) {
    const Sampler sampler = make_block_sampler({6, 6, 6, 6, 6, 6, 6, 6}, window);
    EXPECT_LT(std::abs(deviation_of_positions(sampler, 48, 0)), 4.5) << window;
  }
  // What block order is not: neighbours come from few blocks, so followers are far from even.
  EXPECT_GT(deviation_of_followers(make_block_sampler({6, 6, 6, 6, 6, 6, 6, 6}, 1), 48), 20.0);
}

TEST(Sampler, NoShuffleIsTheStoredOrder) {
  SamplerConfig config;
  config.samples = config.global_batch = 12;
  config.logical_shards = 4;
  config.shuffle = Shuffle::none;
  const auto ids = epoch_ids(Sampler(config), 4, 3);
  EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
}

TEST(Sampler, OrdersHaveNames) {
  for (const Shuffle shuffle : {Shuffle::global, Shuffle::block, Shuffle::none}) {
    EXPECT_EQ(parse_shuffle(shuffle_name(shuffle)), shuffle);
  }
  EXPECT_THROW(parse_shuffle("blocks"), UserError);
  EXPECT_THROW(make_block_sampler({3, 3}, 0), UserError);
}

TEST(Sampler, PlacesOutsideAreRefused) {
  const Sampler sampler = make_sampler(97, 64, 8, true);
  EXPECT_THROW(sampler.rows(2), InternalError);
  EXPECT_THROW(sampler.sample(0, 0, 8, 0), InternalError);
  EXPECT_THROW(sampler.sample(0, 1, 0, 4), InternalError);
  EXPECT_THROW(make_sampler(7, 64, 8, true), UserError);
}

}  // namespace
}  // namespace renai
