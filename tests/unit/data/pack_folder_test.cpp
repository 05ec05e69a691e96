// Packing folders on many threads; work in order; PNG and resizing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "../../../src/data/folder_shard.hpp"
#include "../../../src/data/image_error.hpp"
#include "../../../src/data/image_file.hpp"
#include "../../../src/data/image_tree.hpp"
#include "../../../src/data/jpeg_encoder.hpp"
#include "../../../src/data/ordered_work.hpp"
#include "../../../src/data/png_image.hpp"
#include "../../../src/data/resize.hpp"
#include "data_files.hpp"
#include "renai/io/hdf5.hpp"

namespace renai {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::Folder;
using ::testing::HasSubstr;
using testing::message_of;
using testing::slurp;
using testing::spill;

struct Number {
  std::int64_t value = 0;
  std::int64_t held_bytes() const { return 10; }
};

TEST(OrderedWork, TakesItemsInOrderWhicheverThreadIsFaster) {
  for (const int threads : {1, 2, 7}) {
    for (const std::int64_t count : {0, 1, 5, 300}) {
      OrderedLimits limits{threads, 6, 25};
      std::atomic<std::int64_t> in_the_making{0}, most{0};
      OrderedWork<Number> work(count, limits, [&](std::int64_t i, int thread) {
        EXPECT_TRUE(thread >= 0 && thread < threads);
        const std::int64_t now = ++in_the_making;
        std::int64_t seen = most;
        while (now > seen && !most.compare_exchange_weak(seen, now)) {
        }
        if (i % 3 == 0) std::this_thread::yield();
        --in_the_making;
        return Number{i * i};
      });
      std::int64_t next = 0;
      work.run([&](std::int64_t i, Number&& number) {
        EXPECT_EQ(i, next++);
        EXPECT_EQ(number.value, i * i);
      });
      EXPECT_EQ(next, count);
      EXPECT_LE(most, threads);
    }
  }
}

TEST(OrderedWork, ReportsTheFirstItemsFailureAndEnds) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    OrderedWork<Number> work(100, OrderedLimits{4, 8, 1000}, [](std::int64_t i, int) {
      if (i >= 17) throw DataError("item " + std::to_string(i), "it is bad", "leave it out");
      return Number{i};
    });
    std::int64_t taken = 0;
    const std::string message = message_of<DataError>([&] { work.run([&](std::int64_t, Number&&) { ++taken; }); });
    EXPECT_THAT(message, HasSubstr("item 17;"));
    EXPECT_EQ(taken, 17);
  }
  OrderedWork<Number> work(100, OrderedLimits{4, 8, 1000}, [](std::int64_t i, int) { return Number{i}; });
  message_of<UserError>([&] {
    work.run([](std::int64_t i, Number&&) {
      if (i == 5) throw UserError("taking", "enough", "stop");
    });
  });
}

std::string word(std::size_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

std::string chunk(const std::string& name, const std::string& data) {
  const std::string body = name + data;
  const auto sum = ::crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return word(data.size()) + body + word(sum);
}

/// A PNG file of h x w pixels; `rows` holds each row's bytes without filters.
std::string png(std::int64_t h, std::int64_t w, int depth, int colour, const std::string& rows,
                const std::string& more = {}) {
  const std::size_t row_bytes = rows.size() / static_cast<std::size_t>(h);
  std::string filtered;
  for (std::size_t at = 0; at < rows.size(); at += row_bytes) filtered += '\0' + rows.substr(at, row_bytes);
  std::string packed(::compressBound(filtered.size()), '\0');
  uLongf size = packed.size();
  ::compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(filtered.data()),
             filtered.size());
  packed.resize(size);
  const std::string header = word(static_cast<std::size_t>(w)) + word(static_cast<std::size_t>(h)) +
                             static_cast<char>(depth) + static_cast<char>(colour) + std::string(3, '\0');
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + more + chunk("IDAT", packed) + chunk("IEND", "");
}

RgbImage decode(const std::string& bytes) { return decode_png(std::as_bytes(std::span(bytes))); }

std::vector<int> values(const RgbImage& image) { return {image.pixels.begin(), image.pixels.end()}; }

TEST(Png, EveryKindBecomesRgb) {
  using ::testing::ElementsAre;
  EXPECT_THAT(values(decode(png(1, 2, 8, 2, "\1\2\3\4\5\6"))), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(values(decode(png(1, 2, 8, 0, "\x40\x41"))), ElementsAre(64, 64, 64, 65, 65, 65));
  EXPECT_THAT(values(decode(png(1, 2, 8, 4, std::string("\x40\0\x41\x7f", 4)))), ElementsAre(64, 64, 64, 65, 65, 65));
  EXPECT_THAT(values(decode(png(1, 1, 8, 6, std::string("\1\2\3\0", 4)))), ElementsAre(1, 2, 3));
  EXPECT_THAT(values(decode(png(1, 2, 1, 0, "\x40"))), ElementsAre(0, 0, 0, 255, 255, 255));
  // 16 bits: 0x0180 / 257 = 1.49, 0x0181 / 257 = 1.498, 0x0182 / 257 = 1.502.
  EXPECT_THAT(values(decode(png(1, 2, 16, 0, "\x01\x81\x01\x82"))), ElementsAre(1, 1, 1, 2, 2, 2));
  const std::string palette = chunk("PLTE", "\x0a\x0b\x0c\x14\x15\x16") + chunk("tRNS", std::string("\0", 1));
  EXPECT_THAT(values(decode(png(1, 2, 8, 3, std::string("\1\0", 2), palette))), ElementsAre(20, 21, 22, 10, 11, 12));
}

TEST(Png, OrientationIsApplied) {
  // A TIFF header, one entry: tag 0x0112, type short, count 1, value 6 (the picture is turned right to be seen).
  const std::string exif("MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0", 26);
  const RgbImage image = decode(png(1, 2, 8, 0, "\x0a\x14", chunk("eXIf", exif)));
  EXPECT_EQ(image.h, 2);
  EXPECT_EQ(image.w, 1);
  EXPECT_THAT(values(image), ::testing::ElementsAre(10, 10, 10, 20, 20, 20));
}

TEST(Png, DamageIsToldNotGuessed) {
  const std::string whole = png(3, 3, 8, 2, std::string(27, 'x'));
  decode(whole);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THROW(decode(whole.substr(0, size)), ImageError) << size;
  }
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x40);
    EXPECT_THROW(decode(flipped), ImageError) << at;
  }
}

TEST(Png, ADamagedOrientationIsNotLeftOut) {
  const std::string exif("MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0", 26);
  const std::string whole = png(1, 2, 8, 0, "\x0a\x14", chunk("eXIf", exif));
  const std::size_t at = whole.find("eXIf");
  for (std::size_t i = at + 4; i < at + 4 + exif.size() + 4; ++i) {
    std::string flipped = whole;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x40);
    EXPECT_THROW(decode(flipped), ImageError) << i - at;
  }
}

TEST(Resize, IsTheMeanWhereItShrinksByWholePixels) {
  RgbImage image{4, 4, std::vector<std::uint8_t>(48)};
  for (std::size_t i = 0; i < 48; ++i) image.pixels[i] = static_cast<std::uint8_t>(5 * i);
  const RgbImage same = resize_and_crop(image, 4);
  EXPECT_EQ(same.pixels, image.pixels);
  const RgbImage one = resize_and_crop(image, 1);
  // A triangle over all four pixels with weights 1, 3, 3, 1: symmetric, so the mean of a ramp.
  EXPECT_THAT(values(one), ::testing::ElementsAre(113, 118, 123));
  RgbImage wide{1, 301, std::vector<std::uint8_t>(903, 7)};
  EXPECT_EQ(resize_and_crop(wide, 8).pixels, std::vector<std::uint8_t>(192, 7)) << "a flat image stays flat";
}

TEST(Resize, APartOfAPixelKeepsItsPlace) {
  // A picture of 20 x 20 at an eighth is 2.5 pixels wide, of which the image has two.
  const RgbImage image{2, 2, {0, 0, 0, 160, 160, 160, 0, 0, 0, 160, 160, 160}};
  const auto middle = [&image](const Picture& picture) {
    const RgbImage one = resize_and_crop(image, picture, 1);
    EXPECT_EQ(one.pixels.size(), 3u);
    return static_cast<int>(one.pixels.front());
  };
  EXPECT_EQ(middle({{2, 2}}), 80);
  // Its middle lies at 1.25, or at 0.75 when the part that is missing is the first: weights 0.7 and 0.9.
  EXPECT_EQ(middle({{20, 20}, 1, false, false}), 90);
  EXPECT_EQ(middle({{20, 20}, 1, false, true}), 70);
  EXPECT_EQ(middle({{20, 20}, 1, true, false}), 90);
}

/// A tree with two classes of JPEG and PNG files.
void write_tree(const fs::path& root, int images) {
  for (int c = 0; c < 2; ++c) {
    const fs::path folder = root / ("class " + std::to_string(c));
    fs::create_directories(folder);
    for (int i = 0; i < images; ++i) {
      RgbImage image{12 + i % 5, 17, {}};
      for (std::int64_t at = 0; at < image.h * image.w * 3; ++at) {
        image.pixels.push_back(static_cast<std::uint8_t>(at * (c + 2) + i));
      }
      const std::string raw(image.pixels.begin(), image.pixels.end());
      if (i % 4 == 3) {
        spill(folder / (std::to_string(i) + ".png"), png(image.h, image.w, 8, 2, raw));
      } else {
        const auto bytes = encode_jpeg(image);
        spill(folder / (std::to_string(i) + ".jpg"), {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
      }
    }
  }
}

PackOptions options_for(const fs::path& out, int threads) {
  PackOptions options;
  options.out = out;
  options.shard_samples = 7;
  options.threads = threads;
  return options;
}

std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename().string()] = slurp(entry.path());
  }
  return files;
}

TEST(PackFolder, AnyNumberOfThreadsGivesTheSameBytes) {
  const Folder folder;
  write_tree(folder / "in", 20);
  for (const bool jpeg : {true, false}) {
    FolderOptions options;
    options.jpeg = jpeg;
    options.size = 8;
    std::vector<std::map<std::string, std::string>> sets;
    for (const int threads : {1, 2, 6}) {
      const fs::path out = folder / (std::to_string(jpeg) + std::to_string(threads)) / "set";
      PackOptions pack = options_for(out, threads);
      pack.division.every = 5;
      std::int64_t seen = 0;
      pack.progress = [&seen](const PackProgress& progress) { seen = progress.samples; };
      const Manifest manifest = pack_folder(folder / "in", options, pack);
      EXPECT_EQ(manifest.splits[0].samples(), 32);
      EXPECT_EQ(manifest.splits[1].samples(), 8);
      EXPECT_EQ(seen, 40);
      verify_dataset(out);
      sets.push_back(files_of(out));
      EXPECT_EQ(Dataset::open(out, "train").encoded(), jpeg);
    }
    EXPECT_EQ(sets[0].size(), 1u + 5u + 2u);
    EXPECT_TRUE(sets[0] == sets[1] && sets[0] == sets[2]);
  }
}

TEST(PackFolder, ABadFileEndsAllThreadsAndIsNamed) {
  const Folder folder;
  write_tree(folder / "in", 20);
  spill(folder / "in/class 1/9.jpg", "\xff\xd8\xff no more");
  FolderOptions options;
  options.size = 8;
  for (const int threads : {1, 5}) {
    EXPECT_THAT(message_of<DataError>([&] { pack_folder(folder / "in", options, options_for(folder / "o", threads)); }),
                AllOf(HasSubstr("class 1/9.jpg"), HasSubstr("--skip-bad")));
  }
  options.skip_bad = true;
  EXPECT_EQ(pack_folder(folder / "in", options, options_for(folder / "o", 3)).splits[0].samples(), 39);
  EXPECT_THAT(slurp(folder / "o/skipped.txt"), HasSubstr("class 1/9.jpg\tit is damaged"));
  EXPECT_FALSE(fs::exists(folder / "o/.packing"));
}

/// Of a large set every second image or fewer make the statistics, and all of these may be the bad ones.
TEST(PackFolder, StatisticsAreOfImagesThatCouldBeUsed) {
  const Folder folder;
  write_tree(folder / "in", 4);
  spill(folder / "in/class 0/0.jpg", "");
  spill(folder / "in/class 0/2.jpg", "");
  FolderPack pack;
  pack.input = folder / "in";
  pack.out = folder.path();
  pack.goal = {true, 8};
  pack.split_names = {"train"};
  pack.splits.push_back(list_images(pack.input).train.select({0, 1, 2, 3}));
  pack.classes = 2;
  pack.skip_bad = true;
  pack.measured_every = 2;
  const ShardSummary summary = make_folder_shard(pack, {0, 0, 1, 0, 4, "train.h5"}, [](std::int64_t) {});
  EXPECT_EQ(summary.samples, 2);
  EXPECT_EQ(summary.refused.size(), 2u);
  EXPECT_EQ(summary.units, std::uint64_t{1} << 16) << "one image";
  EXPECT_GT(summary.sum[0], 0u);
}

/// All shards are made, but not the manifest.
void interrupt_at_the_end(const fs::path& in, const FolderOptions& folder, PackOptions pack) {
  pack.progress = [](const PackProgress& progress) {
    if (progress.ended) throw UserError("the pack", "it is interrupted", "go on");
  };
  EXPECT_THROW(pack_folder(in, folder, pack), UserError);
  EXPECT_FALSE(fs::exists(pack.out / "manifest.json"));
}

TEST(PackFolder, WhatAnInterruptedRunLeftOutIsAnErrorWithoutSkipBad) {
  const Folder folder;
  write_tree(folder / "in", 20);
  spill(folder / "in/class 1/9.jpg", "\xff\xd8\xff no more");
  FolderOptions options;
  options.size = 8;
  options.skip_bad = true;
  const PackOptions pack = options_for(folder / "o", 2);
  interrupt_at_the_end(folder / "in", options, pack);
  options.skip_bad = false;
  EXPECT_THAT(message_of<DataError>([&] { pack_folder(folder / "in", options, pack); }), HasSubstr("class 1/9.jpg"));
  options.skip_bad = true;
  EXPECT_EQ(pack_folder(folder / "in", options, pack).splits[0].samples(), 39);
}

TEST(PackFolder, ASummaryWhoseCountsCannotBeIsNotBelieved) {
  const Folder folder;
  write_tree(folder / "in", 20);
  FolderOptions options;
  options.size = 8;
  const PackOptions pack = options_for(folder / "o", 2);
  interrupt_at_the_end(folder / "in", options, pack);
  std::size_t damaged = 0;
  for (const auto& [name, text] : files_of(folder / "o")) {
    const std::size_t begin = text.find("\nclasses ");
    if (!name.ends_with(".summary") || begin == std::string::npos) continue;
    const std::size_t end = text.find('\n', begin + 1);
    spill(folder / "o" / name, text.substr(0, begin) + "\nclasses 1 1000000000 7" + text.substr(end));
    ++damaged;
  }
  EXPECT_EQ(damaged, 6u);
  EXPECT_EQ(pack_folder(folder / "in", options, pack).splits[0].samples(), 40);
}

TEST(ImageFileReader, WhatTheSystemRefusesIsNoBadFile) {
  const Folder folder;
  write_tree(folder / "in", 1);
  ImageRooms rooms;
  ImageFileReader reader({true, 8}, rooms);
  const fs::path path = folder / "in/class 0/0.jpg";
  EXPECT_EQ(reader.read(path, false).refusal, "");
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  const rlimit none{0, usual.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::string message = message_of<ResourceError>([&] { reader.read(path, false); });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  EXPECT_THAT(message, AllOf(HasSubstr("0.jpg"), HasSubstr("ulimit -n")));
}

/// With --skip-bad a file system that is unmounted would otherwise look like a folder of bad files.
TEST(ImageFileReader, AFileThatIsGoneIsNoBadFile) {
  const Folder folder;
  ImageRooms rooms;
  ImageFileReader reader({true, 8}, rooms);
  fs::create_symlink("nowhere", folder / "link.jpg");
  EXPECT_THAT(reader.read(folder / "link.jpg", false).refusal, HasSubstr("No such file"));
  spill(folder / "file", "x");
  for (const char* gone : {"gone.jpg", "gone/too.jpg", "file/below.jpg"}) {
    EXPECT_THAT(message_of<DataError>([&] { reader.read(folder / gone, false); }),
                AllOf(HasSubstr(gone), HasSubstr("is gone")));
  }
  EXPECT_THAT(message_of<DataError>([&] { reader.read(folder / "a\n.jpg", false); }), HasSubstr("a\\x0a.jpg"));
}

TEST(ImageTree, PathsAreInByteOrderAndClassesToo) {
  const Folder folder;
  for (const char* path : {"in/b/x.jpg", "in/b-/x.PNG", "in/b/a/x.jpeg", "in/b/a-.jpg", "in/a/.x.jpg", "in/a/y.jfif"}) {
    fs::create_directories((folder / path).parent_path());
    spill(folder / path, "x");
  }
  const ImageTree tree = list_images(folder / "in");
  EXPECT_THAT(tree.classes, ::testing::ElementsAre("a", "b", "b-"));
  std::vector<std::string> paths;
  for (std::int64_t i = 0; i < tree.train.size(); ++i) paths.push_back(tree.train.path(i));
  EXPECT_THAT(paths, ::testing::ElementsAre("a/y.jfif", "b/a-.jpg", "b/a/x.jpeg", "b/x.jpg", "b-/x.PNG"));
  EXPECT_EQ(tree.hidden, 1);
  EXPECT_EQ(tree.train.select({4, 0}).path(0), "b-/x.PNG");
  EXPECT_EQ(tree.train.select({4, 0}).label(0), 2);
  EXPECT_EQ(printable("a\n\\b\x7f"), "a\\x0a\\\\b\\x7f");
}

}  // namespace
}  // namespace renai
