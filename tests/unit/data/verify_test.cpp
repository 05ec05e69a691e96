// Inspecting, verifying and adopting sets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "data_files.hpp"
#include "renai/io/directory_lock.hpp"
#include "renai/io/hdf5.hpp"

namespace renai {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::copy_small;
using testing::Folder;
using ::testing::HasSubstr;
using testing::message_of;
using testing::pack_small;
using testing::slurp;
using testing::spill;
using Json = nlohmann::ordered_json;

const char* const kShard = "train-00001-of-00004.h5";

void flip_byte(const fs::path& shard, const std::string& dataset, std::int64_t at) {
  const auto place = static_cast<std::size_t>(H5File::open(shard).info(dataset).file_offset + at);
  std::string bytes = slurp(shard);
  bytes[place] = static_cast<char>(bytes[place] ^ 1);
  spill(shard, bytes);
}

/// A set without any digest, as another program would leave it.
void write_bare(const fs::path& set) {
  copy_small(set, 12, 4, 8);
  Json json = Json::parse(slurp(set / "manifest.json"));
  for (Json& split : json["splits"]) {
    for (Json& shard : split["shards"]) {
      shard.erase("digest");
      const fs::path path = set / shard["file"].get<std::string>();
      const std::int64_t n = shard["samples"].get<std::int64_t>();
      std::vector<std::byte> labels(static_cast<std::size_t>(n * 4)), images(static_cast<std::size_t>(n * 60));
      {
        const H5File file = H5File::open(path);
        file.read("labels", DType::i32, 0, n, labels);
        file.read("images", DType::u8, 0, n, images);
      }
      H5File file = H5File::create(path);
      file.write_all("labels", DType::i32, {&n, 1}, labels);
      file.write_all("images", DType::u8, std::array<std::int64_t, 4>{n, 6, 5, 2}, images);
      file.set_attribute("/", "note", std::string("keep me"));
      file.close();
    }
  }
  spill(set / "manifest.json", json.dump());
}

TEST(Verify, AWholeSetIsRight) {
  const Folder folder;
  copy_small(folder / "set", 50, 20, 16);
  const std::string text = verify_dataset(folder / "set");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6);
  EXPECT_THAT(text, HasSubstr(kShard));
  EXPECT_THAT(verify_dataset(folder / ("set/" + std::string(kShard))), HasSubstr("digest right"));
}

TEST(Verify, NamesShardAndSampleOfAFlippedPixel) {
  const Folder folder;
  copy_small(folder / "set", 50, 20, 16);
  flip_byte(folder / ("set/" + std::string(kShard)), "images", 11 * 60 + 59);
  const auto expected = AllOf(HasSubstr(kShard), HasSubstr("sample 11"));
  EXPECT_THAT(message_of<DataError>([&] { verify_dataset(folder / "set"); }), expected);
  EXPECT_THAT(message_of<DataError>([&] { verify_dataset(folder / ("set/" + std::string(kShard))); }), expected);
}

TEST(Verify, NamesEveryDamagedShardOfASet) {
  const Folder folder;
  copy_small(folder / "set", 50, 20, 16);
  flip_byte(folder / "set/train-00000-of-00004.h5", "images", 3 * 60);
  flip_byte(folder / ("set/" + std::string(kShard)), "labels", 0);
  fs::remove(folder / "set/train-00003-of-00004.h5");
  EXPECT_THAT(message_of<DataError>([&] { verify_dataset(folder / "set"); }),
              AllOf(HasSubstr("3 of 6 shards"), HasSubstr("train-00000-of-00004.h5: the pixels of sample 3"),
                    HasSubstr(std::string(kShard) + ": the label of sample 0"), HasSubstr("train-00003-of-00004.h5"),
                    ::testing::Not(HasSubstr("train-00002-of-00004.h5"))));
}

TEST(Verify, FindsAChangedLabelAndAnExchangedShard) {
  const Folder folder;
  copy_small(folder / "a", 50, 20, 16);
  // Label 1 becomes 0: in range, so only the digest can tell. Sample 16 is the shard's first, with label 1.
  flip_byte(folder / ("a/" + std::string(kShard)), "labels", 0);
  EXPECT_THAT(message_of<DataError>([&] { verify_dataset(folder / "a"); }),
              AllOf(HasSubstr(kShard), HasSubstr("label of sample 0")));
  copy_small(folder / "b", 50, 20, 16);
  fs::copy_file(folder / "b/train-00000-of-00004.h5", folder / ("b/" + std::string(kShard)),
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(message_of<DataError>([&] { verify_dataset(folder / "b"); }),
              AllOf(HasSubstr(kShard), HasSubstr("manifest's digest")));
}

TEST(Verify, WithoutDigestsAdoptionIsNamedAndWorks) {
  const Folder folder;
  write_bare(folder / "set");
  EXPECT_EQ(Dataset::open(folder / "set", "train").size(), 12);
  EXPECT_THAT(message_of<DataError>([&] { verify_dataset(folder / "set"); }), HasSubstr("--adopt"));
  adopt_dataset(folder / "set");
  verify_dataset(folder / "set");
  const Folder other;
  EXPECT_EQ(load_manifest(folder / "set").digest(), pack_small(other / "set", 12, 4, 8).digest());
  const fs::path shard = folder / "set/train-00001-of-00002.h5";
  EXPECT_EQ(H5File::open(shard).string_attribute("/", "note"), "keep me");
  const std::string adopted = slurp(shard);
  adopt_dataset(folder / "set");
  EXPECT_EQ(slurp(shard), adopted) << "nothing is left to do";
  flip_byte(shard, "images", 60 * 2);
  EXPECT_THAT(message_of<DataError>([&] { verify_dataset(folder / "set"); }), HasSubstr("sample 2"));
}

TEST(Verify, AdoptionReadsTheManifestOnceTheFolderIsItsOwn) {
  const Folder folder;
  write_bare(folder / "set");
  const std::string manifest = slurp(folder / "set/manifest.json");
  const DirectoryLock held = lock_directory(folder / "set");
  ASSERT_EQ(held.error, 0);
  testing::spill(folder / "set/manifest.json", manifest.substr(0, 40));
  EXPECT_THAT(message_of<UserError>([&] { adopt_dataset(folder / "set"); }), HasSubstr("another program"));
}

TEST(Verify, AdoptionOfAShardKeepsOutWhoWritesAllOfThem) {
  const Folder folder;
  write_bare(folder / "set");
  const fs::path shard = folder / "set/train-00001-of-00002.h5";
  {
    const DirectoryLock held = lock_directory(folder / "set");
    EXPECT_THAT(message_of<UserError>([&] { adopt_dataset(shard); }), HasSubstr("another program"));
  }
  {
    const DirectoryLock held = lock_directory(folder / "set", Hold::shared);
    EXPECT_THAT(message_of<UserError>([&] { adopt_dataset(folder / "set"); }), HasSubstr("another program"));
    adopt_dataset(shard);
  }
  EXPECT_TRUE(H5File::open(shard).exists("sample_digests"));
}

TEST(Verify, AdoptionNamesEveryShardThatItCannotUse) {
  const Folder folder;
  write_bare(folder / "set");
  testing::spill(folder / "set/train-00000-of-00002.h5", "no HDF5");
  fs::remove(folder / "set/val-00000-of-00001.h5");
  EXPECT_THAT(message_of<DataError>([&] { adopt_dataset(folder / "set"); }),
              AllOf(HasSubstr("2 of 3 shards"), HasSubstr("train-00000-of-00002.h5"),
                    HasSubstr("it is not an HDF5 file"), HasSubstr("val-00000-of-00001.h5")));
  EXPECT_TRUE(H5File::open(folder / "set/train-00001-of-00002.h5").exists("sample_digests"));
}

TEST(Verify, AdoptionTakesAwayWhatAnInterruptedOneLeft) {
  const Folder folder;
  write_bare(folder / "set");
  const fs::path half = folder / "set/train-00001-of-00002.h5.4711-1.partial", other = folder / "set/notes.partial",
                 copy = folder / "set/train-00001-of-00002.h5.rsync.partial",
                 longer = folder / "set/train-00001-of-00002.h5.bak.1-0.partial";
  testing::spill(half, "half");
  for (const fs::path& mine : {other, copy, longer}) testing::spill(mine, "mine");
  {
    const DirectoryLock held = lock_directory(folder / "set");
    ASSERT_EQ(held.error, 0);
    EXPECT_THAT(message_of<UserError>([&] { adopt_dataset(folder / "set"); }), HasSubstr("another program"));
    EXPECT_TRUE(fs::exists(half)) << "it may be that program's";
  }
  adopt_dataset(folder / "set");
  EXPECT_FALSE(fs::exists(half));
  for (const fs::path& mine : {other, copy, longer}) EXPECT_TRUE(fs::exists(mine)) << mine;
  verify_dataset(folder / "set");
}

TEST(Verify, AdoptionFollowsLinksToShards) {
  const Folder folder;
  write_bare(folder / "set");
  const fs::path shard = folder / "set/train-00000-of-00002.h5", store = folder / "store.h5";
  fs::rename(shard, store);
  fs::create_symlink("../store.h5", shard);
  adopt_dataset(folder / "set");
  EXPECT_TRUE(fs::is_symlink(shard));
  EXPECT_TRUE(H5File::open(store).exists("sample_digests"));
  verify_dataset(folder / "set");
}

TEST(Verify, AdoptionSaysWhatKeptItFromWriting) {
  const Folder folder;
  write_bare(folder / "set");
  const fs::path shard = folder / "set/train-00000-of-00002.h5";
  const std::string before = slurp(shard);
  rlimit usual{};
  ::getrlimit(RLIMIT_FSIZE, &usual);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{before.size() / 2, usual.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  const std::string message = message_of<ResourceError>([&] { adopt_dataset(folder / "set"); });
  ::setrlimit(RLIMIT_FSIZE, &usual);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(message,
              AllOf(HasSubstr("train-00000-of-00002.h5"), HasSubstr("File too large"), HasSubstr("ulimit -f")));
  EXPECT_EQ(slurp(shard), before);
}

/// As earlier versions packed them: no digests of labels.
void drop_label_digests(const fs::path& shard) {
  std::string bytes = slurp(shard);
  bytes.replace(bytes.find("label_digests"), 13, "label_digestx");  // Names are sorted in the file.
  spill(shard, bytes);
}

TEST(Verify, TrainingFindsALabelThatIsAnotherOne) {
  const Folder folder;
  copy_small(folder / "set", 50, 20, 16);
  Dataset::open(folder / "set", "train").check_digests();
  flip_byte(folder / ("set/" + std::string(kShard)), "labels", 3 * 4);
  Dataset damaged = Dataset::open(folder / "set", "train");
  EXPECT_THAT(message_of<DataError>([&] { damaged.check_digests(); }),
              AllOf(HasSubstr("sample 3 of shard"), HasSubstr(kShard), HasSubstr("label")));
  Dataset::open(folder / "set", "val").check_digests();
}

TEST(Verify, LabelsWithoutDigestsAreAdopted) {
  const Folder folder;
  copy_small(folder / "set", 50, 20, 16);
  const fs::path shard = folder / ("set/" + std::string(kShard));
  const std::string original = slurp(shard);
  drop_label_digests(shard);
  Dataset older = Dataset::open(folder / "set", "train");
  EXPECT_THAT(message_of<DataError>([&] { older.check_digests(); }), AllOf(HasSubstr(kShard), HasSubstr("--adopt")));
  verify_dataset(folder / "set");
  adopt_dataset(folder / "set");
  Dataset::open(folder / "set", "train").check_digests();
  pack_small(folder / "again", 50, 20, 16);
  std::vector<std::uint64_t> adopted(16), packed(16);
  H5File::open(shard).read("label_digests", DType::u64, 0, 16, std::as_writable_bytes(std::span(adopted)));
  H5File::open(folder / ("again/" + std::string(kShard)))
      .read("label_digests", DType::u64, 0, 16, std::as_writable_bytes(std::span(packed)));
  EXPECT_EQ(adopted, packed);
  // A digest that was made of another label is damage, not something to be made anew.
  spill(shard, original);
  flip_byte(shard, "label_digests", 8 * 5);
  EXPECT_THAT(message_of<DataError>([&] { adopt_dataset(folder / "set"); }), HasSubstr("label of sample 5"));
}

TEST(Verify, AdoptionDoesNotBlessDamage) {
  const Folder folder;
  copy_small(folder / "set", 50, 20, 16);
  flip_byte(folder / ("set/" + std::string(kShard)), "images", 7);
  EXPECT_THAT(message_of<DataError>([&] { adopt_dataset(folder / "set"); }), HasSubstr("sample 0"));
}

TEST(Verify, ASplitWithoutSamplesIsNotRight) {
  const Folder folder;
  copy_small(folder / "set", 50, 20, 16);
  Manifest manifest = load_manifest(folder / "set");
  manifest.splits[1].shards.clear();
  save_manifest(manifest, folder / "set");
  EXPECT_THAT(message_of<DataError>([&] { verify_dataset(folder / "set"); }),
              AllOf(HasSubstr("split 'val'"), HasSubstr("no samples")));
  flip_byte(folder / ("set/" + std::string(kShard)), "images", 0);
  EXPECT_THAT(message_of<DataError>([&] { verify_dataset(folder / "set"); }), HasSubstr(kShard)) << "damage first";
  manifest.splits[0].shards.clear();
  save_manifest(manifest, folder / "set");
  EXPECT_THAT(message_of<DataError>([&] { verify_dataset(folder / "set"); }), HasSubstr("split 'train'"));
}

TEST(Inspect, NamesOfClassesCannotFloodOrSteerATerminal) {
  const Folder folder;
  copy_small(folder / "set", 50, 20, 16);
  Manifest manifest = load_manifest(folder / "set");
  manifest.classes[1] = "a\n\x1b[31m";
  manifest.classes[2] =
      "\xc2\x9b"
      "31m \xc2\xa0\xc3\x9f";
  for (int i = 0; i < 5000; ++i) manifest.classes.push_back("class " + std::to_string(i));
  save_manifest(manifest, folder / "set");
  EXPECT_THAT(inspect_dataset(folder / "set", false),
              AllOf(HasSubstr("classes  5003: 0, a\\x0a\\x1b[31m, \\x9b31m \xc2\xa0\xc3\x9f, class 0"),
                    HasSubstr("and 4003 more"), ::testing::Not(HasSubstr("class 4000"))));
  EXPECT_EQ(Json::parse(inspect_dataset(folder / "set", true))["classes"].size(), 5003u);
}

TEST(Inspect, NamesOfSplitsAndShardsCannotSteerATerminal) {
  const Folder folder;
  copy_small(folder / "set", 50, 20, 16);
  Manifest manifest = load_manifest(folder / "set");
  const fs::path shard = folder / "set" / manifest.splits[0].shards[0].file;
  fs::copy_file(shard, folder / "alone.h5");
  H5File file = H5File::modify(folder / "alone.h5");
  file.set_attribute("/", "split", std::string("t\x1b[31m"));
  file.close();
  const auto plain = ::testing::Not(HasSubstr("\x1b"));
  EXPECT_THAT(inspect_dataset(folder / "alone.h5", false), AllOf(HasSubstr("t\\x1b[31m"), plain));
  fs::rename(folder / "alone.h5", folder / "set/train-\x1b[2J.h5");
  manifest.splits.push_back({"t\x1b[31m", {{"train-\x1b[2J.h5", manifest.splits[0].shards[0].samples, ""}}});
  save_manifest(manifest, folder / "set");
  EXPECT_THAT(inspect_dataset(folder / "set", false),
              AllOf(HasSubstr("split t\\x1b[31m: "), HasSubstr("train-\\x1b[2J.h5"), plain));
}

TEST(Inspect, PrintsSetAndShard) {
  const Folder folder;
  copy_small(folder / "set", 50, 20, 16);
  const Manifest manifest = load_manifest(folder / "set");
  EXPECT_THAT(inspect_dataset(folder / "set", false),
              AllOf(HasSubstr("6x5x2"), HasSubstr("split train: 50 samples, 16 to 17 of a class"), HasSubstr(kShard),
                    HasSubstr(manifest.digest())));
  const Json set = Json::parse(inspect_dataset(folder / "set", true));
  EXPECT_EQ(set["splits"][1]["samples"], 20);
  EXPECT_EQ(set["splits"][0]["shards"][3]["samples"], 2);
  const Json shard = Json::parse(inspect_dataset(folder / ("set/" + std::string(kShard)), true));
  EXPECT_EQ(shard["samples"], 16);
  EXPECT_EQ(shard["read"], "directly");
  EXPECT_THAT(inspect_dataset(folder / ("set/" + std::string(kShard)), false), HasSubstr("sample_digests"));
  message_of<UserError>([&] { inspect_dataset(folder / "none", false); });
  fs::remove(folder / ("set/" + std::string(kShard)));
  EXPECT_THAT(message_of<DataError>([&] { inspect_dataset(folder / "set", false); }), HasSubstr("missing"));
}

}  // namespace
}  // namespace renai
