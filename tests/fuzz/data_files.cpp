// Flipped, overwritten and cut bytes in shards and manifests: read or refused with DataError or ResourceError, never a
// crash. The manifest may also lose a split's name, which is the user's error.
#include "data_files.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "renai/base/philox.hpp"

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
    std::vector<std::byte> pixels(static_cast<std::size_t>(dataset.sample_bytes()));
    for (std::int64_t sample = 0; sample < dataset.size(); ++sample) dataset.read(sample, pixels);
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

}  // namespace
}  // namespace renai
