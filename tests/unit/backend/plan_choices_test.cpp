// Kernel plans that the cuda leaf keeps between runs: text, and the file. Needs no GPU.
#include "../../../src/backend/cuda/plan_choices.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

namespace renai::cuda {
namespace {

using ::testing::HasSubstr;

/// Files of a folder, by name.
std::vector<std::filesystem::path> files_of(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  return files;
}

class PlanFile : public ::testing::Test {
 protected:
  PlanFile() : folder_(std::filesystem::path(::testing::TempDir()) / ("plans-" + std::to_string(::getpid()))) {}
  ~PlanFile() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST(PlanChoices, TextIsSortedAndLinesThatCannotBeReadAreLeftOut) {
  PlanChoices choices;
  choices.set("conv b", "3 17:2=1,6=2");
  choices.set("conv a", "1 4:");
  EXPECT_EQ(choices.text(), "conv a\t1 4:\nconv b\t3 17:2=1,6=2\n");
  PlanChoices heard;
  heard.merge("no tab\n\tno operation\nno choice\t\n" + choices.text() + "conv c\tcut off");
  EXPECT_EQ(heard.text(), choices.text());
  heard.merge("conv a\tanother\n");
  EXPECT_EQ(heard.find("conv a"), "another");
  EXPECT_EQ(heard.find("conv c"), std::nullopt);
}

TEST_F(PlanFile, IsReadBackByItsOwnMachineOnly) {
  const PlanCacheFile file(folder_ / "deeper", "this machine");
  EXPECT_EQ(file.read(), "");
  EXPECT_EQ(file.write("a\tb\n"), "");
  EXPECT_EQ(file.read(), "a\tb\n");
  EXPECT_EQ(file.write("c\td\n"), "");
  EXPECT_EQ(file.read(), "c\td\n");
  EXPECT_EQ(PlanCacheFile(folder_ / "deeper", "another machine").read(), "");
  EXPECT_EQ(files_of(folder_ / "deeper").size(), 1u);
  EXPECT_EQ(PlanCacheFile("", "this machine").write("a\tb\n"), "");
}

TEST_F(PlanFile, AFailureIsToldAndLeavesNothingBehind) {
  const PlanCacheFile file(folder_, "this machine");
  ASSERT_EQ(file.write("a\tb\n"), "");
  const std::filesystem::path place = files_of(folder_).front();
  std::filesystem::remove(place);
  std::filesystem::create_directory(place);  // What the draft cannot be renamed to.
  EXPECT_THAT(file.write("a\tb\n"), HasSubstr("cannot rename"));
  EXPECT_EQ(files_of(folder_), std::vector<std::filesystem::path>{place});
  EXPECT_THAT(PlanCacheFile("/proc/nowhere", "this machine").write(""), HasSubstr("cannot write"));
}

}  // namespace
}  // namespace renai::cuda
