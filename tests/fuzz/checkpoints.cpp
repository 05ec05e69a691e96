// Damaged checkpoints: refused with a DataError or read back unchanged, with the seal and without it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "renai/base/error.hpp"
#include "renai/base/philox.hpp"
#include "renai/checkpoint/state_dict.hpp"

namespace renai {
namespace {

namespace fs = std::filesystem;

constexpr int kSealedRounds = 600;
// The library itself parses these; some damages cost it seconds.
constexpr int kBareRounds = 200;
constexpr std::size_t kSealBytes = 48;

class FuzzCheckpoints : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("renai_fuzz_checkpoints" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    StateDict state;
    for (int i = 0; i < 4; ++i) {
      StateTensor tensor{"layer" + std::to_string(i) + ".weight", DType::f32, {4, 3, 1, 2}, {}};
      tensor.data.resize(4 * 3 * 2 * sizeof(float));
      for (std::size_t b = 0; b < tensor.data.size(); ++b) tensor.data[b] = static_cast<std::byte>(b * 7 + 1);
      state.groups[i % 2 == 0 ? "weights" : "optimizer"].push_back(tensor);
    }
    state.texts["recipe"] = "model = \"mlp\"\n";
    digest_ = state.digest();
    save_checkpoint(folder_ / "sound.h5", state);
    std::ifstream file(folder_ / "sound.h5", std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  static std::uint32_t draw(int round, std::uint32_t index, std::size_t limit) {
    const std::uint32_t word = random_block(5, RandomPurpose::test, static_cast<std::uint64_t>(round), index)[0];
    return static_cast<std::uint32_t>(word % limit);
  }

  static std::string damage(std::string bytes, int round) {
    const std::uint32_t edits = 1 + draw(round, 0, 6);
    for (std::uint32_t i = 1; i <= edits; ++i) {
      const std::size_t at = draw(round, 4 * i, bytes.size());
      switch (draw(round, 4 * i + 1, 4)) {
        case 0: bytes[at] = static_cast<char>(bytes[at] ^ (1 << draw(round, 4 * i + 2, 8))); break;
        case 1: bytes[at] = static_cast<char>(draw(round, 4 * i + 2, 256)); break;
        case 2: bytes.replace(at, 8, 8, static_cast<char>(draw(round, 4 * i + 2, 2) == 0 ? 0 : 0xff)); break;
        default: bytes.resize(std::max<std::size_t>(at, 1)); break;
      }
    }
    return bytes;
  }

  /// Refused, or the same state as was saved.
  void expect_refused_or_same(const std::string& bytes) {
    std::ofstream(folder_ / "damaged.h5", std::ios::binary | std::ios::trunc) << bytes;
    try {
      EXPECT_EQ(load_checkpoint(folder_ / "damaged.h5").digest(), digest_);
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("damaged.h5"), std::string::npos) << error.what();
    }
  }

  fs::path folder_;
  std::string bytes_, digest_;
};

TEST_F(FuzzCheckpoints, SealedFiles) {
  for (int round = 0; round < kSealedRounds; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    expect_refused_or_same(damage(bytes_, round));
  }
}

TEST_F(FuzzCheckpoints, FilesWithoutSeal) {
  const std::string bare = bytes_.substr(0, bytes_.size() - kSealBytes);
  for (int round = 0; round < kBareRounds; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    expect_refused_or_same(damage(bare, round));
  }
}

}  // namespace
}  // namespace renai
