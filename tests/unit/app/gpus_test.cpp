// Which GPU a rank takes, without a GPU: choice, refusal of a shared one, core lists, folders, looking for silent
// ranks.
#include "../../../src/app/gpus.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "renai/backend/cuda.hpp"
#include "renai/base/error.hpp"
#include "renai/comm/mpi.hpp"

namespace renai {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CudaGpus gpus(int count) {
  CudaGpus found;
  for (int i = 0; i < count; ++i) {
    found.gpus.emplace_back();
    found.gpus.back().ordinal = i;
  }
  return found;
}

TEST(Gpus, ARankTakesItsPlaceInAListAndTheOnlyOneShown) {
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(choose_gpu(gpus(8), rank).ordinal, rank);
    EXPECT_EQ(choose_gpu(gpus(1), rank).ordinal, 0);
    EXPECT_EQ(choose_gpu(gpus(2), rank).ordinal, rank % 2);
  }
  EXPECT_THROW(choose_gpu(gpus(0), 0), InternalError);
}

TEST(Gpus, TwoRanksOnOneAreRefusedByName) {
  HostTopology topology;
  for (int rank = 0; rank < 4; ++rank) {
    topology.places.emplace_back();
    topology.places.back().rank = rank;
    topology.places.back().host = "node7";
    topology.places.back().uuid = "GPU-" + std::to_string(rank);
  }
  EXPECT_NO_THROW(refuse_shared_gpus(topology));
  topology.places[3].uuid = "GPU-1";
  try {
    refuse_shared_gpus(topology);
    FAIL() << "a shared GPU was accepted";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("ranks 1 and 3 on node7"));
    EXPECT_THAT(error.what(), HasSubstr("GPU-1"));
    EXPECT_THAT(error.what(), HasSubstr("--allow-shared-gpu"));
  }
}

TEST(Gpus, ReasonsNameTheRankWhereThereAreSeveral) {
  const auto control = make_self_control_group();
  EXPECT_EQ(no_gpu_reason(*control, gpus(1)), "");
  EXPECT_EQ(no_gpu_reason(*control, {.gpus = {}, .reason = "no driver"}), "no driver");
}

TEST(Gpus, CoreLists) {
  EXPECT_THAT(parse_core_list("0-3,8"), ElementsAre(0, 1, 2, 3, 8));
  EXPECT_THAT(parse_core_list("5"), ElementsAre(5));
  EXPECT_THAT(parse_core_list(""), IsEmpty());
  EXPECT_THAT(parse_core_list("\n"), IsEmpty());
}

TEST(Gpus, PlanCacheFolder) {
  EXPECT_EQ(plan_cache_folder("no"), "");
  EXPECT_EQ(plan_cache_folder("plans"), "plans");
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(plan_cache_folder(""), "/cache/renai");
  ::unsetenv("XDG_CACHE_HOME");
  ::setenv("HOME", "/home/somebody", 1);
  EXPECT_EQ(plan_cache_folder(""), "/home/somebody/.cache/renai");
  ::unsetenv("HOME");
  EXPECT_EQ(plan_cache_folder(""), "");
}

TEST(Gpus, WithoutOneEveryLeafSaysWhy) {
  const CudaGpus found = find_cuda_gpus();
  if (!found.gpus.empty()) GTEST_SKIP() << "there is a GPU";
  EXPECT_FALSE(found.reason.empty());
  std::string reason;
  EXPECT_EQ(cuda_device_count_or_reason(&reason), 0);
  EXPECT_EQ(reason, found.reason);
  try {
    make_cuda_device();
    FAIL() << "a device was made without a GPU";
  } catch (const BackendError& error) {
    EXPECT_EQ(error.why(), found.reason);
    EXPECT_THAT(error.remedy(), HasSubstr("--device cpu"));
  }
}

/// A communicator that has found a failure, or not.
class Watched final : public NcclCommunicator {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  std::string name() const override { return "watched"; }
  std::int64_t tree_reduce_scratch_bytes(std::int64_t) const override { return 0; }
  void tree_reduce(float*, std::int64_t, std::byte*, Stream&, std::string) override {}
  void all_gather(std::byte*, std::int64_t, Stream&, std::string) override {}
  void poll() override {
    ++polls;
    if (failed) throw BackendError("NCCL failed", "a link is down", "look at it");
  }
  int polls = 0;
  bool failed = false;
};

/// A group of one rank that counts its meetings.
class CountingGroup final : public ControlGroup {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  std::vector<std::string> all_gather(std::string_view message, std::string_view) override {
    ++calls;
    return {std::string(message)};
  }
  void report_failure(const Error&) noexcept override {}
  void poll() override {}
  void start_maximum(int) override {}
  int finish_maximum(std::string_view) override { return 0; }
  std::chrono::milliseconds deadline() const override { return milliseconds(1); }
  int calls = 0;
};

TEST(PeerWatch, LooksAtTheCommunicatorAndEndsAfterTheWatchdog) {
  const auto control = make_self_control_group();
  const auto calls = std::make_unique<CountingGroup>();
  PeerWatch watch(*control, *calls, milliseconds(1000));
  EXPECT_NO_THROW(watch.look(milliseconds(5000))) << "before there is a communicator nobody is waited for";
  Watched communicator;
  watch.watch(&communicator);
  EXPECT_NO_THROW(watch.look(milliseconds(999)));
  EXPECT_EQ(communicator.polls, 1);
  EXPECT_THROW(watch.look(milliseconds(1000)), PeerError);
  EXPECT_EQ(calls->calls, 1);
  EXPECT_THROW(watch.look(milliseconds(1000)), PeerError);
  EXPECT_EQ(calls->calls, 1) << "the roll is called once";
  communicator.failed = true;
  EXPECT_THROW(watch.look(milliseconds(0)), BackendError);
}

}  // namespace
}  // namespace renai
