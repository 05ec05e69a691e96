// RunLock: one run at a time in a run directory.
#include "renai/train/run_lock.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstddef>
#include <iterator>

#include "data_files.hpp"
#include "renai/base/error.hpp"
#include "renai/base/host.hpp"
#include "renai/train/run_log.hpp"

namespace renai {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::Folder;
using ::testing::HasSubstr;
using testing::message_of;
using ::testing::Not;
using testing::slurp;
using testing::spill;

std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator{}));
}

void write_holder(const fs::path& directory, int pid, const std::string& host) {
  spill(directory / "ranks.json", R"([{"rank": 0, "host": ")" + host + R"(", "pid": )" + std::to_string(pid) + "}]");
}

TEST(RunLock, RefusesASecondHolderAndLetsGo) {
  const Folder folder;
  {
    const RunLock lock(folder.path());
    EXPECT_TRUE(lock.held());
    EXPECT_EQ(lock.warning(), "");
    EXPECT_EQ(entries(folder.path()), 0u);
    EXPECT_THAT(
        message_of<UserError>([&] { RunLock second(folder.path()); }),
        AllOf(HasSubstr(folder.path().string()), HasSubstr("another run is using it;"), HasSubstr("--run-dir")));
  }
  EXPECT_TRUE(RunLock(folder.path()).held());
}

TEST(RunLock, NamesTheHolderWhereItIsKnownAndNotOneThatHasEnded) {
  const Folder folder;
  const RunLock lock(folder.path());
  const auto refuse = [&] { RunLock second(folder.path()); };
  write_holder(folder.path(), ::getpid(), host_name());
  EXPECT_THAT(message_of<UserError>(refuse),
              HasSubstr("process " + std::to_string(::getpid()) + " on " + host_name() + ";"));
  write_holder(folder.path(), 17, "elsewhere.example");
  EXPECT_THAT(message_of<UserError>(refuse), HasSubstr("process 17 on elsewhere.example;"));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  write_holder(folder.path(), child, host_name());
  EXPECT_THAT(message_of<UserError>(refuse), Not(HasSubstr("process")));
  for (const char* text : {"", "[]", "{}", R"([{"pid": "x", "host": 1}])"}) {
    spill(folder / "ranks.json", text);
    EXPECT_THAT(message_of<UserError>(refuse), HasSubstr("another run is using it;")) << text;
  }
}

TEST(RunLock, WithoutADirectoryHoldsNothing) {
  const Folder folder;
  spill(folder / "file", "x");
  for (const char* name : {"none", "file", "file/none"}) {
    const RunLock lock(folder / name);
    EXPECT_FALSE(lock.held()) << name;
    EXPECT_EQ(lock.warning(), "") << name;
  }
}

TEST(RunLock, ALogHoldsItsDirectoryAlsoAfterMovingAnEarlierRunAside) {
  const Folder folder;
  for (const bool earlier : {false, true}) {
    const RunLog log(folder / "run", 0, false);
    EXPECT_TRUE(log.lock().held());
    EXPECT_EQ(fs::exists(folder / "run.1"), earlier);
    for (const bool keep : {false, true})
      EXPECT_THAT(message_of<UserError>([&] { RunLog second(folder / "run", 0, keep); }), HasSubstr("another run"));
    EXPECT_EQ(entries(folder.path()), earlier ? 2u : 1u);
    EXPECT_NO_THROW(RunLog(folder / "run", 1, true));
  }
  EXPECT_TRUE(RunLock(folder / "run").held());
  EXPECT_TRUE(RunLock(folder / "run.1").held());
}

TEST(RunLock, ALogTakesOverWhatIsHeld) {
  const Folder folder;
  for (const bool keep : {true, false}) {
    fs::create_directories(folder / "run");
    spill(folder / "run/metrics.jsonl", "x");
    RunLock lock(folder / "run");
    const RunLog log(folder / "run", 0, keep, std::move(lock));
    EXPECT_TRUE(log.lock().held());
    EXPECT_THROW(RunLock(folder / "run"), UserError);
  }
  EXPECT_EQ(slurp(folder / "run.1/metrics.jsonl"), "x");
}

/// From here on this process gets `error` from flock. False where that cannot be arranged.
bool fail_flock(unsigned error) {
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_flock, 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{static_cast<unsigned short>(std::size(code)), code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

TEST(RunLock, GoesOnWithAWarningWhereThereAreNoLocks) {
  constexpr int kUnable = 7;
  for (const int error : {ENOLCK, EOPNOTSUPP, ENOSYS, EBADF}) {
    const Folder folder;
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      if (!fail_flock(static_cast<unsigned>(error))) ::_exit(kUnable);
      const RunLog log(folder / "run", 0, false);
      log.write_text("recipe.toml", "x");
      const bool warned = log.lock().warning().find((folder / "run").string()) != std::string::npos;
      ::_exit(!log.lock().held() && warned && slurp(folder / "run/recipe.toml") == "x" ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == kUnable) GTEST_SKIP() << "system calls cannot be filtered here";
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << error;
  }
}

}  // namespace
}  // namespace renai
