// Which error a file that cannot be used is.
#include "renai/base/file_error.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>

#include "renai/base/error.hpp"

namespace renai {
namespace {

namespace fs = std::filesystem;

template <typename Call>
ErrorKind kind_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_NE(error.failed().find("what it was for"), std::string::npos);
    EXPECT_FALSE(error.why().empty() || error.remedy().empty());
    return error.kind();
  }
  ADD_FAILURE() << "nothing failed";
  return ErrorKind::internal;
}

TEST(FileError, WhatIsNotThereIsOfTheDataAndWhatIsNotGivenOfTheHost) {
  for (const int error : {ENOENT, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG}) {
    EXPECT_EQ(kind_of([&] { fail_reading("what it was for", error); }), ErrorKind::data) << error;
  }
  for (const int error : {EACCES, EPERM, EMFILE, ENFILE, ENOMEM, EIO, ESTALE, ENXIO}) {
    EXPECT_EQ(kind_of([&] { fail_reading("what it was for", error); }), ErrorKind::resource) << error;
  }
}

TEST(FileError, WhatToDoFitsWhatTheSystemRefusedToWrite) {
  struct Case {
    int error;
    const char* remedy;
  };
  for (const Case& one : {Case{ENOSPC, "free some space"},
                          {EDQUOT, "quota"},
                          {EFBIG, "ulimit -f"},
                          {EROFS, "mounted read-only"},
                          {EACCES, "where you may"},
                          {EPERM, "where you may"},
                          {EIO, "dmesg"},
                          {ENOENT, "create the folder"},
                          {EISDIR, "move the folder"},
                          {ENOTDIR, "in the way"},
                          {ENAMETOOLONG, "shorter name"},
                          {EMFILE, "ulimit -n"},
                          {ETXTBSY, "end what uses the file"},
                          {ESTALE, "network file system"}}) {
    try {
      fail_writing("writing it", one.error, "it needs room");
    } catch (const ResourceError& error) {
      EXPECT_EQ(error.failed(), "writing it");
      EXPECT_EQ(error.why(), std::generic_category().message(one.error));
      EXPECT_NE(error.remedy().find(one.remedy), std::string::npos) << error.what();
      const bool full = one.error == ENOSPC || one.error == EDQUOT;
      EXPECT_EQ(error.remedy().ends_with("; it needs room"), full) << error.what();
    }
  }
}

TEST(FileError, ANameThatIsWrongIsTheUsers) {
  const fs::path folder = fs::temp_directory_path() / ("renai-file-error-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  std::ofstream(folder / "file") << "x";
  fs::create_symlink("loop", folder / "loop");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const auto file = [](const fs::path& path) { require_named_file("what it was for", path, "do"); };
  const auto directory = [](const fs::path& path) { require_named_folder("what it was for", path, "do"); };
  file(folder / "file");
  directory(folder);
  for (const fs::path& path : {folder, folder / "none", folder / "pipe", folder / "file/below", folder / "loop",
                               folder / std::string(300, 'n'), fs::path()}) {
    EXPECT_EQ(kind_of([&] { file(path); }), ErrorKind::user) << path;
  }
  for (const char* name : {"none", "file", "file/below", "loop"}) {
    EXPECT_EQ(kind_of([&] { directory(folder / name); }), ErrorKind::user) << name;
  }
  const auto either = [](const fs::path& path) { require_named("what it was for", path, "do"); };
  for (const fs::path& path : {folder, folder / "file", folder / "pipe"}) either(path);
  for (const fs::path& path :
       {folder / "none", folder / "file/below", folder / "loop", folder / std::string(300, 'n'), fs::path()}) {
    EXPECT_EQ(kind_of([&] { either(path); }), ErrorKind::user) << path;
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace renai
