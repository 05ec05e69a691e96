// Replacement of files: all or nothing, and reasons when it fails.
#include "renai/io/atomic_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>

#include "data_files.hpp"
#include "renai/io/hdf5.hpp"

namespace renai {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::Folder;
using ::testing::HasSubstr;
using testing::message_of;
using testing::slurp;

std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator{}));
}

TEST(AtomicFile, ReplacesAText) {
  const Folder folder;
  const fs::path path = folder / "a.txt";
  replace_text(path, "one");
  EXPECT_EQ(read_text(path), "one");
  replace_text(path, std::string(100'000, 'x'));
  EXPECT_EQ(slurp(path), std::string(100'000, 'x'));
  replace_text(path, "");
  EXPECT_EQ(read_text(path), "");
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(AtomicFile, AFailureLeavesTheOldFileAndNoOther) {
  const Folder folder;
  const fs::path path = folder / "a.txt";
  replace_text(path, "old");
  const auto fail = [&] {
    replace_file(path, [](const fs::path& temporary) {
      testing::spill(temporary, "half");
      throw DataError("test", "stopped");
    });
  };
  EXPECT_THAT(message_of<DataError>(fail), HasSubstr("stopped"));
  EXPECT_EQ(slurp(path), "old");
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(AtomicFile, AWriterThatWritesNothingIsAnError) {
  const Folder folder;
  message_of<ResourceError>([&] { replace_file(folder / "a", [](const fs::path&) {}); });
  EXPECT_EQ(entries(folder.path()), 0u);
}

TEST(AtomicFile, NamesPathAndReason) {
  const Folder folder;
  EXPECT_THAT(message_of<ResourceError>([&] { replace_text(folder / "none/a.txt", "x"); }),
              AllOf(HasSubstr("none/a.txt"), HasSubstr("No such file")));
  fs::create_directories(folder / "taken/by");
  EXPECT_THAT(message_of<ResourceError>([&] { replace_text(folder / "taken", "x"); }),
              AllOf(HasSubstr("taken"), HasSubstr("move the folder")));
  EXPECT_THAT(message_of<DataError>([&] { static_cast<void>(read_text(folder / "b.txt")); }),
              AllOf(HasSubstr("b.txt"), HasSubstr("missing")));
  EXPECT_THAT(message_of<DataError>([&] { static_cast<void>(read_text(folder.path())); }), HasSubstr("folder"));
  testing::spill(folder / "file", "x");
  EXPECT_THAT(message_of<ResourceError>([&] { require_writable_directory(folder / "file"); }),
              AllOf(HasSubstr("cannot be written"), HasSubstr("is in the way")));
  fs::create_symlink(folder / "nowhere", folder / "link");
  EXPECT_THAT(message_of<ResourceError>([&] { require_writable_directory(folder / "link"); }),
              AllOf(HasSubstr("cannot be written"), HasSubstr("a link that leads nowhere")));
  EXPECT_THAT(message_of<ResourceError>([&] { require_writable_directory(folder / "file/below"); }),
              HasSubstr("cannot be written"));
}

TEST(AtomicFile, MakesAWritableDirectoryWithParents) {
  const Folder folder;
  require_writable_directory(folder / "a/b/c");
  EXPECT_TRUE(fs::is_directory(folder / "a/b/c"));
  EXPECT_EQ(entries(folder / "a/b/c"), 0u);
}

/// Runs `body` in a child in which no file may grow past `limit_bytes`; returns its exit status. A limit on file size
/// fails writes in the same places as a full disk.
template <typename Body>
int in_child_with_small_files(rlim_t limit_bytes, Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{limit_bytes, limit_bytes};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::exit(body());  // With exit handlers: a library that crashes in its own must be seen.
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(AtomicFile, AFullDiskIsAResourceErrorForTextsAndHdf5) {
  const Folder folder;
  const auto text = [&] {
    try {
      replace_text(folder / "a.txt", std::string(200'000, 'x'));
    } catch (const ResourceError& error) {
      return std::string(error.what()).find("a.txt") != std::string::npos ? 4 : 1;
    }
    return 0;
  };
  EXPECT_EQ(in_child_with_small_files(100'000, text), 4);
  const auto hdf5 = [&] {
    try {
      replace_file(folder / "a.h5", [](const fs::path& temporary) {
        H5File file = H5File::create(temporary);
        const std::vector<std::byte> bytes(200'000);
        const auto extent = static_cast<std::int64_t>(bytes.size());
        file.write_all("x", DType::u8, {&extent, 1}, bytes);
        file.close();
      });
    } catch (const ResourceError& error) {
      return std::string(error.what()).find("a.h5") != std::string::npos ? 4 : 1;
    }
    return 0;
  };
  EXPECT_EQ(in_child_with_small_files(100'000, hdf5), 4);
  EXPECT_EQ(in_child_with_small_files(1'000'000, hdf5), 0);
  EXPECT_EQ(entries(folder.path()), 1u) << "the file that fits, and nothing else";
}

TEST(AtomicFile, KnowsItsTemporaryNames) {
  std::filesystem::path seen;
  const testing::Folder folder;
  replace_file(folder / "a.h5", [&seen](const std::filesystem::path& temporary) {
    seen = temporary;
    testing::spill(temporary, "x");
  });
  EXPECT_TRUE(is_temporary(seen)) << seen;
  for (const char* name :
       {"notes.partial", "a.h5.partial", "a.1-.partial", "a.-1.partial", "a.1-2", "a.x1-2.partial"}) {
    EXPECT_FALSE(is_temporary(name)) << name;
  }
}

TEST(AtomicFile, TakesAwayTemporariesOfWhatIsOwn) {
  const Folder folder;
  for (const char* name : {"a.h5.1-2.partial", "b.h5.1-3.partial", "a.h5", "a.h5.partial", "notes.partial"}) {
    testing::spill(folder / name, "x");
  }
  remove_temporaries(folder.path(), [](const std::string& name) { return name == "a.h5"; });
  EXPECT_FALSE(fs::exists(folder / "a.h5.1-2.partial"));
  EXPECT_EQ(entries(folder.path()), 4u);
  EXPECT_NO_THROW(remove_temporaries(folder / "none", [](const std::string&) { return true; }));
}

}  // namespace
}  // namespace renai
