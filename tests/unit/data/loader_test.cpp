// Loader: what it stages, independent of threads; release of buffers; failures; endings.
#include "renai/data/loader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>

#include "data_files.hpp"
#include "renai/base/digest.hpp"
#include "renai/device/host.hpp"

namespace renai {
namespace {

using testing::copy_small;
using testing::Folder;
using ::testing::HasSubstr;
using testing::message_of;

constexpr std::chrono::milliseconds kSoon{30};

/// An event that a test sets by hand.
class Gate : public Event {
 public:
  bool ready() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    check();
    return open_;
  }
  bool wait_host(std::chrono::milliseconds limit) const override {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, limit, [this] { return open_ || broken_; });
    check();
    return open_;
  }
  bool wait_background(std::chrono::milliseconds limit) const override { return wait_host(limit); }
  double microseconds_since(const Event&) const override { return 0.0; }
  void set(bool open) {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  void fail() {
    const std::lock_guard<std::mutex> lock(mutex_);
    broken_ = true;
    changed_.notify_all();
  }

 private:
  void check() const {
    if (broken_) throw BackendError("copying", "the device failed");
  }
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool open_ = true, broken_ = false;
};

class LoaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    copy_small(folder / "set", 107, 41, 16);
    train.emplace(Dataset::open(folder / "set", "train"));
    val.emplace(Dataset::open(folder / "set", "val"));
    train_sampler.emplace(SamplerConfig{107, 32, 4, 5, true});
    val_sampler.emplace(SamplerConfig{41, 32, 4, 5, false});
  }
  LoaderConfig config(int threads) {
    LoaderConfig c;
    c.layout = layout;
    c.staging = {buffers[0].data(), buffers[1].data()};
    c.threads = threads;
    c.augmentation = Augmentation::parse("crop2,flip");
    c.mixing = mixing;
    c.erasing = erasing;
    c.seed = 77;
    return c;
  }
  ShardJob job(bool training, std::int64_t epoch, std::int64_t batch, int shard) {
    ShardJob j;
    j.dataset = training ? &*train : &*val;
    j.sampler = training ? &*train_sampler : &*val_sampler;
    j.epoch = epoch;
    j.batch = batch;
    j.shard = shard;
    j.control.step = 100 * epoch + batch;
    j.control.shard = shard;
    j.control.phase = training ? 0 : 1;
    return j;
  }
  template <typename T>
  const T* part(int buffer, std::int64_t offset_bytes) const {
    return reinterpret_cast<const T*>(buffers[static_cast<std::size_t>(buffer)].data() + offset_bytes);
  }
  /// Runs two epochs and a validation through a loader; returns the digest of each staged buffer.
  std::vector<std::string> run_all(int threads) {
    for (Buffer& buffer : buffers) std::memset(buffer.data(), 0, static_cast<std::size_t>(buffer.size_bytes()));
    std::vector<ShardJob> jobs;
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
      for (std::int64_t b = 0; b < train_sampler->split().batches(); ++b) {
        for (int s = 0; s < 4; ++s) jobs.push_back(job(true, epoch, b, s));
      }
    }
    for (std::int64_t b = 0; b < val_sampler->split().batches(); ++b) {
      for (int s = 0; s < 4; ++s) jobs.push_back(job(false, 1, b, s));
    }
    Loader loader(config(threads));
    std::vector<std::string> digests;
    std::size_t next = 0;
    for (std::size_t k = 0; k < jobs.size(); ++k) {
      while (next < jobs.size() && next < k + 3) loader.submit(jobs[next++]);
      const auto buffer = static_cast<std::size_t>(loader.wait(static_cast<std::int64_t>(k)));
      EXPECT_EQ(buffer, k % 2);
      digests.push_back(hash128({buffers[buffer].data(), static_cast<std::size_t>(layout.size_bytes)}).hex());
      loader.release(static_cast<std::int64_t>(k), gate);
    }
    return digests;
  }

  Folder folder;
  Mixing mixing;
  double erasing = 0;
  Gate gate;
  SlotLayout layout = SlotLayout::make(8, 6, 5, 2);
  std::unique_ptr<Device> device = make_host_device();
  std::array<Buffer, 2> buffers{device->allocate_pinned(layout.size_bytes), device->allocate_pinned(layout.size_bytes)};
  std::optional<Dataset> train, val;
  std::optional<Sampler> train_sampler, val_sampler;
};

TEST_F(LoaderTest, StagesTheSameForAnyNumberOfThreads) {
  const auto one = run_all(1);
  EXPECT_EQ(one.size(), 4u * 2 * 4 + 4u * 2);
  EXPECT_EQ(run_all(2), one);
  EXPECT_EQ(run_all(5), one);
  EXPECT_GT(std::set<std::string>(one.begin(), one.end()).size(), one.size() - 2);
}

TEST_F(LoaderTest, TrainingRowsAreAsSamplerAndSetSay) {
  Loader loader(config(2));
  const int x = loader.wait(loader.submit(job(true, 3, 1, 2)));
  const auto* ids = part<std::int64_t>(x, layout.ids_offset);
  for (std::int64_t row = 0; row < 8; ++row) {
    const std::int64_t sample = train_sampler->sample(3, 1, 2, row);
    EXPECT_EQ(ids[row], sample);
    EXPECT_EQ(part<std::int32_t>(x, layout.labels_offset)[row], train->label(sample));
    EXPECT_EQ(part<float>(x, layout.weights_offset)[row], 1.0f);
    const SampleParams expected = draw_params(Augmentation::parse("crop2,flip"), 6, 5, 77, 3, sample);
    EXPECT_EQ(std::memcmp(part<SampleParams>(x, layout.params_offset) + row, &expected, sizeof(expected)), 0);
    std::vector<std::byte> pixels(60);
    train->read(sample, pixels);
    EXPECT_EQ(std::memcmp(part<std::byte>(x, layout.images_offset) + row * 60, pixels.data(), 60), 0);
  }
  const auto* control = part<ControlBlock>(x, layout.control_offset);
  EXPECT_TRUE(control->rows == 8 && control->valid_rows == 8 && control->step == 301 && control->shard == 2);
}

TEST_F(LoaderTest, MixesAndErasesTheSameForAnyNumberOfThreads) {
  const auto plain = run_all(1);
  mixing = {0.5, 1.0};
  erasing = 0.5;
  const auto one = run_all(1);
  EXPECT_EQ(run_all(2), one);
  EXPECT_EQ(run_all(5), one);
  int equal = 0;
  for (std::size_t i = 0; i < one.size(); ++i) equal += one[i] == plain[i] ? 1 : 0;
  EXPECT_EQ(equal, 4 * 2) << "validation is left alone";
}

TEST_F(LoaderTest, RowsAreMixedAsDrawnForShardAndStep) {
  mixing = {1.0, 1.0};
  erasing = 0.7;
  Loader loader(config(2));
  std::set<bool> kinds;
  for (int i = 0; i < 8; ++i) {
    const int shard = i % 4;
    ShardJob mixed = job(true, 3, i / 4, shard);
    mixed.h = 12;
    mixed.w = 10;
    const std::int64_t k = loader.submit(mixed);
    const int x = loader.wait(k);
    const ShardMix mix = draw_mix(mixing, 8, 12, 10, 77, 300 + i / 4, shard);
    kinds.insert(mix.box[2] > 0);
    for (std::int64_t row = 0; row < 8; ++row) {
      const SampleParams& params = part<SampleParams>(x, layout.params_offset)[row];
      EXPECT_EQ(params.mix_partner, (row + mix.shift) % 8);
      EXPECT_EQ(params.mix_lambda, mix.lambda);
      EXPECT_EQ(params.mix_box, mix.box);
      EXPECT_EQ(params.erase_box, draw_erasing(0.7, 12, 10, 77, 3, train_sampler->sample(3, i / 4, shard, row)));
    }
    loader.release(k, gate);
  }
  EXPECT_EQ(kinds.size(), 2u) << "both kinds came up";
}

TEST_F(LoaderTest, PaddingRowsCarryNoWeight) {
  Loader loader(config(2));
  std::memset(buffers[0].data(), 0xff, static_cast<std::size_t>(layout.size_bytes));
  // 9 samples remain for 4 shards of 3 rows: the last shard is all padding, as shard 3 takes positions 41 to 43.
  const int x = loader.wait(loader.submit(job(false, 0, 1, 3)));
  for (std::int64_t row = 0; row < 3; ++row) {
    EXPECT_EQ(part<std::int64_t>(x, layout.ids_offset)[row], -1);
    EXPECT_EQ(part<std::int32_t>(x, layout.labels_offset)[row], 0);
    EXPECT_EQ(part<float>(x, layout.weights_offset)[row], 0.0f);
    const SampleParams& params = part<SampleParams>(x, layout.params_offset)[row];
    EXPECT_TRUE(params.crop_h == 6 && params.crop_w == 5 && params.crop_y == 0 && params.flip == 0);
    for (std::int64_t i = 0; i < 60; ++i)
      EXPECT_EQ(part<std::byte>(x, layout.images_offset)[row * 60 + i], std::byte{0});
  }
  const auto* control = part<ControlBlock>(x, layout.control_offset);
  EXPECT_TRUE(control->rows == 3 && control->valid_rows == 0);
}

TEST_F(LoaderTest, ValidationIsNotAugmented) {
  Loader loader(config(1));
  const int x = loader.wait(loader.submit(job(false, 4, 0, 1)));
  for (std::int64_t row = 0; row < 8; ++row) {
    const SampleParams& params = part<SampleParams>(x, layout.params_offset)[row];
    EXPECT_TRUE(params.crop_y == 0 && params.crop_x == 0 && params.flip == 0);
    EXPECT_EQ(part<std::int64_t>(x, layout.ids_offset)[row], 8 + row);
  }
}

TEST_F(LoaderTest, ABufferIsLeftAloneUntilItsCopyIsOver) {
  Loader loader(config(2));
  for (int shard = 0; shard < 4; ++shard) loader.submit(job(true, 0, 0, shard));
  loader.wait(0);
  loader.wait(1);
  const std::string before(reinterpret_cast<const char*>(buffers[0].data()),
                           static_cast<std::size_t>(layout.size_bytes));
  const auto unchanged = [&] { return std::memcmp(buffers[0].data(), before.data(), before.size()) == 0; };
  std::this_thread::sleep_for(kSoon);
  EXPECT_TRUE(unchanged()) << "job 2 waits for release(0)";
  gate.set(false);
  loader.release(0, gate);
  std::this_thread::sleep_for(kSoon);
  EXPECT_TRUE(unchanged()) << "job 2 waits for the event";
  gate.set(true);
  loader.wait(2);
  EXPECT_FALSE(unchanged());
}

TEST_F(LoaderTest, AFailedCopyIsReportedByTheNextJobOfTheBuffer) {
  Loader loader(config(2));
  for (int shard = 0; shard < 3; ++shard) loader.submit(job(true, 0, 0, shard));
  loader.wait(0);
  gate.set(false);
  loader.release(0, gate);
  gate.fail();
  loader.wait(1);
  EXPECT_THAT(message_of<BackendError>([&] { loader.wait(2); }), HasSubstr("the device failed"));
}

TEST_F(LoaderTest, AFailedReadIsReportedByWaitAndOthersGoOn) {
  // Cut while open: the file system still gives the descriptor, the bytes are gone.
  const std::string last = "set/" + val->manifest().splits[1].shards[2].file;
  std::filesystem::resize_file(folder / last, 100);
  Loader loader(config(3));
  const std::int64_t good = loader.submit(job(true, 0, 0, 0));
  const std::int64_t bad = loader.submit(job(false, 0, 1, 0));  // Samples 32 to 34: the third shard.
  EXPECT_EQ(loader.wait(good), 0);
  EXPECT_THAT(message_of<DataError>([&] { loader.wait(bad); }), HasSubstr("reading sample 0 of shard"));
  EXPECT_THAT(message_of<DataError>([&] { loader.wait(bad); }), HasSubstr("val-00002-of-00003.h5"));
}

TEST_F(LoaderTest, EndsAtAnyTime) {
  for (int round = 0; round < 20; ++round) {
    Loader loader(config(1 + round % 3));
    gate.set(true);
    for (int shard = 0; shard < 4 && shard < round; ++shard) loader.submit(job(true, 0, 0, shard));
    if (round % 4 == 3) {
      loader.wait(0);
      gate.set(false);
      loader.release(0, gate);
    }
  }
  gate.set(true);
}

TEST_F(LoaderTest, WorksWithEventsOfTheDevice) {
  const auto stream = device->create_stream(0);
  std::array<std::unique_ptr<Event>, 2> copied{device->create_event(), device->create_event()};
  Buffer slot = device->allocate(layout.size_bytes);
  Loader loader(config(2));
  std::int64_t submitted = 0;
  std::set<std::int64_t> seen;
  for (std::int64_t k = 0; k < 12; ++k) {
    while (submitted < 12 && submitted < k + 3) {
      loader.submit(job(true, 0, submitted / 4, static_cast<int>(submitted % 4)));
      ++submitted;
    }
    const int x = loader.wait(k);
    stream->copy(slot.data(), buffers[static_cast<std::size_t>(x)].data(), layout.size_bytes);
    stream->record(*copied[static_cast<std::size_t>(x)]);
    loader.release(k, *copied[static_cast<std::size_t>(x)]);
    stream->synchronize();
    const auto* ids = reinterpret_cast<const std::int64_t*>(slot.data() + layout.ids_offset);
    seen.insert(ids, ids + 8);
  }
  EXPECT_EQ(seen.size(), 96u);
  EXPECT_GT(loader.waited().count(), 0);
}

TEST_F(LoaderTest, MisuseIsRefused) {
  Loader loader(config(1));
  EXPECT_THROW(loader.wait(0), InternalError);
  for (int i = 0; i < Loader::kQueueDepth; ++i) loader.submit(job(true, 0, 0, 0));
  EXPECT_THROW(loader.submit(job(true, 0, 0, 0)), InternalError);
  loader.wait(0);
  EXPECT_THROW(loader.release(1, gate), InternalError);
  LoaderConfig none = config(1);
  none.threads = 0;
  EXPECT_THROW(Loader{none}, UserError);
}

TEST_F(LoaderTest, AnotherImageSizeIsRefused) {
  LoaderConfig other = config(1);
  other.layout = SlotLayout::make(8, 5, 5, 2);
  Loader loader(other);
  EXPECT_THAT(message_of<DataError>([&] { loader.submit(job(true, 0, 0, 0)); }), HasSubstr("6x5x2"));
}

}  // namespace
}  // namespace renai
