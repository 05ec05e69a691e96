// Packing on several ranks gives the bytes of packing on one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <array>
#include <set>

#include "data_files.hpp"
#include "renai/comm/mpi.hpp"

namespace renai {
namespace {

namespace fs = std::filesystem;
using testing::Folder;
using ::testing::HasSubstr;
using testing::message_of;
using testing::slurp;

constexpr std::chrono::milliseconds kLong{30'000};

class Pack : public ::testing::Test {
 protected:
  void SetUp() override {
    std::array<char, 512> name{};
    if (rank() == 0) folder.emplace();
    if (rank() == 0) folder->path().string().copy(name.data(), name.size() - 1);
    MPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
    root = name.data();
  }
  void TearDown() override { MPI_Barrier(MPI_COMM_WORLD); }
  int rank() const { return mpi->rank(); }

  static SyntheticOptions synthetic() {
    SyntheticOptions options;
    options.train = 103;
    options.val = 29;
    options.height = 7;
    options.width = 5;
    options.channels = 3;
    return options;
  }
  static PackOptions serial(const fs::path& out) {
    PackOptions options;
    options.out = out;
    options.shard_samples = 10;
    return options;
  }
  Manifest pack(const fs::path& out) {
    PackOptions options = serial(out);
    options.rank = rank();
    options.world_size = mpi->world_size();
    options.gather = [this](const std::string& text) { return control->all_gather(text, "packing"); };
    if (rank() == 0) options.progress = [this, out](const PackProgress&) { journal = slurp(out / ".packing"); };
    return pack_synthetic(synthetic(), options);
  }
  static std::set<std::string> names(const fs::path& folder) {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder)) all.insert(entry.path().filename().string());
    return all;
  }
  /// On rank 0: the folder holds exactly the files of a serial pack, byte for byte.
  void expect_as_serial(const fs::path& out) {
    if (rank() != 0) return;
    const fs::path expected = root / "serial" / "set";
    pack_synthetic(synthetic(), serial(expected));
    EXPECT_EQ(names(out), names(expected));
    for (const std::string& name : names(expected)) EXPECT_EQ(slurp(out / name), slurp(expected / name)) << name;
  }

  std::unique_ptr<MpiSession> mpi = start_mpi();
  std::unique_ptr<ControlGroup> control = mpi->make_control_group(kLong);
  std::optional<Folder> folder;
  std::string journal;  ///< On rank 0: what a pack at work leaves in its folder.
  fs::path root;
};

TEST_F(Pack, EqualsTheSerialPackByteForByte) {
  const Manifest manifest = pack(root / "ranks" / "set");
  EXPECT_EQ(manifest.splits[0].shards.size(), 11u);
  EXPECT_EQ(load_manifest(root / "ranks" / "set").digest(), manifest.digest()) << "complete when any rank returns";
  expect_as_serial(root / "ranks" / "set");
}

TEST_F(Pack, GoesOnAfterAnInterruption) {
  const fs::path out = root / "ranks" / "set";
  pack(out);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank() == 0) {
    fs::remove(out / "manifest.json");
    testing::spill(out / ".packing", journal);
    fs::remove(out / "train-00003-of-00011.h5");
    fs::resize_file(out / "train-00004-of-00011.h5", 900);
    testing::spill(out / "val-00002-of-00003.h5.77-0.partial", "half");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  pack(out);
  expect_as_serial(out);
}

TEST_F(Pack, EveryRankRefusesACompleteSet) {
  const fs::path out = root / "ranks" / "set";
  pack(out);
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_THAT(message_of<UserError>([&] { pack(out); }), HasSubstr("complete"));
}

}  // namespace
}  // namespace renai
