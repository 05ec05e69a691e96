// Opening a split: what is read back, and the table of bad inputs.
#include "renai/data/dataset.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>

#include "data_files.hpp"
#include "renai/base/descriptor.hpp"
#include "renai/io/hdf5.hpp"

namespace renai {
namespace {

namespace fs = std::filesystem;
using testing::copy_small;
using testing::Folder;
using ::testing::HasSubstr;
using testing::message_of;
using testing::slurp;
using testing::spill;
using Json = nlohmann::ordered_json;

/// A shard as another program would write it: labels and images, no attributes.
template <typename Label>
void write_foreign(const fs::path& path, DType label_type, std::vector<Label> labels, DType image_type, std::int64_t n,
                   std::int64_t h, std::int64_t w, std::int64_t c, int pixel) {
  H5File file = H5File::create(path);
  const auto count = static_cast<std::int64_t>(labels.size());
  file.write_all("labels", label_type, {&count, 1}, std::as_bytes(std::span(labels)));
  const std::array<std::int64_t, 4> extents{n, h, w, c};
  const auto elems = static_cast<std::size_t>(n * h * w * c);
  if (image_type == DType::u8) {
    file.write_all("images", image_type, extents, std::vector<std::byte>(elems, static_cast<std::byte>(pixel)));
  } else {
    const std::vector<std::int32_t> pixels(elems, pixel);
    file.write_all("images", DType::i32, extents, std::as_bytes(std::span(pixels)));
  }
  file.close();
}

void edit_manifest(const fs::path& set, const std::function<void(Json&)>& edit) {
  Json json = Json::parse(slurp(set / "manifest.json"));
  edit(json);
  spill(set / "manifest.json", json.dump());
}

TEST(Dataset, ReadsWhatWasPacked) {
  const Folder folder;
  copy_small(folder / "set", 50, 20, 16);
  const Dataset set = Dataset::open(folder / "set", "train");
  EXPECT_EQ(set.size(), 50);
  EXPECT_EQ(set.sample_bytes(), 60);
  EXPECT_EQ(set.manifest().splits[0].shards.size(), 4u);
  EXPECT_EQ(Dataset::open(folder / "set", "val").size(), 20);
  for (std::int64_t sample = 0; sample < 50; ++sample) {
    EXPECT_EQ(set.label(sample), sample % 3);
    const ShardInfo& shard = set.manifest().splits[0].shards[static_cast<std::size_t>(sample / 16)];
    std::vector<std::byte> expected(60), got(60);
    H5File::open(folder / ("set/" + shard.file)).read("images", DType::u8, sample % 16, 1, expected);
    set.read(sample, got);
    EXPECT_EQ(got, expected) << sample;
  }
}

TEST(Dataset, OutlivesItsFilesNames) {
  const Folder folder;
  copy_small(folder / "set");
  const Dataset set = Dataset::open(folder / "set", "train");
  fs::remove_all(folder / "set");
  std::vector<std::byte> pixels(60);
  set.read(49, pixels);
  EXPECT_NE(pixels, std::vector<std::byte>(60));
}

/// What is open already counts, such as the shards of another set.
TEST(Dataset, TheLimitOfOpenFilesIsRaisedForItsShards) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  if (before.rlim_max != RLIM_INFINITY && before.rlim_max < 2000) GTEST_SKIP() << "the system's limit is too low";
  const Folder folder;
  copy_small(folder / "set", 50, 20, 1);
  rlimit limit = before;
  limit.rlim_cur = 2000;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<Descriptor> others;
  for (int i = 0; i < 600; ++i) others.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(others.back());
  limit.rlim_cur = 620;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(Dataset::open(folder / "set", "train").size(), 50);
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(Dataset, OtherIntegerTypesAreConverted) {
  const Folder folder;
  copy_small(folder / "set", 4, 4, 4);
  write_foreign<std::int64_t>(folder / "set/train-00000-of-00001.h5", DType::i64, {0, 1, 2, 1}, DType::i32, 4, 6, 5, 2,
                              200);
  const Dataset set = Dataset::open(folder / "set", "train");
  EXPECT_EQ(set.label(2), 2);
  std::vector<std::byte> pixels(60);
  set.read(3, pixels);
  EXPECT_EQ(pixels, std::vector<std::byte>(60, std::byte{200}));
}

TEST(Dataset, APixelOutsideTheByteRangeIsNamed) {
  const Folder folder;
  copy_small(folder / "set", 4, 4, 4);
  write_foreign<std::int32_t>(folder / "set/train-00000-of-00001.h5", DType::i32, {0, 1, 2, 1}, DType::i32, 4, 6, 5, 2,
                              256);
  const Dataset set = Dataset::open(folder / "set", "train");
  std::vector<std::byte> pixels(60);
  EXPECT_THAT(message_of<DataError>([&] { set.read(2, pixels); }), HasSubstr("sample 2 has a pixel of value 256"));
}

/// Shards that h5py writes.
class ByH5py : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system((kPython + " -c 'import h5py' 2>/dev/null").c_str()) != 0) {
      GTEST_SKIP() << kPython << " has no h5py";
    }
  }

  /// Runs a Python program, whose argument is the set's folder.
  static void run(const Folder& folder, const std::string& program) {
    spill(folder / "write.py", program);
    const std::string command = kPython + " " + (folder / "write.py").string() + " " + (folder / "set").string();
    ASSERT_EQ(std::system(command.c_str()), 0);
  }

 private:
  inline static const std::string kPython = "/usr/bin/python3";
};

TEST_F(ByH5py, AShardIsAccepted) {
  const Folder folder;
  copy_small(folder / "set", 30, 10, 10);
  // Contiguous; chunked and compressed with variable-length text attributes; big-endian labels of another width.
  run(folder, R"(import sys, numpy, h5py
for i, options in enumerate([{}, dict(chunks=(4, 6, 5, 2), compression='gzip', shuffle=True), {}]):
    images = (numpy.arange(10 * 60) * (i + 3) % 256).astype('u1').reshape(10, 6, 5, 2)
    with h5py.File(sys.argv[1] + '/train-0000%d-of-00003.h5' % i, 'w', libver='latest' if i == 2 else 'earliest') as f:
        f['labels'] = (numpy.arange(10) % 3).astype('>i2' if i == 2 else 'i4')
        f.create_dataset('images', data=images, **options)
        f.attrs['encoding'] = 'raw'
        f.attrs['split'] = 'train'
        f.attrs['renai_format'] = 1
)");
  const Dataset set = Dataset::open(folder / "set", "train");
  for (std::int64_t sample = 0; sample < 30; ++sample) {
    EXPECT_EQ(set.label(sample), sample % 10 % 3);
    std::vector<std::byte> pixels(60);
    set.read(sample, pixels);
    for (std::int64_t i = 0; i < 60; ++i) {
      const auto expected = static_cast<std::byte>((sample % 10 * 60 + i) * (sample / 10 + 3) % 256);
      ASSERT_EQ(pixels[static_cast<std::size_t>(i)], expected) << sample;
    }
  }
}

TEST_F(ByH5py, ImagesInAnotherFileAreReadFromThere) {
  const Folder folder;
  copy_small(folder / "set", 10, 10, 10);
  // The shard is long enough to have other bytes where the other file has its images, and small beside that one.
  run(folder, R"(import sys, numpy, h5py
with h5py.File(sys.argv[1] + '/all.h5', 'w') as f:
    f['pixels'] = (numpy.arange(10 * 60) % 251).astype('u1').reshape(10, 6, 5, 2)
with h5py.File(sys.argv[1] + '/train-00000-of-00001.h5', 'w') as f:
    f['labels'] = (numpy.arange(10) % 3).astype('i4')
    f['images'] = h5py.ExternalLink('all.h5', 'pixels')
    f['more'] = numpy.full(10000, 255, 'u1')
)");
  {
    const Dataset set = Dataset::open(folder / "set", "train");
    for (std::int64_t sample = 0; sample < 10; ++sample) {
      std::vector<std::byte> pixels(60);
      set.read(sample, pixels);
      for (std::int64_t i = 0; i < 60; ++i) {
        ASSERT_EQ(pixels[static_cast<std::size_t>(i)], static_cast<std::byte>((sample * 60 + i) % 251)) << sample;
      }
    }
  }
  EXPECT_THAT(message_of<UserError>([&] { Dataset::open(folder / "set", "train", ReadMode::direct); }),
              HasSubstr("in another file"));
  fs::remove(folder / "set/all.h5");
  EXPECT_THAT(message_of<DataError>([&] { Dataset::open(folder / "set", "train"); }),
              AllOf(HasSubstr("'images' is a link to pixels of all.h5"), HasSubstr("not there")));
}

struct BadSet {
  const char* name;
  std::function<void(const fs::path& set)> damage;
  ErrorKind kind;
  std::vector<const char*> words;
};

class BadInput : public ::testing::TestWithParam<BadSet> {};

TEST_P(BadInput, IsOneClearError) {
  const Folder folder;
  copy_small(folder / "set", 50, 20, 16);
  GetParam().damage(folder / "set");
  try {
    static_cast<void>(Dataset::open(folder / "set", "train"));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), GetParam().kind) << error.what();
    for (const char* word : GetParam().words) EXPECT_THAT(error.what(), HasSubstr(word));
    EXPECT_FALSE(error.remedy().empty() && error.why().empty());
  }
}

const char* const kShard = "train-00001-of-00004.h5";

BadSet manifest_case(const char* name, std::vector<const char*> words, std::function<void(Json&)> edit) {
  words.push_back("manifest.json");
  return {name, [edit = std::move(edit)](const fs::path& set) { edit_manifest(set, edit); }, ErrorKind::data,
          std::move(words)};
}

template <typename Label>
std::function<void(const fs::path&)> foreign(DType label_type, std::vector<Label> labels, std::int64_t n,
                                             std::int64_t h, std::int64_t w, std::int64_t c) {
  return [=](const fs::path& set) { write_foreign(set / kShard, label_type, labels, DType::u8, n, h, w, c, 0); };
}

std::vector<BadSet> bad_files() {
  return {
      {"NoFolder", [](const fs::path& set) { fs::remove_all(set); }, ErrorKind::user, {"no such folder"}},
      {"NoManifest",
       [](const fs::path& set) { fs::remove(set / "manifest.json"); },
       ErrorKind::data,
       {"manifest.json", "missing"}},
      {"MissingShard", [](const fs::path& set) { fs::remove(set / kShard); }, ErrorKind::data, {kShard, "missing"}},
      {"EmptyShardFile", [](const fs::path& set) { spill(set / kShard, ""); }, ErrorKind::data, {kShard, "empty"}},
      {"TruncatedShard",
       [](const fs::path& set) { fs::resize_file(set / kShard, fs::file_size(set / kShard) - 40); },
       ErrorKind::data,
       {kShard, "truncated"}},
      {"NoHdf5",
       [](const fs::path& set) { spill(set / kShard, std::string(5000, 'x')); },
       ErrorKind::data,
       {kShard, "not an HDF5"}},
      {"FewerSamples",
       foreign<std::int32_t>(DType::i32, {0, 1, 2}, 3, 6, 5, 2),
       ErrorKind::data,
       {kShard, "3 samples", "says 16"}},
      {"FewerLabels",
       foreign<std::int32_t>(DType::i32, {0, 1, 2}, 16, 6, 5, 2),
       ErrorKind::data,
       {kShard, "3 labels for 16"}},
      {"OtherShape",
       foreign<std::int32_t>(DType::i32, std::vector<std::int32_t>(16), 16, 5, 6, 2),
       ErrorKind::data,
       {kShard, "5x6x2", "6x5x2"}},
      {"ExchangedShards",
       [](const fs::path& set) {
         fs::rename(set / kShard, set / "other");
         fs::rename(set / "train-00000-of-00004.h5", set / kShard);
         fs::rename(set / "other", set / "train-00000-of-00004.h5");
       },
       ErrorKind::data,
       {"train-00000-of-00004.h5", "another shard than the manifest means"}},
      {"LabelTooLarge",
       foreign<std::int32_t>(DType::i32, {0, 1, 2, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 16, 6, 5, 2),
       ErrorKind::data,
       {kShard, "sample 5 has label 3", "0 to 2"}},
      {"LabelNegative",
       foreign<std::int32_t>(DType::i32, {0, 1, 2, 0, 0, 0, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 16, 6, 5, 2),
       ErrorKind::data,
       {kShard, "sample 6 has label -1"}},
      {"LabelThatWraps",
       foreign<std::int64_t>(DType::i64, {std::int64_t{1} << 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 16, 6, 5,
                             2),
       ErrorKind::data,
       {kShard, "sample 0 has label 4294967296"}},
      {"FloatLabels",
       foreign<float>(DType::f32, std::vector<float>(16), 16, 6, 5, 2),
       ErrorKind::data,
       {kShard, "'labels' does not hold integers"}},
      {"ShardOfAnotherSplit",
       [](const fs::path& set) {
         fs::copy_file(set / "val-00000-of-00002.h5", set / kShard, fs::copy_options::overwrite_existing);
       },
       ErrorKind::data,
       {kShard, "split 'val'"}},
      {"NoImages",
       [](const fs::path& set) { H5File::create(set / kShard).close(); },
       ErrorKind::data,
       {kShard, "no dataset 'labels'"}},
  };
}

std::vector<BadSet> bad_manifests() {
  return {
      manifest_case("UnknownEncoding", {"encoding", "webp"}, [](Json& m) { m["encoding"] = "webp"; }),
      manifest_case("UnknownKey", {"hight", "height"}, [](Json& m) { m["hight"] = 6; }),
      manifest_case("MissingKey", {"classes", "missing"}, [](Json& m) { m.erase("classes"); }),
      manifest_case("WrongType", {"'width'", "integer"}, [](Json& m) { m["width"] = "five"; }),
      manifest_case("FractionalSize", {"'width'", "integer"}, [](Json& m) { m["width"] = 5.5; }),
      manifest_case("ZeroSize", {"'height'"}, [](Json& m) { m["height"] = 0; }),
      manifest_case("NegativeSize", {"'height'", "-6"}, [](Json& m) { m["height"] = -6; }),
      manifest_case("HugeSize", {"'height'"}, [](Json& m) { m["height"] = 18446744073709551615ull; }),
      manifest_case("NegativeSamples", {"splits[0].shards[1].samples"},
                    [](Json& m) { m["splits"][0]["shards"][1]["samples"] = -1; }),
      manifest_case("NewerVersion", {"format_version"}, [](Json& m) { m["format_version"] = 2; }),
      manifest_case("AnotherFormat", {"'format'"}, [](Json& m) { m["format"] = "other"; }),
      manifest_case("EmptySplits", {"splits", "no split"}, [](Json& m) { m["splits"] = Json::array(); }),
      manifest_case("BadDigest", {"digest"}, [](Json& m) { m["splits"][0]["shards"][0]["digest"] = "12"; }),
      manifest_case("PathOutside", {"file"}, [](Json& m) { m["splits"][0]["shards"][0]["file"] = "../x.h5"; }),
      manifest_case("ShardTwice", {"twice"},
                    [](Json& m) { m["splits"][0]["shards"][1] = m["splits"][0]["shards"][0]; }),
      manifest_case("FewMeans", {"mean"}, [](Json& m) { m["mean"] = Json::array({1.0}); }),
      manifest_case("ZeroDeviation", {"std"}, [](Json& m) { m["std"][1] = 0.0; }),
      manifest_case("NoClasses", {"classes"}, [](Json& m) { m["classes"] = Json::array(); }),
      manifest_case("NotAnObject", {"object"}, [](Json& m) { m = Json::array(); }),
      {"NotJson",
       [](const fs::path& set) { spill(set / "manifest.json", "{\"a\": "); },
       ErrorKind::data,
       {"manifest.json", "parse error"}},
      {"EmptySplit",
       [](const fs::path& set) { edit_manifest(set, [](Json& m) { m["splits"][0]["shards"] = Json::array(); }); },
       ErrorKind::data,
       {"'train'", "empty"}},
      {"NoSplit",
       [](const fs::path& set) { edit_manifest(set, [](Json& m) { m["splits"].erase(0); }); },
       ErrorKind::user,
       {"no split 'train'", "val"}},
      {"OtherCount",
       [](const fs::path& set) { edit_manifest(set, [](Json& m) { m["splits"][0]["shards"][1]["samples"] = 17; }); },
       ErrorKind::data,
       {kShard, "16 samples", "says 17"}},
      {"FewerClasses",
       [](const fs::path& set) { edit_manifest(set, [](Json& m) { m["classes"].erase(2); }); },
       ErrorKind::data,
       {"train-00000-of-00004.h5", "sample 2 has label 2"}},
  };
}

std::string case_name(const ::testing::TestParamInfo<BadSet>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Files, BadInput, ::testing::ValuesIn(bad_files()), case_name);
INSTANTIATE_TEST_SUITE_P(Manifest, BadInput, ::testing::ValuesIn(bad_manifests()), case_name);

TEST(ManifestFile, ComesBackEqual) {
  const Folder folder;
  copy_small(folder / "set");
  Manifest manifest = load_manifest(folder / "set");
  manifest.mean = {0.1, 1.0 / 3.0, 0, 0};
  manifest.classes = {"ä", "b c", "\"q\""};
  save_manifest(manifest, folder / "set");
  const Manifest again = load_manifest(folder / "set");
  EXPECT_EQ(again.mean, manifest.mean);
  EXPECT_EQ(again.classes, manifest.classes);
  EXPECT_EQ(again.digest(), manifest.digest());
  EXPECT_EQ(again.splits[1].shards[0].digest, manifest.splits[1].shards[0].digest);
  EXPECT_EQ(again.find("train")->samples(), 50);
  EXPECT_EQ(again.find("test"), nullptr);
}

TEST(ManifestFile, DigestDependsOnContentAndOrder) {
  const Folder folder;
  copy_small(folder / "set");
  Manifest manifest = load_manifest(folder / "set");
  const std::string digest = manifest.digest();
  std::swap(manifest.splits[0].shards[0], manifest.splits[0].shards[1]);
  EXPECT_NE(manifest.digest(), digest);
  std::swap(manifest.splits[0].shards[0], manifest.splits[0].shards[1]);
  manifest.splits[0].shards.pop_back();
  EXPECT_NE(manifest.digest(), digest);
}

TEST(ManifestFile, DigestDependsOnWhatTrainingReads) {
  const Folder folder;
  copy_small(folder / "set");
  const Manifest manifest = load_manifest(folder / "set");
  const auto changed = [&](const auto& change) {
    Manifest other = manifest;
    change(other);
    return other.digest() != manifest.digest();
  };
  EXPECT_FALSE(changed([](Manifest& other) { other.splits[0].shards[0].file = "renamed.h5"; }));
  EXPECT_TRUE(changed([](Manifest& other) { other.mean[0] += 1e-12; }));
  EXPECT_TRUE(changed([](Manifest& other) { other.std[1] += 1e-12; }));
  EXPECT_TRUE(changed([](Manifest& other) { std::swap(other.height, other.width); }));
  EXPECT_TRUE(changed([](Manifest& other) { other.channels = 1; }));
  EXPECT_TRUE(changed([](Manifest& other) { std::swap(other.classes[0], other.classes[1]); }));
  EXPECT_TRUE(changed([](Manifest& other) { other.classes.push_back("one more"); }));
  EXPECT_TRUE(changed([](Manifest& other) { ++other.splits[0].shards[0].samples; }));
}

TEST(ManifestFile, DigestIsStable) {
  Manifest manifest;
  manifest.height = 2;
  manifest.width = 3;
  manifest.channels = 1;
  manifest.classes = {"a", "b"};
  manifest.mean = {0.5};
  manifest.std = {0.25};
  manifest.splits = {{"train", {{"x.h5", 4, std::string(32, '0')}}}};
  EXPECT_EQ(manifest.digest(), "afe8e5e547c8e04a458e6b8a35757012");
}

}  // namespace
}  // namespace renai
