// Checkpoint files: round trip, digest, damage, files of other programs.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "renai/base/error.hpp"
#include "renai/checkpoint/state_dict.hpp"
#include "renai/io/hdf5.hpp"

namespace renai {
namespace {

namespace fs = std::filesystem;

/// A directory that goes with the test.
class Folder {
 public:
  Folder() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = fs::temp_directory_path() / ("renai_" + std::string(test->name()) + std::to_string(::getpid()));
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  fs::path operator/(const std::string& name) const { return path_ / name; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

template <typename T>
StateTensor tensor(const std::string& name, DType dtype, std::vector<std::int64_t> extents,
                   const std::vector<T>& values) {
  StateTensor result{name, dtype, std::move(extents), {}};
  result.data.resize(values.size() * sizeof(T));
  std::memcpy(result.data.data(), values.data(), result.data.size());
  return result;
}

StateDict sample(float shift = 0.0f) {
  StateDict state;
  state.groups["weights"] = {
      tensor<float>("layer1.0.conv1.weight", DType::f32, {2, 1, 1, 3}, {1 + shift, 2, 3, 4, 5, 6}),
      tensor<float>("fc.bias", DType::f32, {2}, {-0.5f, 0.25f})};
  state.groups["bn_running"] = {tensor<float>("bn1.running_mean", DType::f32, {1}, {0.125f})};
  state.groups["optimizer"] = {};
  state.groups["progress"] = {tensor<std::int64_t>("step", DType::i64, {1}, {1234}),
                              tensor<std::uint64_t>("seed", DType::u64, {1}, {~std::uint64_t{0}})};
  state.texts["recipe"] = "model = \"cnn-small\"\n";
  state.texts["versions"] = "renai 0.1.0";
  return state;
}

std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

void expect_equal(const StateDict& a, const StateDict& b) {
  EXPECT_EQ(a.digest(), b.digest());
  EXPECT_EQ(a.texts, b.texts);
  ASSERT_EQ(a.groups.size(), b.groups.size());
  for (const auto& [group, tensors] : a.groups) {
    ASSERT_EQ(tensors.size(), b.groups.at(group).size()) << group;
    for (const StateTensor& one : tensors) {
      const StateTensor* other = b.find(group, one.name);
      ASSERT_NE(other, nullptr) << one.name;
      EXPECT_EQ(one.dtype, other->dtype) << one.name;
      EXPECT_EQ(one.extents, other->extents) << one.name;
      EXPECT_EQ(one.data, other->data) << one.name;
    }
  }
}

TEST(StateDict, FindsByGroupAndName) {
  const StateDict state = sample();
  ASSERT_NE(state.find("weights", "fc.bias"), nullptr);
  EXPECT_EQ(state.find("weights", "fc.bias")->extents, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(state.find("weights", "fc.weight"), nullptr);
  EXPECT_EQ(state.find("ema", "fc.bias"), nullptr);
}

TEST(StateDict, DigestSeesEverythingButTheOrder) {
  const std::string digest = sample().digest();
  EXPECT_EQ(digest.size(), 32u);
  StateDict order = sample();
  std::swap(order.groups["weights"][0], order.groups["weights"][1]);
  EXPECT_EQ(order.digest(), digest);
  EXPECT_NE(sample(1e-7f).digest(), digest);
  StateDict name = sample();
  name.groups["weights"][1].name = "fc.bia";
  EXPECT_NE(name.digest(), digest);
  StateDict extents = sample();
  extents.groups["weights"][0].extents = {2, 3, 1, 1};
  EXPECT_NE(extents.digest(), digest);
  StateDict group = sample();
  group.groups["ema"] = {};
  EXPECT_NE(group.digest(), digest);
}

TEST(Checkpoint, RoundTripKeepsEveryBit) {
  const Folder folder;
  StateDict state = sample();
  state.texts["long"] = std::string(200'000, 'x') + "end";
  save_checkpoint(folder / "a.h5", state);
  expect_equal(state, load_checkpoint(folder / "a.h5"));
  int files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder.path())) ++files;
  EXPECT_EQ(files, 1) << "no temporary file stays behind";
}

TEST(Checkpoint, ReplacesAnOlderFile) {
  const Folder folder;
  save_checkpoint(folder / "a.h5", sample());
  save_checkpoint(folder / "a.h5", sample(1.0f));
  expect_equal(sample(1.0f), load_checkpoint(folder / "a.h5"));
}

TEST(Checkpoint, EveryFlippedByteIsFoundOrHarmless) {
  const Folder folder;
  save_checkpoint(folder / "a.h5", sample());
  const std::string bytes = read_bytes(folder / "a.h5");
  for (std::size_t at = 0; at < bytes.size(); at += 1 + bytes.size() / 200) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    write_bytes(folder / "b.h5", damaged);
    EXPECT_THROW(load_checkpoint(folder / "b.h5"), DataError) << "byte " << at;
  }
}

TEST(Checkpoint, ContentsAreCheckedWithoutTheSealToo) {
  const Folder folder;
  save_checkpoint(folder / "a.h5", sample());
  std::string bytes = read_bytes(folder / "a.h5");
  bytes.resize(bytes.size() - 48);
  write_bytes(folder / "b.h5", bytes);
  expect_equal(sample(), load_checkpoint(folder / "b.h5"));
  const float value = -0.5f;  // fc.bias[0]
  std::string pattern(sizeof value, '\0');
  std::memcpy(pattern.data(), &value, sizeof value);
  const std::size_t at = bytes.find(pattern + std::string("\0\0\x80\x3e", 4));
  ASSERT_NE(at, std::string::npos);
  bytes[at] ^= 1;
  write_bytes(folder / "b.h5", bytes);
  EXPECT_THROW(load_checkpoint(folder / "b.h5"), DataError);
}

TEST(Checkpoint, TruncatedFilesAreRefused) {
  const Folder folder;
  save_checkpoint(folder / "a.h5", sample());
  const std::string bytes = read_bytes(folder / "a.h5");
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{7}, std::size_t{100}, bytes.size() / 2, bytes.size() - 49}) {
    write_bytes(folder / "b.h5", bytes.substr(0, size));
    EXPECT_THROW(load_checkpoint(folder / "b.h5"), DataError) << size << " bytes";
    EXPECT_THROW(load_checkpoint(folder / "b.h5", false), DataError) << size << " bytes";
  }
}

TEST(Checkpoint, MissingFileAndDirectory) {
  const Folder folder;
  EXPECT_THROW(load_checkpoint(folder / "none.h5"), DataError);
  try {
    save_checkpoint(folder / "none/a.h5", sample());
    FAIL() << "a missing directory was accepted";
  } catch (const ResourceError& error) {
    EXPECT_NE(std::string(error.what()).find("none"), std::string::npos) << error.what();
  }
}

TEST(Checkpoint, WeightsOfAnotherProgramInAGroup) {
  const Folder folder;
  const std::vector<float> weights{1, 2, 3, 4};
  const std::vector<double> bias{0.5, -0.25};
  const std::int64_t square[] = {2, 2}, two[] = {2}, one[] = {1};
  const std::int64_t count = 7;
  {
    H5File file = H5File::create(folder / "py.h5");
    file.create_group("weights");
    file.write_all("weights/fc.weight", DType::f32, square, std::as_bytes(std::span(weights)));
    file.write_all("weights/fc.bias", DType::f64, two, std::as_bytes(std::span(bias)));
    file.write_all("weights/bn.running_mean", DType::f64, two, std::as_bytes(std::span(bias)));
    file.write_all("weights/bn.num_batches_tracked", DType::i64, one, std::as_bytes(std::span(&count, 1)));
    file.close();
  }
  EXPECT_THROW(load_checkpoint(folder / "py.h5"), DataError);
  const StateDict state = load_checkpoint(folder / "py.h5", false);
  ASSERT_EQ(state.groups.at("weights").size(), 2u);
  EXPECT_EQ(state.find("weights", "fc.weight")->data, (tensor<float>("fc.weight", DType::f32, {2, 2}, weights).data));
  EXPECT_EQ(state.find("weights", "fc.bias")->dtype, DType::f32);
  EXPECT_EQ(state.find("weights", "fc.bias")->data, (tensor<float>("", DType::f32, {2}, {0.5f, -0.25f}).data));
  EXPECT_NE(state.find("bn_running", "bn.running_mean"), nullptr);
}

TEST(Checkpoint, WeightsOfAnotherProgramAtTheRoot) {
  const Folder folder;
  const std::vector<float> weights{1, 2, 3, 4};
  const std::int64_t square[] = {2, 2};
  {
    H5File file = H5File::create(folder / "root.h5");
    file.write_all("fc.weight", DType::f32, square, std::as_bytes(std::span(weights)));
    file.close();
  }
  EXPECT_NE(load_checkpoint(folder / "root.h5", false).find("weights", "fc.weight"), nullptr);
  {
    H5File file = H5File::create(folder / "empty.h5");
    file.close();
  }
  EXPECT_THROW(load_checkpoint(folder / "empty.h5", false), DataError);
}

/// What a single rank goes on from.
std::optional<fs::path> latest_of(const CheckpointStore& store, std::vector<std::string>* warnings) {
  const auto own = [](const std::string& problem) { return problem; };
  const auto loaded = load_newest(store.candidates(warnings), own, warnings);
  return loaded ? std::optional<fs::path>(loaded->file) : std::nullopt;
}

TEST(Store, KeepsTheNewestAndTheBest) {
  const Folder folder;
  const CheckpointStore store(folder.path());
  EXPECT_FALSE(latest_of(store, nullptr).has_value());
  const fs::path first = store.save(10, sample(), 2);
  EXPECT_EQ(first.filename(), "step-00000010.h5");
  store.mark_best(first);
  for (const std::int64_t step : {20, 30, 40}) store.save(step, sample(static_cast<float>(step)), 2);
  EXPECT_TRUE(fs::exists(first)) << "the best stays";
  EXPECT_FALSE(fs::exists(folder / "checkpoints/step-00000020.h5"));
  EXPECT_TRUE(fs::exists(folder / "checkpoints/step-00000030.h5"));
  EXPECT_EQ(read_bytes(folder / "checkpoints/best"), "step-00000010.h5\n");
  std::vector<std::string> warnings;
  EXPECT_EQ(latest_of(store, &warnings)->filename(), "step-00000040.h5");
  EXPECT_TRUE(warnings.empty());
  EXPECT_EQ(read_bytes(folder / "checkpoints/latest"), "step-00000040.h5\n");
}

TEST(Store, DamagedNewestFallsBackLoudly) {
  const Folder folder;
  const CheckpointStore store(folder.path());
  for (const std::int64_t step : {10, 20, 30}) store.save(step, sample(static_cast<float>(step)), 9);
  const fs::path newest = folder / "checkpoints/step-00000030.h5";
  const std::string bytes = read_bytes(newest);
  write_bytes(newest, bytes.substr(0, bytes.size() / 2));
  std::vector<std::string> warnings;
  EXPECT_EQ(latest_of(store, &warnings)->filename(), "step-00000020.h5");
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("step-00000030.h5"), std::string::npos);
  fs::remove(newest);
  std::string flipped = read_bytes(folder / "checkpoints/step-00000020.h5");
  flipped[flipped.size() / 2] ^= 4;
  write_bytes(folder / "checkpoints/step-00000020.h5", flipped);
  warnings.clear();
  EXPECT_EQ(latest_of(store, &warnings)->filename(), "step-00000010.h5");
  EXPECT_EQ(warnings.size(), 2u) << "the missing one and the damaged one";
}

TEST(Store, UnreadableNewestFallsBackLoudly) {
  const Folder folder;
  const CheckpointStore store(folder.path());
  for (const std::int64_t step : {10, 20}) store.save(step, sample(static_cast<float>(step)), 9);
  const fs::path newest = folder / "checkpoints/step-00000020.h5";
  fs::remove(newest);
  ASSERT_EQ(::mkfifo(newest.c_str(), 0600), 0);  // The system tells no size of a pipe.
  std::vector<std::string> warnings;
  EXPECT_EQ(latest_of(store, &warnings)->filename(), "step-00000010.h5");
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("step-00000020.h5 cannot be read and passed over: "), std::string::npos) << warnings[0];
  write_bytes(folder / "checkpoints/step-00000010.h5", "torn");
  EXPECT_THROW(latest_of(store, nullptr), ResourceError) << "the newest may be sound";
  fs::remove(newest);
  EXPECT_THROW(latest_of(store, nullptr), DataError);
  fs::remove(folder / "checkpoints/step-00000010.h5");
  EXPECT_FALSE(latest_of(store, nullptr).has_value());
}

TEST(Store, AllRanksTakeWhatAllCanLoad) {
  const Folder folder;
  const CheckpointStore store(folder.path());
  for (const std::int64_t step : {10, 20}) store.save(step, sample(static_cast<float>(step)), 9);
  std::vector<std::string> warnings, asked;
  const auto agree = [&asked](const std::string& own) {
    asked.push_back(own);
    return asked.size() == 1 ? std::string("cannot be read and passed over: on another rank") : own;
  };
  EXPECT_EQ(load_newest(store.candidates(nullptr), agree, &warnings)->file.filename(), "step-00000010.h5");
  EXPECT_EQ(asked, (std::vector<std::string>{"", ""}));
  ASSERT_EQ(warnings.size(), 1u);
}

TEST(Store, LaterStepsOfAnEarlierRunAreNotTaken) {
  const Folder folder;
  const CheckpointStore store(folder.path());
  store.save(90, sample(), 9);
  const fs::path own = store.save(10, sample(1.0f), 1);
  EXPECT_TRUE(fs::exists(own)) << "the one just written stays, whatever its step";
  EXPECT_EQ(latest_of(store, nullptr)->filename(), "step-00000010.h5");
}

TEST(Store, ADamagedLaterStepDoesNotPushOutTheFallback) {
  const Folder folder;
  const CheckpointStore store(folder.path());
  for (const std::int64_t step : {10, 20, 30, 40}) store.save(step, sample(static_cast<float>(step)), 9);
  for (const char* name : {"checkpoints/step-00000030.h5", "checkpoints/step-00000040.h5"}) {
    const std::string bytes = read_bytes(folder / name);
    write_bytes(folder / name, bytes.substr(0, bytes.size() / 2));
  }
  ASSERT_EQ(latest_of(store, nullptr)->filename(), "step-00000020.h5");
  store.save(25, sample(25.0f), 2);
  EXPECT_TRUE(fs::exists(folder / "checkpoints/step-00000020.h5")) << "the one that the run went back to";
  EXPECT_FALSE(fs::exists(folder / "checkpoints/step-00000010.h5"));
  const fs::path newest = store.save(45, sample(45.0f), 2);
  write_bytes(newest, "torn");
  EXPECT_EQ(latest_of(store, nullptr).value_or("none").filename(), "step-00000025.h5");
}

TEST(Store, ASoundLaterStepNeitherCountsNorGoes) {
  const Folder folder;
  const CheckpointStore store(folder.path());
  for (const std::int64_t step : {10, 20, 90}) store.save(step, sample(static_cast<float>(step)), 9);
  store.save(30, sample(30.0f), 2);
  EXPECT_TRUE(fs::exists(folder / "checkpoints/step-00000090.h5"));
  EXPECT_TRUE(fs::exists(folder / "checkpoints/step-00000020.h5"));
  EXPECT_FALSE(fs::exists(folder / "checkpoints/step-00000010.h5"));
}

TEST(Store, ALaterStepThatCannotBeReadStopsNothing) {
  const Folder folder;
  const CheckpointStore store(folder.path());
  store.save(10, sample(), 9);
  const fs::path later = folder / "checkpoints/step-00000090.h5";
  ASSERT_EQ(::mkfifo(later.c_str(), 0600), 0);  // The system tells no size of a pipe.
  ASSERT_THROW(static_cast<void>(load_checkpoint(later)), ResourceError);
  EXPECT_NO_THROW(store.save(20, sample(), 9));
  EXPECT_TRUE(fs::exists(later)) << "it may be sound";
}

TEST(Store, ALostPointerIsNoLoss) {
  const Folder folder;
  const CheckpointStore store(folder.path());
  store.save(10, sample(), 9);
  store.save(20, sample(), 9);
  write_bytes(folder / "checkpoints/latest", "nonsense");
  EXPECT_EQ(latest_of(store, nullptr)->filename(), "step-00000020.h5");
  fs::remove(folder / "checkpoints/latest");
  EXPECT_EQ(latest_of(store, nullptr)->filename(), "step-00000020.h5");
}

TEST(Layout, EveryPartOfARowIsTurnedAround) {
  // Two rows of a 1 x 2 map with 2 channels, two plain features and a 2 x 1 map with 2 channels.
  const std::vector<FeaturePart> parts{{1, 2, 2}, {1, 1, 2}, {2, 1, 2}};
  const std::vector<float> stored{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
  const std::vector<float> logical{1, 3, 2, 4, 5, 6, 7, 9, 8, 10, 11, 13, 12, 14, 15, 16, 17, 19, 18, 20};
  EXPECT_EQ(to_logical(stored, parts), logical);
  EXPECT_EQ(to_stored(logical, parts), stored);
}

TEST(Layout, RoundTripIsTheIdentity) {
  std::vector<float> values(3 * 5 * 2 * 4);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const std::vector<FeaturePart> filter{{2, 4, 5}};
  const std::vector<float> stored = to_stored(values, filter);
  EXPECT_NE(stored, values);
  EXPECT_EQ(to_logical(stored, filter), values);
  EXPECT_THROW(to_stored(values, std::vector<FeaturePart>{{2, 5, 5}}), InternalError);
  EXPECT_THROW(to_stored(values, std::vector<FeaturePart>{{2, 0, 5}}), InternalError);
}

}  // namespace
}  // namespace renai
