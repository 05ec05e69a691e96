// Flipped, overwritten and cut bytes in shards, manifests and JPEG images: read or refused with DataError or
// ResourceError, never a crash. The manifest may also lose a split's name, which is the user's error.
#include "data_files.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "encoded_set.hpp"
#include "renai/base/philox.hpp"
#include "renai/data/jpeg.hpp"

namespace renai {
namespace {

namespace fs = std::filesystem;
using testing::copy_small;
using testing::Folder;
using testing::slurp;
using testing::spill;

/// Random words of one round.
class Words {
 public:
  explicit Words(std::uint64_t round) : round_(round) {}
  std::uint64_t below(std::uint64_t count) {
    const PhiloxBlock block = random_block(20, RandomPurpose::test, round_, next_++);
    return (std::uint64_t{block[0]} << 32 | block[1]) % count;
  }

 private:
  std::uint64_t round_;
  std::uint32_t next_ = 0;
};

std::string mutate(std::string bytes, Words& words, std::uint64_t first, std::uint64_t end) {
  const std::uint64_t kind = words.below(8);
  if (kind == 0) return bytes.substr(0, words.below(bytes.size()));
  const std::uint64_t count = kind < 5 ? 1 : 1 + words.below(8);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = first + words.below(end - first);
    const bool whole = words.below(2) == 0;
    const auto value = whole ? words.below(256) : static_cast<unsigned char>(bytes[at]) ^ (1u << words.below(8));
    bytes[at] = static_cast<char>(value);
  }
  return bytes;
}

enum class Outcome { read, refused };

Outcome use(const fs::path& set, bool user_error_allowed) {
  try {
    const Dataset dataset = Dataset::open(set, "train");
    std::vector<std::byte> stored;
    for (std::int64_t sample = 0; sample < dataset.size(); ++sample) {
      stored.resize(static_cast<std::size_t>(dataset.stored_bytes(sample)));
      dataset.read(sample, stored);
    }
    verify_dataset(set);
    return Outcome::read;
  } catch (const Error& error) {
    const bool expected = error.kind() == ErrorKind::data || error.kind() == ErrorKind::resource ||
                          (user_error_allowed && error.kind() == ErrorKind::user);
    EXPECT_TRUE(expected) << error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not an Error: " << error.what();
  }
  return Outcome::refused;
}

TEST(FuzzDataFiles, Manifests) {
  const Folder folder;
  copy_small(folder / "set", 20, 0, 8);
  const fs::path path = folder / "set/manifest.json";
  const std::string whole = slurp(path);
  int refused = 0;
  for (std::uint64_t round = 0; round < 1500; ++round) {
    Words words(round);
    spill(path, mutate(whole, words, 0, whole.size()));
    if (use(folder / "set", true) == Outcome::refused) ++refused;
  }
  EXPECT_GT(refused, 700);
  spill(path, whole);
  EXPECT_EQ(use(folder / "set", false), Outcome::read);
}

void fuzz_shard(const fs::path& set, const std::string& file, std::uint64_t rounds, std::uint64_t salt) {
  const fs::path path = set / file;
  const std::string whole = slurp(path);
  int refused = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    Words words(salt + round);
    // Most rounds hit the structure at the start of the file, where the library's own pointers are.
    const std::uint64_t end = round % 4 == 0 ? whole.size() : std::min<std::uint64_t>(whole.size(), 2600);
    spill(path, mutate(whole, words, 0, end));
    if (use(set, false) == Outcome::refused) ++refused;
  }
  EXPECT_GT(refused, static_cast<int>(rounds / 20));
  spill(path, whole);
  EXPECT_EQ(use(set, false), Outcome::read);
}

TEST(FuzzDataFiles, Shards) {
  const Folder folder;
  copy_small(folder / "set", 20, 0, 8);
  fuzz_shard(folder / "set", "train-00001-of-00003.h5", 1500, 1u << 20);
}

std::vector<std::string> golden_images() {
  const H5File golden = H5File::open(std::string(RENAI_GOLDEN_DIR) + "/jpeg.h5");
  std::vector<std::string> images;
  for (const std::string& name : golden.children("/")) {
    const std::string dataset = name + "/bytes";
    images.emplace_back(static_cast<std::size_t>(golden.info(dataset).extents[0]), '\0');
    golden.read(dataset, DType::u8, 0, static_cast<std::int64_t>(images.back().size()),
                std::as_writable_bytes(std::span(images.back())));
  }
  return images;
}

TEST(FuzzDataFiles, EncodedShards) {
  const Folder folder;
  testing::EncodedShard train, val;
  for (const std::string& image : golden_images()) train.add(train.samples() % 3 == 0 ? 1 : 0, image.substr(0, 100));
  val.add(0, "x");
  testing::write_encoded_set(folder / "set", train, val, 24, 2);
  adopt_dataset(folder / "set");
  fuzz_shard(folder / "set", "train-00000-of-00001.h5", 1000, 1u << 21);
}

/// Whatever the bytes: pixels of the region, all of them and no others, or an error.
TEST(FuzzDataFiles, JpegImages) {
  constexpr std::int64_t kMost = 60, kStride = 3 * kMost;
  JpegDecoder decoder;
  int read = 0, refused = 0;
  std::uint64_t round = 1u << 22;
  for (const std::string& whole : golden_images()) {
    for (int i = 0; i < 400; ++i, ++round) {
      Words words(round);
      const std::string bytes =
          mutate(whole, words, 0, i % 2 == 0 ? whole.size() : std::min<std::size_t>(whole.size(), 700));
      std::vector<std::byte> rows(static_cast<std::size_t>(kMost * kStride + 64), std::byte{0});
      try {
        const ImageSize size = decoder.open(std::as_bytes(std::span(bytes)));
        const auto below = [&words](std::int64_t count) {
          return static_cast<std::int64_t>(words.below(static_cast<std::uint64_t>(count)));
        };
        PixelBox box{below(size.h), below(size.w), 0, 0};
        box.h = 1 + below(size.h - box.y);
        box.w = 1 + below(size.w - box.x);
        const std::int64_t most = 1 + below(kMost), least = 1 + below(most);
        const ImageSize region = decoder.decode(box, {least, least, most, most}, rows.data(), kStride);
        ASSERT_TRUE(region.h >= 1 && region.w >= 1 && region.h <= most && region.w <= most);
        ++read;
      } catch (const JpegError&) {
        ++refused;
      }
      for (std::size_t k = rows.size() - 64; k < rows.size(); ++k) ASSERT_EQ(rows[k], std::byte{0});
    }
  }
  EXPECT_GT(read, 1000);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace renai
