// The control group over real ranks: contents, silence, reported failures, and what waiting costs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <thread>

#include "renai/comm/mpi.hpp"
#include "support.hpp"

namespace renai {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using testing::meet;
using testing::seconds_since;

constexpr milliseconds kLong{30'000}, kShort{700};

class Control : public ::testing::Test {
 protected:
  void TearDown() override { meet(); }
  int rank() const { return mpi->rank(); }
  int ranks() const { return mpi->world_size(); }
  int last() const { return ranks() - 1; }
  std::unique_ptr<MpiSession> mpi = start_mpi();
};

std::string message_of(int rank, int round) {
  const std::size_t lengths[] = {0, 1, 895, 896, 897, 5000, 3'000'000, 17};
  std::string text(lengths[(rank + round) % 8], static_cast<char>('a' + rank));
  if (!text.empty()) text.back() = static_cast<char>('0' + round);
  return text;
}

TEST_F(Control, GathersMessagesOfDifferentLengths) {
  const auto group = mpi->make_control_group(kLong);
  for (int round = 0; round < 4; ++round) {
    const auto texts = group->all_gather(message_of(rank(), round), "gathering");
    ASSERT_EQ(texts.size(), static_cast<std::size_t>(ranks()));
    for (int peer = 0; peer < ranks(); ++peer) {
      EXPECT_TRUE(texts[static_cast<std::size_t>(peer)] == message_of(peer, round)) << peer << " round " << round;
    }
  }
}

TEST_F(Control, FindsTheMaximumBesideOtherExchanges) {
  const auto group = mpi->make_control_group(kLong);
  for (int round = 0; round < 5; ++round) {
    group->start_maximum(rank() == round % ranks() ? 15 + round : -1);
    group->barrier("meeting");
    EXPECT_EQ(group->finish_maximum("asking"), 15 + round);
  }
}

TEST_F(Control, AskingForTheMaximumWaitsForNobody) {
  if (ranks() == 1) GTEST_SKIP() << "needs two ranks";
  const auto group = mpi->make_control_group(kShort);
  meet();
  if (rank() == last()) return;
  const auto start = testing::Clock::now();
  group->start_maximum(1);
  EXPECT_LT(seconds_since(start), 0.5);
  try {
    group->finish_maximum("asking whether to go on");
    FAIL() << "nobody was missed";
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(last()) + " while asking whether to go on"));
  }
}

TEST_F(Control, BroadcastsFromEveryRoot) {
  const auto group = mpi->make_control_group(kLong);
  for (int root = 0; root < ranks(); ++root) {
    EXPECT_EQ(group->broadcast("from " + std::to_string(rank()), root, "broadcasting"), "from " + std::to_string(root));
  }
  EXPECT_THROW(group->broadcast("", ranks(), "broadcasting"), InternalError);
}

TEST_F(Control, BarrierWaitsForTheLastRank) {
  const auto group = mpi->make_control_group(kLong);
  meet();
  const auto start = testing::Clock::now();
  if (rank() == last()) std::this_thread::sleep_for(milliseconds{150});
  group->barrier("meeting");
  EXPECT_GE(seconds_since(start), 0.1);
}

TEST_F(Control, NamesTheSilentRankAndTheStage) {
  if (ranks() == 1) GTEST_SKIP() << "needs two ranks";
  const auto group = mpi->make_control_group(kShort);
  meet();
  if (rank() != last()) {
    const auto start = testing::Clock::now();
    try {
      group->barrier("comparing fingerprints");
      FAIL() << "nobody was missed";
    } catch (const PeerError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(last()) + " while comparing fingerprints"));
      EXPECT_THAT(error.what(), HasSubstr("700 ms"));
    }
    EXPECT_GE(seconds_since(start), 0.69);
    EXPECT_LT(seconds_since(start), 5.0);
  }
}

TEST_F(Control, NamesAllSilentRanks) {
  if (ranks() < 4) GTEST_SKIP() << "needs four ranks";
  const auto group = mpi->make_control_group(kShort);
  meet();
  if (rank() == 1 || rank() == 3) return;
  try {
    group->barrier("meeting");
    FAIL() << "nobody was missed";
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("ranks 1, 3 while meeting"));
  }
}

TEST_F(Control, RanksAtDifferentPointsSayWhere) {
  if (ranks() == 1) GTEST_SKIP() << "needs two ranks";
  const auto group = mpi->make_control_group(kLong);
  try {
    group->barrier(rank() == last() ? "saving" : "validating");
    FAIL() << "the stages differ";
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("saving"));
    EXPECT_THAT(error.what(), HasSubstr("validating"));
  }
}

TEST_F(Control, AReportedFailureEndsEveryWaitAtOnce) {
  if (ranks() == 1) GTEST_SKIP() << "needs two ranks";
  const auto group = mpi->make_control_group(kLong);
  group->poll();
  meet();
  const auto start = testing::Clock::now();
  if (rank() == last()) {
    group->report_failure(DataError("cannot read shard 3", "it is truncated", "pack it again"));
    group->report_failure(DataError("a second failure", "while the first unwinds"));
    EXPECT_LT(seconds_since(start), 2.0);
  } else {
    try {
      group->barrier("meeting");
      FAIL() << "the failure was not noticed";
    } catch (const PeerError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(last()) + " on "));
      EXPECT_THAT(error.what(), HasSubstr("failed: cannot read shard 3; it is truncated; pack it again"));
      group->report_failure(error);  // Unwinding here must neither hang nor start an echo.
    }
    EXPECT_LT(seconds_since(start), 5.0);
    EXPECT_THROW(group->poll(), PeerError);
    EXPECT_THROW(group->barrier("meeting again"), PeerError);
  }
}

TEST_F(Control, PollSeesAFailureWithoutWaiting) {
  if (ranks() == 1) GTEST_SKIP() << "needs two ranks";
  const auto group = mpi->make_control_group(kLong);
  meet();
  if (rank() == 0) group->report_failure(UserError("bad option", "no reason"));
  if (rank() != 0) {
    const auto start = testing::Clock::now();
    EXPECT_THROW(
        while (seconds_since(start) < 5.0) {
          group->poll();
          std::this_thread::sleep_for(milliseconds{1});
        },
        PeerError);
  }
}

TEST_F(Control, WaitingDoesNotBurnTheCore) {
  if (ranks() == 1) GTEST_SKIP() << "needs two ranks";
  const auto group = mpi->make_control_group(kLong);
  meet();
  const auto cpu_seconds = [] {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  const double before = cpu_seconds();
  if (rank() == last()) std::this_thread::sleep_for(milliseconds{500});
  group->barrier("meeting");
  EXPECT_LT(cpu_seconds() - before, 0.15);
}

TEST_F(Control, TopologyOfOneHost) {
  const auto group = mpi->make_control_group(kLong);
  RankPlace own;
  own.host = "node-a";
  own.device = "cpu " + std::to_string(rank());
  own.pid = 1000 + rank();
  const HostTopology topology = gather_topology(*group, own);
  ASSERT_EQ(topology.places.size(), static_cast<std::size_t>(ranks()));
  for (int peer = 0; peer < ranks(); ++peer) {
    const RankPlace& place = topology.places[static_cast<std::size_t>(peer)];
    EXPECT_EQ(place.rank, peer);
    EXPECT_EQ(place.local_rank, peer);
    EXPECT_EQ(place.local_size, ranks());
    EXPECT_EQ(place.device, "cpu " + std::to_string(peer));
    EXPECT_EQ(place.pid, 1000 + peer);
  }
  EXPECT_EQ(topology.ranks_per_host, ranks() == 3 ? 1 : ranks());
}

TEST_F(Control, TopologyOfScatteredRanksIsFlat) {
  if (ranks() < 4) GTEST_SKIP() << "needs four ranks";
  const auto group = mpi->make_control_group(kLong);
  RankPlace own;
  own.host = rank() % 2 == 0 ? "even" : "odd";
  const HostTopology scattered = gather_topology(*group, own);
  EXPECT_EQ(scattered.ranks_per_host, 1);
  EXPECT_EQ(scattered.places[3].local_rank, 1);
  own.host = rank() < ranks() / 2 ? "first" : "second";
  EXPECT_EQ(gather_topology(*group, own).ranks_per_host, ranks() / 2);
  own.host = rank() == 0 ? "alone" : "rest";
  EXPECT_EQ(gather_topology(*group, own).ranks_per_host, 1);
}

}  // namespace
}  // namespace renai
