// LineFile: whole lines, kept over a full disk and a killed writer.
#include "renai/io/line_file.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "data_files.hpp"
#include "renai/base/error.hpp"

namespace renai {
namespace {

using testing::Folder;
using testing::message_of;
using testing::slurp;
using testing::spill;

using Lines = std::vector<std::string>;

/// Files of this process may grow to so many bytes, as on a disk that is full; whole again at the end.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &usual_);
    const rlimit limit{bytes, usual_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &usual_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit usual_{};
  void (*handler_)(int) = SIG_DFL;
};

TEST(LineFile, HoldsTheGivenLinesAndThoseThatFollow) {
  const Folder folder;
  spill(folder / "file", "old\n");
  LineFile file(folder / "file", {"a", "b"});
  EXPECT_EQ(slurp(folder / "file"), "a\nb\n");
  file.put("c");
  EXPECT_EQ(slurp(folder / "file"), "a\nb\nc\n");
  EXPECT_FALSE(file.waiting());
}

TEST(LineFile, ALinkStaysALink) {
  const Folder folder;
  std::filesystem::create_directories(folder / "real");
  spill(folder / "real/file", "old\n");
  std::filesystem::create_symlink(folder / "real/file", folder / "link");
  LineFile file(folder / "link", {"a"});
  file.put("b");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(slurp(folder / "real/file"), "a\nb\n");
}

TEST(LineFile, ReadsWholeLinesOnly) {
  const Folder folder;
  EXPECT_EQ(LineFile::read(folder / "none"), Lines());
  spill(folder / "file", "a\n\nbc\ntorn");
  EXPECT_EQ(LineFile::read(folder / "file"), (Lines{"a", "", "bc"}));
}

TEST(LineFile, LinesWaitWhileTheDiskIsFull) {
  const Folder folder;
  LineFile file(folder / "file", {"0123"});
  {
    const FileLimit full(8);
    file.put("4567");  // Three of its bytes fit.
    EXPECT_TRUE(file.waiting());
    file.put("89");
    EXPECT_EQ(slurp(folder / "file"), "0123\n456");
    const std::string message = message_of<ResourceError>([&] { file.flush(); });
    EXPECT_NE(message.find((folder / "file").string()), std::string::npos) << message;
  }
  file.put("end");
  EXPECT_FALSE(file.waiting());
  EXPECT_EQ(slurp(folder / "file"), "0123\n4567\n89\nend\n");
}

TEST(LineFile, WaitingLinesHaveALimit) {
  const Folder folder;
  LineFile file(folder / "file", {});
  const FileLimit full(1);
  const std::string line(LineFile::kMostWaiting / 2, 'x');
  file.put(line);
  EXPECT_THROW(
      {
        file.put(line);
        file.put(line);
      },
      ResourceError);
}

TEST(LineFile, TheEndTriesOnceMore) {
  const Folder folder;
  {
    LineFile file(folder / "file", {});
    {
      const FileLimit full(1);
      file.put("late");
    }
    EXPECT_EQ(slurp(folder / "file"), "l");
  }
  EXPECT_EQ(slurp(folder / "file"), "late\n");
}

TEST(LineFile, NamesTheFileThatCannotBeMade) {
  const Folder folder;
  const std::string message = message_of<ResourceError>([&] { LineFile(folder / "no/file", {}); });
  EXPECT_NE(message.find((folder / "no/file").string()), std::string::npos) << message;
}

}  // namespace
}  // namespace renai
