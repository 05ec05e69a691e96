// Packers: IDX, CIFAR, synthetic; resuming, overwriting, statistics.
#include "renai/data/pack.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <limits>

#include "../../../src/data/packing.hpp"
#include "../../../src/data/shard_writer.hpp"
#include "data_files.hpp"
#include "renai/io/hdf5.hpp"

namespace renai {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::Folder;
using ::testing::HasSubstr;
using testing::message_of;
using testing::pack_small;
using testing::slurp;
using testing::spill;

std::string word(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}
std::string idx_images(std::uint32_t n, std::uint32_t h, std::uint32_t w, int step) {
  std::string bytes = word(0x803) + word(n) + word(h) + word(w);
  for (std::uint32_t i = 0; i < n * h * w; ++i) bytes += static_cast<char>(i * static_cast<std::uint32_t>(step));
  return bytes;
}
std::string idx_labels(std::uint32_t n, std::uint32_t classes) {
  std::string bytes = word(0x801) + word(n);
  for (std::uint32_t i = 0; i < n; ++i) bytes += static_cast<char>(i % classes);
  return bytes;
}
void spill_gzip(const fs::path& path, const std::string& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
}
void write_idx(const Folder& folder) {
  spill_gzip(folder / "train-images-idx3-ubyte.gz", idx_images(11, 3, 4, 7));
  spill(folder / "train-labels.idx1-ubyte", idx_labels(11, 4));
  spill(folder / "t10k-images.idx3-ubyte", idx_images(5, 3, 4, 11));
  spill_gzip(folder / "t10k-labels-idx1-ubyte.gz", idx_labels(5, 3));
}
PackOptions to(const fs::path& out, std::int64_t shard_samples = 4) {
  PackOptions options;
  options.out = out;
  options.shard_samples = shard_samples;
  return options;
}
std::vector<std::byte> read_sample(const Dataset& set, std::int64_t sample) {
  std::vector<std::byte> pixels(static_cast<std::size_t>(set.sample_bytes()));
  set.read(sample, pixels);
  return pixels;
}

TEST(PackIdx, PlainAndGzipUnderBothNames) {
  const Folder folder;
  write_idx(folder);
  const Manifest manifest = pack_idx(folder.path(), to(folder / "out"));
  EXPECT_EQ(manifest.name, "out");
  EXPECT_THAT(manifest.classes, ::testing::ElementsAre("0", "1", "2", "3"));
  EXPECT_EQ(manifest.splits[0].shards.size(), 3u);
  const Dataset train = Dataset::open(folder / "out", "train"), val = Dataset::open(folder / "out", "val");
  ASSERT_TRUE(train.size() == 11 && val.size() == 5 && train.sample_bytes() == 12);
  EXPECT_EQ(train.label(6), 2);
  for (std::int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(read_sample(train, 9)[static_cast<std::size_t>(i)], static_cast<std::byte>((9 * 12 + i) * 7));
    EXPECT_EQ(read_sample(val, 4)[static_cast<std::size_t>(i)], static_cast<std::byte>((4 * 12 + i) * 11));
  }
}

TEST(PackIdx, TrainingFilesAloneAreEnough) {
  const Folder folder;
  write_idx(folder);
  fs::remove(folder / "t10k-images.idx3-ubyte");
  fs::remove(folder / "t10k-labels-idx1-ubyte.gz");
  EXPECT_EQ(pack_idx(folder.path(), to(folder / "out")).splits.size(), 1u);
}

TEST(PackIdx, StatisticsAreThoseOfTheTrainingPixels) {
  const Folder folder;
  write_idx(folder);
  const Manifest manifest = pack_idx(folder.path(), to(folder / "out"));
  double sum = 0, square_sum = 0;
  for (int i = 0; i < 132; ++i) {
    const double value = static_cast<unsigned char>(i * 7);
    sum += value;
    square_sum += value * value;
  }
  EXPECT_NEAR(manifest.mean[0], sum / 132, 1e-12);
  EXPECT_NEAR(manifest.std[0], std::sqrt(square_sum / 132 - sum * sum / 132 / 132), 1e-10);
}

TEST(PackIdx, BadFilesAreNamed) {
  const auto failing = [](const char* file, const std::string& bytes) {
    const Folder folder;
    write_idx(folder);
    spill(folder / file, bytes);
    return message_of<DataError>([&] { pack_idx(folder.path(), to(folder / "out")); });
  };
  EXPECT_THAT(failing("train-labels.idx1-ubyte", idx_labels(10, 4)),
              AllOf(HasSubstr("11 images"), HasSubstr("10 labels")));
  EXPECT_THAT(failing("t10k-images.idx3-ubyte", idx_images(5, 4, 3, 1)), HasSubstr("another size"));
  EXPECT_THAT(failing("t10k-images.idx3-ubyte", idx_images(5, 3, 4, 1).substr(0, 60)),
              AllOf(HasSubstr("t10k-images"), HasSubstr("truncated")));
  EXPECT_THAT(failing("t10k-images.idx3-ubyte", idx_images(5, 3, 4, 1) + "x"), HasSubstr("longer than"));
  EXPECT_THAT(failing("t10k-images.idx3-ubyte", idx_labels(5, 3)), HasSubstr("no IDX file of uint8 images"));
  EXPECT_THAT(failing("t10k-images.idx3-ubyte", word(0x803) + word(4'000'000'000u) + word(60'000) + word(60'000)),
              HasSubstr("extents"));
  EXPECT_THAT(failing("t10k-images.idx3-ubyte", ""), HasSubstr("truncated"));
  const std::string zipped = [] {
    const Folder folder;
    write_idx(folder);
    return slurp(folder / "train-images-idx3-ubyte.gz");
  }();
  EXPECT_THAT(failing("train-images-idx3-ubyte.gz", zipped.substr(0, zipped.size() / 2)), HasSubstr("train-images"));
  std::string flipped = zipped;
  flipped[flipped.size() - 6] = static_cast<char>(flipped[flipped.size() - 6] ^ 1);  // Its checksum.
  EXPECT_THAT(failing("train-images-idx3-ubyte.gz", flipped), HasSubstr("damaged"));
  // All pixels are there, and what their checksum would say is not.
  for (const std::size_t lost : {1u, 4u, 8u}) {
    EXPECT_THAT(failing("train-images-idx3-ubyte.gz", zipped.substr(0, zipped.size() - lost)), HasSubstr("truncated"));
  }
}

TEST(PackIdx, MissingInputIsNamed) {
  const Folder folder;
  EXPECT_THAT(message_of<UserError>([&] { pack_idx(folder / "none", to(folder / "out")); }), HasSubstr("none"));
  EXPECT_THAT(message_of<DataError>([&] { pack_idx(folder.path(), to(folder / "out")); }),
              HasSubstr("train-images-idx3-ubyte"));
}

std::string cifar_records(int n, int label_bytes, int seed) {
  std::string bytes;
  for (int i = 0; i < n; ++i) {
    if (label_bytes == 2) bytes += static_cast<char>(i % 20);
    bytes += static_cast<char>((i + seed) % 10);
    for (int at = 0; at < 3072; ++at) bytes += static_cast<char>(at * 3 + i + seed);
  }
  return bytes;
}
void write_cifar10(const Folder& folder) {
  for (int i = 1; i <= 5; ++i) {
    spill(folder / ("data_batch_" + std::to_string(i) + ".bin"), cifar_records(i + 1, 1, i));
  }
  spill(folder / "test_batch.bin", cifar_records(3, 1, 9));
  spill(folder / "batches.meta.txt", "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n");
}

TEST(PackCifar, PlanesBecomePixelsAcrossFilesAndShards) {
  const Folder folder;
  write_cifar10(folder);
  const Manifest manifest = pack_cifar(folder.path(), to(folder / "out", 7));
  EXPECT_EQ(manifest.classes[8], "ship");
  const Dataset train = Dataset::open(folder / "out", "train");
  ASSERT_EQ(train.size(), 2 + 3 + 4 + 5 + 6);
  // Sample 8 is record 3 of the third file.
  EXPECT_EQ(train.label(8), 6);
  const auto pixels = read_sample(train, 8);
  for (int at = 0; at < 1024; ++at) {
    for (int c = 0; c < 3; ++c) {
      ASSERT_EQ(pixels[static_cast<std::size_t>(at * 3 + c)], static_cast<std::byte>((c * 1024 + at) * 3 + 3 + 3));
    }
  }
  EXPECT_EQ(Dataset::open(folder / "out", "val").size(), 3);
}

TEST(PackCifar, HundredUsesTheFineLabel) {
  const Folder folder;
  spill(folder / "train.bin", cifar_records(6, 2, 2));
  const Manifest manifest = pack_cifar(folder.path(), to(folder / "out"));
  EXPECT_EQ(manifest.classes.size(), 100u);
  EXPECT_EQ(Dataset::open(folder / "out", "train").label(3), 5);
}

TEST(PackCifar, BadFilesAreNamed) {
  const Folder folder;
  write_cifar10(folder);
  const auto failing = [&] { return message_of<DataError>([&] { pack_cifar(folder.path(), to(folder / "out")); }); };
  std::string records = cifar_records(4, 1, 1);
  records[3073] = 10;
  spill(folder / "data_batch_1.bin", records);
  EXPECT_THAT(failing(), HasSubstr("sample 1 has label 10"));
  spill(folder / "data_batch_1.bin", records.substr(0, 5000));
  EXPECT_THAT(failing(), AllOf(HasSubstr("data_batch_1.bin"), HasSubstr("truncated")));
  for (const char* name : {"data_batch_4.bin", "test_batch.bin"}) {
    write_cifar10(folder);
    spill(folder / name, "");
    EXPECT_THAT(failing(), AllOf(HasSubstr(name), HasSubstr("empty")));
  }
  write_cifar10(folder);
  fs::remove(folder / "data_batch_3.bin");
  EXPECT_THAT(failing(), AllOf(HasSubstr("data_batch_3.bin"), HasSubstr("missing")));
}

TEST(Pack, ClassNamesFromAFile) {
  const Folder folder;
  write_idx(folder);
  spill(folder / "names.txt", "a\r\nb\nc c\nd\n");
  PackOptions options = to(folder / "out");
  options.classes = folder / "names.txt";
  EXPECT_THAT(pack_idx(folder.path(), options).classes, ::testing::ElementsAre("a", "b", "c c", "d"));
  spill(folder / "names.txt", "a\nb\n");
  options.out = folder / "other";
  EXPECT_THAT(message_of<DataError>([&] { pack_idx(folder.path(), options); }), HasSubstr("2 classes"));
  spill(folder / "names.txt",
        "\xef\xbb\xbf"
        "a\nb\nc\nd\n");
  EXPECT_EQ(pack_idx(folder.path(), options).classes.front(), "a") << "without the mark of the encoding";
  for (const fs::path& name : {folder / "none.txt", folder.path()}) {
    options.classes = name;
    options.out = folder / "third";
    EXPECT_THAT(message_of<UserError>([&] { pack_idx(folder.path(), options); }),
                AllOf(HasSubstr("class names " + name.string()), HasSubstr("one class a line")));
  }
}

TEST(PackSynthetic, IsAPureFunctionOfTheSeed) {
  const Folder folder;
  const Manifest a = pack_small(folder / "a", 50, 20, 16), b = pack_small(folder / "b", 50, 20, 16);
  EXPECT_EQ(a.digest(), b.digest());
  for (const ShardInfo& shard : a.splits[0].shards) {
    EXPECT_EQ(slurp(folder / ("a/" + shard.file)), slurp(folder / ("b/" + shard.file)));
  }
  SyntheticOptions other;
  other.train = 50;
  other.val = 0;
  other.height = 6;
  other.width = 5;
  other.channels = 2;
  other.classes = 3;
  other.seed = 2;
  const Manifest c = pack_synthetic(other, to(folder / "c", 16));
  EXPECT_NE(c.splits[0].shards[0].digest, a.splits[0].shards[0].digest);
  EXPECT_EQ(c.splits.size(), 1u);
  other.classes = 0;
  message_of<UserError>([&] { pack_synthetic(other, to(folder / "d")); });
  other.classes = 3;
  message_of<UserError>([&] { pack_synthetic(other, to(folder / "d", 0)); });
}

TEST(Pack, ACompleteSetIsRefusedUnlessOverwritten) {
  const Folder folder;
  pack_small(folder / "set", 50, 20, 16);
  EXPECT_THAT(message_of<UserError>([&] { pack_small(folder / "set", 50, 20, 16); }),
              AllOf(HasSubstr("complete"), HasSubstr("--overwrite")));
  write_idx(folder);
  PackOptions options = to(folder / "set");
  options.overwrite = true;
  pack_idx(folder.path(), options);
  EXPECT_EQ(Dataset::open(folder / "set", "train").size(), 11);
  std::size_t shards = 0;
  for (const auto& entry : fs::directory_iterator(folder / "set")) shards += entry.path().extension() == ".h5" ? 1 : 0;
  EXPECT_EQ(shards, 3u + 2u) << "no shard of the earlier set is left";
}

/// A set of one large shard is not at 0 % until its end.
TEST(Pack, ProgressCountsSamplesWithinAShard) {
  const Folder folder;
  PackSource source;
  source.height = source.width = 512;
  source.channels = 4;
  source.classes = {"a"};
  source.splits.push_back({"train", 15, [](std::int64_t, std::span<std::int32_t> labels, std::span<std::byte> images) {
                             std::fill(labels.begin(), labels.end(), 0);
                             std::fill(images.begin(), images.end(), std::byte{7});
                           }});
  const ShardPlan plan{0, 0, 1, 0, 15, "train.h5"};
  const auto advances = [&] {
    std::vector<std::int64_t> steps;
    make_raw_shard(folder.path(), source, plan, [&steps](std::int64_t samples) {
      if (samples > 0) steps.push_back(samples);
    });
    return steps;
  };
  EXPECT_THAT(advances(), ::testing::ElementsAre(2, 2, 2, 1, 2, 2, 2, 2)) << "blocks of four samples, twice";
  EXPECT_THAT(advances(), ::testing::ElementsAre(2, 2, 2, 1, 8)) << "the shard is there: one pass";
}

TEST(Pack, AShardMayBeLargerThanAnySet) {
  const Folder folder;
  EXPECT_EQ(pack_small(folder / "set", 50, 20, std::numeric_limits<std::int64_t>::max()).splits[0].shards.size(), 1u);
  EXPECT_EQ(Dataset::open(folder / "set", "train").size(), 50);
}

TEST(Pack, AnOverwriteThatFailsAtOnceLeavesTheEarlierSetWhole) {
  const Folder folder;
  pack_small(folder / "set", 50, 20, 16);
  const std::string manifest = slurp(folder / "set/manifest.json");
  PackOptions options = to(folder / "set");
  options.overwrite = true;
  const auto whole = [&] {
    EXPECT_EQ(slurp(folder / "set/manifest.json"), manifest);
    verify_dataset(folder / "set");
  };
  message_of<UserError>([&] { pack_cifar(folder / "nowhere", options); });
  whole();
  write_cifar10(folder);
  std::string records = cifar_records(4, 1, 1);
  records[3073] = 10;
  spill(folder / "data_batch_1.bin", records);
  EXPECT_THAT(message_of<DataError>([&] { pack_cifar(folder.path(), options); }), HasSubstr("label 10"));
  whole();
  EXPECT_THAT(message_of<UserError>([&] { pack_small(folder / "set"); }), HasSubstr("complete"));
  write_cifar10(folder);
  pack_cifar(folder.path(), options);
  EXPECT_NE(slurp(folder / "set/manifest.json"), manifest);
  verify_dataset(folder / "set");
}

TEST(Pack, AnInterruptedPackGoesOn) {
  const Folder folder;
  std::string journal;
  const auto pack = [&] {
    SyntheticOptions synthetic{50, 20, 6, 5, 2, 3};
    PackOptions options = to(folder / "set", 16);
    options.progress = [&](const PackProgress&) { journal = slurp(folder / "set/.packing"); };
    return pack_synthetic(synthetic, options);
  };
  const Manifest manifest = pack();
  const auto shard = [&](std::size_t i) { return folder / ("set/" + manifest.splits[0].shards[i].file); };
  const std::string whole = slurp(folder / "set/manifest.json");
  // As after a kill: no manifest, one shard missing, one with a flipped pixel, a half-written file beside another.
  fs::remove(folder / "set/manifest.json");
  spill(folder / "set/.packing", journal);
  fs::remove(shard(1));
  const auto place = H5File::open(shard(2)).info("images").file_offset + 5;
  std::string damaged = slurp(shard(2));
  damaged[static_cast<std::size_t>(place)] = static_cast<char>(damaged[static_cast<std::size_t>(place)] ^ 4);
  spill(shard(2), damaged);
  const fs::path partial = shard(3).string() + ".123-0.partial";
  spill(partial, "half");
  spill(folder / "set/.spool-abcdef", "half");
  const fs::path copy = shard(3).string() + ".rsync.partial";
  spill(folder / "set/notes.partial", "another's");
  spill(copy, "another's");
  const auto kept = fs::last_write_time(shard(0));
  fs::last_write_time(shard(0), kept - std::chrono::hours(1));
  pack();
  EXPECT_EQ(fs::last_write_time(shard(0)), kept - std::chrono::hours(1)) << "a complete shard is not written again";
  EXPECT_FALSE(fs::exists(partial) || fs::exists(folder / "set/.spool-abcdef"));
  EXPECT_TRUE(fs::exists(folder / "set/notes.partial"));
  EXPECT_TRUE(fs::exists(copy));
  EXPECT_EQ(slurp(folder / "set/manifest.json"), whole);
  verify_dataset(folder / "set");
}

TEST(Pack, ShardsThatNoPackLeftAreRefusedUnlessOverwritten) {
  const Folder folder;
  fs::create_directories(folder / "set");
  const fs::path made_elsewhere = folder / "set/train-00000-of-00009.h5";
  spill(made_elsewhere, "precious");
  EXPECT_THAT(message_of<UserError>([&] { pack_small(folder / "set"); }),
              AllOf(HasSubstr("train-00000-of-00009.h5"), HasSubstr("--overwrite")));
  EXPECT_EQ(slurp(made_elsewhere), "precious");
  EXPECT_FALSE(fs::exists(folder / "set/.packing"));
  write_idx(folder);
  PackOptions options = to(folder / "set");
  options.overwrite = true;
  pack_idx(folder.path(), options);
  EXPECT_FALSE(fs::exists(made_elsewhere));
}

TEST(Pack, OnePackAtATimeWritesIntoAFolder) {
  const Folder folder;
  write_idx(folder);
  PackOptions first = to(folder / "set"), second = first;
  second.overwrite = true;
  std::string refusal;
  first.progress = [&](const PackProgress&) {
    if (refusal.empty()) refusal = message_of<UserError>([&] { pack_idx(folder.path(), second); });
  };
  pack_idx(folder.path(), first);
  EXPECT_THAT(refusal, AllOf(HasSubstr("set"), HasSubstr("another pack is at work there")));
  verify_dataset(folder / "set");
  pack_idx(folder.path(), second);  // The first has let go.
}

TEST(Pack, AnUnwritableFolderIsAResourceError) {
  const Folder folder;
  spill(folder / "file", "x");
  EXPECT_THAT(message_of<ResourceError>([&] { pack_small(folder / "file/set"); }), HasSubstr("file/set"));
}

}  // namespace
}  // namespace renai
