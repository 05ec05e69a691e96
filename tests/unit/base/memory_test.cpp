// What a control group leaves, from files as the system writes them.
#include "renai/base/memory.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace renai {
namespace {

namespace fs = std::filesystem;

class ControlGroupFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / ("renai_" + std::string(test->name()) + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }
  std::int64_t available() const { return control_group_available_bytes(folder_); }

  fs::path folder_;
};

TEST_F(ControlGroupFolder, CachesAreNotInUse) {
  write("memory.max", "1000000\n");
  write("memory.current", "900000\n");
  EXPECT_EQ(available(), 100'000) << "without details all of it is in use";
  write("memory.stat",
        "anon 100000\nfile 700000\nactive_file 200000\ninactive_file 500000\n"
        "slab_reclaimable 50000\nslab_unreclaimable 7000\nslab 57000\n");
  EXPECT_EQ(available(), 650'000);
}

TEST_F(ControlGroupFolder, StaysBetweenNothingAndTheLimit) {
  write("memory.max", "1000\n");
  write("memory.current", "1200\n");
  EXPECT_EQ(available(), 0);
  write("memory.stat", "inactive_file 5000\n");
  EXPECT_EQ(available(), 1000);
}

TEST_F(ControlGroupFolder, NoLimitIsUnknown) {
  EXPECT_EQ(available(), -1);
  write("memory.max", "max\n");
  write("memory.current", "1200\n");
  EXPECT_EQ(available(), -1);
}

}  // namespace
}  // namespace renai
