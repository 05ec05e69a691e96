// How samples are read: past the page cache or through it, alone or with their neighbours: the same bytes and errors.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <numeric>

#include "../../../src/data/batch_reader.hpp"
#include "../../../src/data/positioned_file.hpp"
#include "data_files.hpp"
#include "encoded_set.hpp"
#include "renai/data/loader.hpp"
#include "renai/data/pack.hpp"

namespace renai {
namespace {

namespace fs = std::filesystem;
using testing::copy_small;
using testing::Folder;
using ::testing::HasSubstr;
using testing::message_of;
using testing::slurp;
using testing::spill;

std::string noise(std::size_t size) {
  std::string bytes(size, '\0');
  std::uint32_t state = 1;
  for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

/// False where this machine's temporary folder refuses such reads.
bool direct_works(const fs::path& file) {
  try {
    PositionedFile(file, true);
    return true;
  } catch (const DirectReadRefused&) {
    return false;
  }
}

std::int64_t pages_in_cache(const fs::path& file, bool drop) {
  const Descriptor descriptor(::open(file.c_str(), O_RDONLY));
  if (drop) {
    ::fsync(descriptor.get());
    ::posix_fadvise(descriptor.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
  const auto size = static_cast<std::size_t>(fs::file_size(file));
  void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor.get(), 0);
  std::vector<unsigned char> in((size + 4095) / 4096);
  EXPECT_EQ(::mincore(mapped, size, in.data()), 0);
  ::munmap(mapped, size);
  return std::count_if(in.begin(), in.end(), [](unsigned char page) { return (page & 1) != 0; });
}

TEST(DirectReads, GiveTheBytesOfTheFileAtAnyPlaceAndSize) {
  const Folder folder;
  const std::string bytes = noise((3u << 20) + 777);
  spill(folder / "file", bytes);
  if (!direct_works(folder / "file")) GTEST_SKIP() << "the file system refuses direct reads";
  const PositionedFile file(folder / "file", true);
  ASSERT_EQ(file.size_bytes(), static_cast<std::int64_t>(bytes.size()));
  const auto total = static_cast<std::int64_t>(bytes.size());
  for (const std::int64_t at :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{511}, std::int64_t{4096}, std::int64_t{1 << 20},
        std::int64_t{(1 << 20) - 3}, total - 777, total - 778, total - 1}) {
    for (const std::int64_t size : {1, 511, 512, 513, 4096, 50'000, (1 << 20) - 1, (1 << 20) + 9, 3 << 20}) {
      std::vector<std::byte> out(static_cast<std::size_t>(size));
      const bool whole = at + size <= total;
      ASSERT_EQ(file.read(at, out), whole) << at << " " << size;
      ASSERT_EQ(file.try_read(at, out), whole) << at << " " << size;
      const auto expected = std::as_bytes(std::span(bytes)).subspan(static_cast<std::size_t>(at));
      ASSERT_TRUE(!whole || std::equal(out.begin(), out.end(), expected.begin())) << at << " " << size;
    }
  }
  std::vector<std::byte> out(10);
  EXPECT_FALSE(file.read(total, out));
  EXPECT_FALSE(file.read(total + (1 << 20), out));
  EXPECT_TRUE(file.read(total, {}));
}

TEST(DirectReads, LeaveNothingInThePageCache) {
  const Folder folder;
  spill(folder / "file", noise(1u << 20));
  if (!direct_works(folder / "file")) GTEST_SKIP() << "the file system refuses direct reads";
  if (pages_in_cache(folder / "file", true) != 0) GTEST_SKIP() << "the page cache cannot be emptied here";
  std::vector<std::byte> out(300'000);
  EXPECT_TRUE(PositionedFile(folder / "file", true).read(12'345, out));
  EXPECT_EQ(pages_in_cache(folder / "file", false), 0);
  EXPECT_TRUE(PositionedFile(folder / "file").read(12'345, out));
  EXPECT_GT(pages_in_cache(folder / "file", false), 70);
}

TEST(DirectReads, AreRefusedByName) {
  // No file of this file system can be opened so.
  const std::string text = message_of<DirectReadRefused>([] { PositionedFile("/proc/self/status", true); });
  EXPECT_THAT(text, HasSubstr("/proc/self/status"));
  EXPECT_THAT(text, HasSubstr("--read-mode cached"));
  PositionedFile("/proc/self/status");
  message_of<DataError>([] { PositionedFile("/nowhere/file", true); });
}

TEST(ReadMode, IsChosenByWhatFits) {
  const std::int64_t gib = std::int64_t{1} << 30;
  EXPECT_EQ(choose_read_mode(ReadMode::automatic, 10 * gib, 8 * gib), ReadMode::cached);
  EXPECT_EQ(choose_read_mode(ReadMode::automatic, 17 * gib, 8 * gib), ReadMode::direct);
  EXPECT_EQ(choose_read_mode(ReadMode::automatic, 17 * gib, 0), ReadMode::cached);
  EXPECT_EQ(choose_read_mode(ReadMode::cached, 17 * gib, gib), ReadMode::cached);
  EXPECT_EQ(choose_read_mode(ReadMode::direct, 1, gib), ReadMode::direct);
  for (const ReadMode mode : {ReadMode::automatic, ReadMode::cached, ReadMode::direct}) {
    EXPECT_EQ(parse_read_mode(read_mode_name(mode)), mode);
  }
  EXPECT_THAT(message_of<UserError>([] { parse_read_mode("dirct"); }), HasSubstr("'direct'"));
}

TEST(ReadMode, AutomaticForgivesARefusalAndSaysSo) {
  const auto refusing = [](ReadMode mode) {
    if (mode == ReadMode::direct) throw DirectReadRefused("reading a file", "it is refused", "use another way");
    return mode;
  };
  std::string warning;
  EXPECT_EQ(open_as(ReadMode::automatic, 100, 10, warning, refusing), ReadMode::cached);
  EXPECT_THAT(warning, HasSubstr("it is refused"));
  warning.clear();
  EXPECT_EQ(open_as(ReadMode::automatic, 10, 10, warning, refusing), ReadMode::cached);
  EXPECT_EQ(open_as(ReadMode::cached, 100, 10, warning, refusing), ReadMode::cached);
  EXPECT_EQ(open_as(ReadMode::automatic, 100, 10, warning, [](ReadMode mode) { return mode; }), ReadMode::direct);
  EXPECT_EQ(warning, "");
  message_of<DirectReadRefused>([&] { open_as(ReadMode::direct, 100, 10, warning, refusing); });
}

std::vector<std::byte> read_alone(const Dataset& dataset, std::int64_t sample) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(dataset.stored_bytes(sample)));
  dataset.read(sample, bytes);
  return bytes;
}

/// Reads samples together and compares each with what reading it alone gives. Returns how many reads there were.
std::int64_t compare(const Dataset& dataset, const std::vector<std::int64_t>& samples) {
  BatchReader reader(samples.size());
  std::vector<std::byte> rows(samples.size() * static_cast<std::size_t>(dataset.sample_bytes()));
  reader.begin(dataset, samples, rows);
  for (std::size_t row = 0; row < samples.size(); ++row) {
    if (samples[row] < 0) continue;
    const std::span<const std::byte> found = reader.get(row);
    EXPECT_EQ(std::vector<std::byte>(found.begin(), found.end()), read_alone(dataset, samples[row])) << row;
    if (!dataset.encoded()) {
      EXPECT_EQ(found.data(), rows.data() + row * static_cast<std::size_t>(dataset.sample_bytes()));
    }
  }
  return reader.counts().reads;
}

TEST(BatchReader, ReadsNeighbouringPixelsAtOnce) {
  const Folder folder;
  copy_small(folder / "set", 50, 20, 16);  // Shards of 13, 13, 12 and 12 samples.
  for (const ReadMode mode : {ReadMode::cached, ReadMode::direct}) {
    if (mode == ReadMode::direct && !direct_works(folder / "set/train-00000-of-00004.h5")) continue;
    const Dataset dataset = Dataset::open(folder / "set", "train", mode);
    std::vector<std::int64_t> all(50);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(compare(dataset, all), 4);
    EXPECT_EQ(compare(dataset, {3, 4, 5, -1, 6, 7, 20, 19}), 4);  // 3 to 5, 6 and 7, and two alone.
    EXPECT_EQ(compare(dataset, {9, 9, 40}), 3);
    EXPECT_EQ(compare(dataset, {-1, -1}), 0);
    EXPECT_EQ(compare(dataset, {49}), 1);
  }
}

class EncodedReads : public ::testing::Test {
 protected:
  static constexpr std::int64_t kSamples = 60;
  void SetUp() override {
    testing::EncodedShard train, val;
    const std::string bytes = noise(std::size_t{kSamples} * 3000);
    for (std::int64_t i = 0; i < kSamples; ++i) {
      train.add(0, bytes.substr(static_cast<std::size_t>(3000 * i), static_cast<std::size_t>(1 + 97 * i % 2900)));
    }
    val.add(0, "x");
    testing::write_encoded_set(folder / "set", train, val, 24, 2);
    adopt_dataset(folder / "set");
  }
  fs::path shard() const { return folder / "set/train-00000-of-00001.h5"; }
  Folder folder;
};

TEST_F(EncodedReads, CloseImagesComeTogether) {
  for (const ReadMode mode : {ReadMode::cached, ReadMode::direct}) {
    if (mode == ReadMode::direct && !direct_works(shard())) continue;
    Dataset dataset = Dataset::open(folder / "set", "train", mode);
    dataset.check_digests();
    std::vector<std::int64_t> all(kSamples);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(compare(dataset, all), 1);
    std::reverse(all.begin(), all.end());
    EXPECT_EQ(compare(dataset, all), 1);  // Order of rows does not matter.
    EXPECT_EQ(compare(dataset, {5, -1, 6, 5, 7}), 1);
    // Some 65 KiB apart: worth one read only where each is a request to a device.
    EXPECT_EQ(compare(dataset, {0, 24}), mode == ReadMode::direct ? 1 : 2);
    EXPECT_EQ(compare(dataset, {0, 59}), 2);
  }
}

TEST_F(EncodedReads, ErrorsAreThoseOfReadingAlone) {
  Dataset dataset = Dataset::open(folder / "set", "train");
  dataset.check_digests();
  const std::string whole = slurp(shard());
  const Dataset::Place place = dataset.place(30);
  std::string damaged = whole;
  damaged[static_cast<std::size_t>(place.at)] ^= 1;
  const std::vector<std::int64_t> samples{29, 30, 31};
  const auto each = [&](std::size_t failing) {
    BatchReader reader(3);
    reader.begin(dataset, samples, {});
    for (std::size_t row = 0; row < failing; ++row) reader.get(row);
    const std::string together = message_of<DataError>([&] { reader.get(failing); });
    EXPECT_EQ(together, message_of<DataError>([&] { read_alone(dataset, samples[failing]); }));
  };
  const int file = ::open(shard().c_str(), O_WRONLY);
  ASSERT_EQ(::pwrite(file, damaged.data() + place.at, 1, place.at), 1);
  each(1);
  ASSERT_EQ(::ftruncate(file, place.at + 1), 0);  // The one before is whole, though the read of all three fails.
  each(1);
  ::close(file);
}

/// An event that is always reached.
class Reached : public Event {
 public:
  bool ready() const override { return true; }
  bool wait_host(std::chrono::milliseconds) const override { return true; }
  bool wait_background(std::chrono::milliseconds) const override { return true; }
  double microseconds_since(const Event&) const override { return 0.0; }
};

TEST(Loader, ReadsRowsTogetherAndHandsOutFewerTowardsTheEnd) {
  const Folder folder;
  copy_small(folder / "set", 64, 20, 64);
  const Dataset dataset = Dataset::open(folder / "set", "train");
  const SlotLayout layout = SlotLayout::make(32, 6, 5, 2);
  std::vector<std::byte> buffers(static_cast<std::size_t>(2 * layout.size_bytes));
  LoaderConfig config;
  config.layout = layout;
  config.staging = {buffers.data(), buffers.data() + layout.size_bytes};
  config.threads = 1;
  config.augmentation = Augmentation::parse("none");
  const Sampler sampler(SamplerConfig{64, 32, 1, 5, false});
  const Reached free;
  Loader loader(config);
  for (std::int64_t batch = 0; batch < 2; ++batch) {
    ShardJob job;
    job.dataset = &dataset;
    job.sampler = &sampler;
    job.batch = batch;
    loader.submit(job);
    loader.wait(batch);
    loader.release(batch, free);
  }
  EXPECT_EQ(loader.counts().samples, 64);
  EXPECT_EQ(loader.counts().reads, 2 * 5);  // 16 rows, 9, 4, 2, 1: the last threads at work end at about the same time.
}

TEST(Sampler, GivesManyRowsAsItGivesOne) {
  for (const Shuffle shuffle : {Shuffle::global, Shuffle::block, Shuffle::none}) {
    for (const bool training : {true, false}) {
      SamplerConfig config{107, 32, 4, 5, training};
      config.shuffle = shuffle;
      config.blocks = {40, 0, 50, 17};
      config.window = 2;
      const Sampler sampler(config);
      for (std::int64_t batch = 0; batch < sampler.split().batches(); ++batch) {
        std::vector<std::int64_t> rows(static_cast<std::size_t>(sampler.rows(batch)) - 1);
        sampler.samples(3, batch, 2, 1, rows);
        for (std::size_t i = 0; i < rows.size(); ++i) {
          EXPECT_EQ(rows[i], sampler.sample(3, batch, 2, static_cast<std::int64_t>(i) + 1));
        }
      }
    }
  }
}

}  // namespace
}  // namespace renai
