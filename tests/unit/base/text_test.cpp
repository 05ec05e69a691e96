// Text functions used in messages, and the log's lines.
#include "renai/base/text.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "renai/base/log.hpp"

namespace renai {
namespace {

const std::vector<std::string> kModels{"mlp", "lenet5", "cnn-small", "resnet9"};

TEST(NearestName, FindsMisspelledNames) {
  EXPECT_EQ(nearest_name("resnet", kModels), "resnet9");
  EXPECT_EQ(nearest_name("cnn_small", kModels), "cnn-small");
  EXPECT_EQ(nearest_name("LeNet5", kModels), "lenet5");
  EXPECT_EQ(nearest_name("mlpp", kModels), "mlp");
  EXPECT_EQ(nearest_name("mlp", kModels), "mlp");
}

TEST(NearestName, OffersNothingWhenNothingIsNear) {
  EXPECT_EQ(nearest_name("transformer-xl", kModels), "");
  EXPECT_EQ(nearest_name("mlp", std::vector<std::string>{}), "");
}

TEST(NearestName, PrefersTheFirstOfEquals) {
  EXPECT_EQ(nearest_name("ax", std::vector<std::string>{"ab", "ac"}), "ab");
}

TEST(SuggestName, OffersTheNearestOrTheList) {
  EXPECT_EQ(suggest_name("resnet8", kModels), "did you mean 'resnet9'?");
  EXPECT_EQ(suggest_name("transformer-xl", kModels), "known names: mlp, lenet5, cnn-small, resnet9");
}

TEST(FormatBytes, PicksTheUnit) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(640), "640 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(1572864), "1.5 MiB");
  EXPECT_EQ(format_bytes(std::int64_t{3} << 30), "3.0 GiB");
  EXPECT_EQ(format_bytes(std::int64_t{5000} << 40), "5000.0 TiB");
}

TEST(Join, PutsTheSeparatorBetween) {
  EXPECT_EQ(join(std::vector<std::string>{}, ", "), "");
  EXPECT_EQ(join(std::vector<std::string>{"a"}, ", "), "a");
  EXPECT_EQ(join(std::vector<std::string>{"a", "", "c"}, ", "), "a, , c");
}

TEST(Hex64, AlwaysHasSixteenDigits) {
  EXPECT_EQ(hex64(0), "0000000000000000");
  EXPECT_EQ(hex64(0xDEADBEEF), "00000000deadbeef");
  EXPECT_EQ(hex64(~std::uint64_t{0}), "ffffffffffffffff");
}

std::string logged(int rank, LogLevel threshold) {
  ::testing::internal::CaptureStderr();
  const Log log(rank, threshold);
  log.debug("d");
  log.info("i {}");
  log.warning("w");
  log.error("e");
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, RankZeroWritesFromItsThreshold) {
  EXPECT_EQ(logged(0, LogLevel::info), "renai: i {}\nrenai: warning: w\nrenai: e\n");
  EXPECT_EQ(logged(-1, LogLevel::debug), "renai: d\nrenai: i {}\nrenai: warning: w\nrenai: e\n");
  EXPECT_EQ(logged(0, LogLevel::error), "renai: e\n");
}

TEST(Log, OtherRanksWriteWarningsWithTheirNumber) {
  EXPECT_EQ(logged(3, LogLevel::debug), "renai: rank 3: warning: w\nrenai: rank 3: e\n");
}

}  // namespace
}  // namespace renai
