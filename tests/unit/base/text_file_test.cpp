// Texts that a user names: what is no regular file of a sensible size is refused before it is read.
#include "renai/base/text_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "renai/base/error.hpp"

namespace renai {
namespace {

namespace fs = std::filesystem;

class NamedText : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  void refuses(const fs::path& path, const std::string& why) {
    try {
      read_named_text("--config X", path, "");
      FAIL() << path << " was read";
    } catch (const UserError& error) {
      const std::string what = error.what();
      EXPECT_TRUE(what.starts_with("--config X; " + why)) << what;
    }
  }

  fs::path folder_ = fs::temp_directory_path() / ("renai_text_" + std::to_string(::getpid()));
};

TEST_F(NamedText, IsReadByteForByte) {
  const std::string text("a\r\n\0\xff", 5);
  std::ofstream(folder_ / "text", std::ios::binary) << text;
  fs::create_symlink("text", folder_ / "link");
  EXPECT_EQ(read_named_text("x", folder_ / "link", ""), text);
  std::ofstream(folder_ / "empty").close();
  EXPECT_EQ(read_named_text("x", folder_ / "empty", ""), "");
}

TEST_F(NamedText, IsARegularFileOfSensibleSize) {
  refuses(folder_, "it is a folder");
  refuses(folder_ / "none", "there is no such file");
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  refuses(folder_ / "pipe", "it is a pipe or a device");
  refuses("/dev/zero", "it is a pipe or a device");
  std::ofstream(folder_ / "large").close();
  fs::resize_file(folder_ / "large", std::uintmax_t{1} << 32);
  refuses(folder_ / "large", "it has 4096 MiB");
}

}  // namespace
}  // namespace renai
