// The benchmark of the input: stages, equal bytes on any number of threads.
#include "renai/data/data_bench.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "data_files.hpp"
#include "renai/base/memory.hpp"
#include "renai/data/page_cache.hpp"
#include "renai/data/read_ahead.hpp"

namespace renai {
namespace {

namespace fs = std::filesystem;
using testing::copy_small;
using testing::Folder;
using testing::message_of;
using testing::spill;

DataBenchConfig config_of(std::int64_t samples, int threads) {
  DataBenchConfig config;
  config.augmentation = Augmentation::parse("crop2,flip");
  config.samples = samples;
  config.rows = 8;
  config.threads = threads;
  return config;
}

TEST(DataBench, MeasuresTheStagesOfARawSet) {
  const Folder folder;
  copy_small(folder / "set");
  const Dataset dataset = Dataset::open(folder / "set", "train");
  DataBenchConfig config = config_of(200, 2);
  const DataBench bench = bench_data(dataset, config);
  EXPECT_TRUE(bench.same_pixels);
  ASSERT_EQ(bench.stages.size(), 3u);
  for (const StageRate& stage : bench.stages) {
    EXPECT_GT(stage.images_per_second, 0) << stage.name;
    EXPECT_GT(stage.bytes_per_second, 0) << stage.name;
    EXPECT_FALSE(stage.limit.empty());
  }
  EXPECT_EQ(bench.mean_stored_bytes, 60);
  config.threads = 1;
  EXPECT_EQ(bench_data(dataset, config).digest, bench.digest);
  config.augmentation = Augmentation::parse("flip");
  EXPECT_NE(bench_data(dataset, config).digest, bench.digest);
  config.augmentation = Augmentation::parse("colour");
  message_of<UserError>([&] { bench_data(dataset, config); });
}

TEST(DataBench, MeasuresTheSameWorkOnOneAndMoreThreads) {
  const Folder folder;
  copy_small(folder / "set");
  const Dataset dataset = Dataset::open(folder / "set", "train");
  for (const int threads : {1, 3, 4}) {
    const std::vector<ScalingPoint> points = bench_scaling(dataset, config_of(60, threads));
    const std::vector<int> wanted = threads == 1   ? std::vector<int>{1}
                                    : threads == 3 ? std::vector<int>{1, 2, 3}
                                                   : std::vector<int>{1, 2, 4};
    ASSERT_EQ(points.size(), wanted.size());
    for (std::size_t i = 0; i < points.size(); ++i) {
      EXPECT_EQ(points[i].threads, wanted[i]);
      ASSERT_EQ(points[i].rates.size(), 3u);
      EXPECT_EQ(points[i].rates[0].name, "read");
      EXPECT_EQ(points[i].rates[1].name, "stage");
      EXPECT_EQ(points[i].rates[2].name, "registers");
      for (const StageRate& rate : points[i].rates) {
        EXPECT_GE(rate.images, 60) << rate.name;
        EXPECT_GT(rate.images_per_second, 0) << rate.name;
      }
    }
  }
  DataBenchConfig colours = config_of(60, 1);
  colours.augmentation = Augmentation::parse("colour");
  message_of<UserError>([&] { bench_scaling(dataset, colours); });
}

TEST(FileSet, CountsEachShardOnceAndIsReadInParts) {
  const Folder folder;
  copy_small(folder / "set");
  const Manifest manifest = load_manifest(folder / "set");
  FileSet files;
  files.add(folder / "set", manifest, "train");
  files.add(folder / "set", manifest, "train");
  files.add(folder / "set", manifest, "val");
  files.add(folder / "set", manifest, "test");
  EXPECT_EQ(files.paths.size(), 4u + 2u);
  std::int64_t bytes = 0;
  for (const auto& path : files.paths) bytes += static_cast<std::int64_t>(std::filesystem::file_size(path));
  EXPECT_EQ(files.size_bytes, bytes);
  std::int64_t read = 0;
  for (int part = 0; part < 4; ++part) {
    CacheFiller filler(files, part, 4);
    while (!filler.done()) std::this_thread::yield();
    read += filler.read_bytes();
  }
  EXPECT_EQ(read, bytes);
  EXPECT_GT(cacheable_memory_bytes(), 0);
  std::filesystem::remove(files.paths[1]);
  CacheFiller filler(files, 0, 1);
  message_of<DataError>([&] {
    while (!filler.done()) std::this_thread::yield();
  });
  FileSet missing;
  message_of<DataError>([&] { missing.add(folder / "set", manifest, "train"); });
}

TEST(FileSet, TakesManyShardsInNoTime) {
  constexpr int kShards = 50'000;
  const Folder folder;
  Manifest manifest;
  manifest.splits.push_back({"train", {}});
  spill(folder / "0", "one byte more");
  for (int i = 0; i < kShards; ++i) {
    const std::string name = std::to_string(i);
    if (i > 0) std::filesystem::create_symlink("0", folder / name);
    manifest.splits[0].shards.push_back({name, 1, ""});
  }
  const auto start = std::chrono::steady_clock::now();
  FileSet files;
  for (int again = 0; again < 2; ++again) files.add(folder.path(), manifest, "train");
  // Comparing each path with each other one takes minutes.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_EQ(files.paths.size(), std::size_t{kShards});
  EXPECT_EQ(files.size_bytes, 13 * kShards);
}

std::int64_t shard_bytes(const Dataset& dataset, std::size_t shard) {
  return static_cast<std::int64_t>(
      fs::file_size(dataset.directory() / dataset.manifest().splits[0].shards.at(shard).file));
}

TEST(ReadAhead, FollowsTheWindowsAndForgivesWhatIsGone) {
  const Folder folder;
  copy_small(folder / "set");
  const Dataset dataset = Dataset::open(folder / "set", "train");
  SamplerConfig config{dataset.size(), 10, 1, 3, true};
  config.shuffle = Shuffle::block;
  for (const ShardInfo& shard : dataset.manifest().splits[0].shards) config.blocks.push_back(shard.samples);
  config.window = 1;
  const Sampler sampler(config);
  const auto shard_of = [&sampler](std::int64_t epoch, std::int64_t window) {
    const auto order = sampler.block_order(epoch);
    if (window < order->windows()) return order->blocks_of(window).at(0);
    return sampler.block_order(epoch + 1)->blocks_of(0).at(0);
  };
  ReadAhead ahead(dataset, sampler);
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    for (std::int64_t batch = 0; batch < sampler.split().batches(); ++batch) {
      ahead.at(epoch, batch);
      const std::int64_t window = sampler.block_order(epoch)->window_of(sampler.first_position(batch));
      const std::size_t now = shard_of(epoch, window), next = shard_of(epoch, window + 1);
      const std::int64_t expected = shard_bytes(dataset, now) + (next != now ? shard_bytes(dataset, next) : 0);
      for (int look = 0; look < 1000 && ahead.read_bytes() < expected; ++look) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      EXPECT_EQ(ahead.read_bytes(), expected) << "epoch " << epoch << ", batch " << batch;
      ahead.at(epoch, batch);
      EXPECT_EQ(ahead.read_bytes(), expected) << "the same window is not read again";
    }
  }
  for (const ShardInfo& shard : dataset.manifest().splits[0].shards) fs::remove(folder / "set" / shard.file);
  ahead.at(2, 0);
  EXPECT_EQ(ahead.read_bytes(), 0);
}

TEST(ReadAhead, ForgivesWhatTheSystemWillNotGive) {
  const Folder folder;
  copy_small(folder / "set");
  const Dataset dataset = Dataset::open(folder / "set", "train");
  SamplerConfig config{dataset.size(), 10, 1, 3, true};
  config.shuffle = Shuffle::block;
  for (const ShardInfo& shard : dataset.manifest().splits[0].shards) config.blocks.push_back(shard.samples);
  const Sampler sampler(config);
  const std::filesystem::path shard = folder / "set" / dataset.manifest().splits[0].shards[0].file;
  std::filesystem::remove(shard);
  ASSERT_EQ(::mkfifo(shard.c_str(), 0600), 0);  // The system tells no size of a pipe.
  EXPECT_THROW(FileSet{}.add(folder / "set", dataset.manifest(), "train"), ResourceError);
  ReadAhead ahead(dataset, sampler);
  EXPECT_NO_THROW(ahead.at(0, 0));
}

}  // namespace
}  // namespace renai
