// Order between streams: events inside captured graphs, waited for by the host's calls and by other graphs.
//
// A producing graph counts up, records an external event, and goes on for much longer. Whoever waits for the event must
// see this round's count, and before the graph is over. Rounds are launched without any host wait between them, so that
// a wait which saw an earlier round's record would read an earlier count.
#include <gtest/gtest.h>

#include "cuda_case.hpp"

namespace renai {
namespace {

using testing::bytes;
using testing::CudaTest;
using testing::ints;
using testing::kComm;
using testing::kCompute;
using testing::kUpdate;

constexpr int kRounds = 20;
constexpr double kHeadUs = 2000, kTailUs = 8000;

class CudaOrder : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    memory = device->allocate(4 * (1 + kRounds));
    inside = device->create_event();
    for (int round = 0; round < kRounds; ++round) {
      seen.push_back(device->create_timed_event());
      over.push_back(device->create_timed_event());
    }
  }

  int* counter() { return ints(memory); }
  int* slot(int round) { return counter() + 1 + round; }

  std::unique_ptr<RecordedGraph> capture_producer() {
    stream(kCompute).begin_capture();
    spin(kCompute, kHeadUs, counter());
    stream(kCompute).record(*inside);
    spin(kCompute, kTailUs);
    return stream(kCompute).end_capture();
  }

  /// Every round's count was read, well before the round's graph was over.
  void check_rounds() {
    synchronize_all();
    const std::vector<int> values = read(counter(), 1 + kRounds);
    EXPECT_EQ(values[0], kRounds);
    for (int round = 0; round < kRounds; ++round) {
      const auto i = static_cast<std::size_t>(round);
      EXPECT_EQ(values[1 + i], round + 1) << "round " << round;
      EXPECT_GE(over[i]->microseconds_since(*seen[i]), kTailUs / 2) << "round " << round;
    }
  }

  Buffer memory;
  std::unique_ptr<Event> inside;
  std::vector<std::unique_ptr<Event>> seen, over;
};

TEST_F(CudaOrder, AHostIssuedWaitSeesTheRecordInsideTheGraphLaunchedBefore) {
  const auto producer = capture_producer();
  for (int round = 0; round < kRounds; ++round) {
    const auto i = static_cast<std::size_t>(round);
    stream(kCompute).launch(*producer);
    stream(kComm).wait(*inside);
    stream(kComm).copy(bytes(slot(round)), bytes(counter()), 4);
    stream(kComm).record(*seen[i]);
    stream(kCompute).record(*over[i]);
  }
  check_rounds();
}

TEST_F(CudaOrder, ACapturedWaitSeesTheRecordInsideTheGraphLaunchedBefore) {
  const auto producer = capture_producer();
  std::vector<std::unique_ptr<RecordedGraph>> consumers;
  for (int round = 0; round < kRounds; ++round) {
    stream(kComm).begin_capture();
    stream(kComm).wait(*inside);
    stream(kComm).copy(bytes(slot(round)), bytes(counter()), 4);
    consumers.push_back(stream(kComm).end_capture());
  }
  for (int round = 0; round < kRounds; ++round) {
    const auto i = static_cast<std::size_t>(round);
    stream(kCompute).launch(*producer);
    stream(kComm).launch(*consumers[i]);
    stream(kComm).record(*seen[i]);
    stream(kCompute).record(*over[i]);
  }
  check_rounds();
}

TEST_F(CudaOrder, TwoStreamsMayWaitForOneRecord) {
  const auto producer = capture_producer();
  Buffer other = device->allocate(4 * kRounds);
  for (int round = 0; round < kRounds; ++round) {
    const auto i = static_cast<std::size_t>(round);
    stream(kCompute).launch(*producer);
    stream(kUpdate).wait(*inside);
    stream(kUpdate).copy(bytes(ints(other) + round), bytes(counter()), 4);
    stream(kComm).wait(*inside);
    stream(kComm).copy(bytes(slot(round)), bytes(counter()), 4);
    stream(kComm).record(*seen[i]);
    stream(kCompute).record(*over[i]);
  }
  check_rounds();
  const std::vector<int> values = read(ints(other), kRounds);
  for (int round = 0; round < kRounds; ++round) EXPECT_EQ(values[static_cast<std::size_t>(round)], round + 1);
}

TEST_F(CudaOrder, AGraphWaitsForAnEventThatTheHostRecords) {
  const auto outside = device->create_event();
  stream(kComm).begin_capture();
  stream(kComm).wait(*outside);
  stream(kComm).copy(bytes(slot(0)), bytes(counter()), 4);
  const auto consumer = stream(kComm).end_capture();
  stream(kComm).launch(*consumer);  // Never recorded: reached.
  stream(kComm).synchronize();
  EXPECT_EQ(read(slot(0), 1).front(), 0);
  for (int round = 1; round <= kRounds; ++round) {
    spin(kCompute, kHeadUs, counter());
    stream(kCompute).record(*outside);
    stream(kComm).launch(*consumer);
    stream(kComm).synchronize();
    EXPECT_EQ(read(slot(0), 1).front(), round);
  }
}

TEST_F(CudaOrder, AnEventThatOnlyACaptureRecordedIsReached) {
  const auto producer = capture_producer();
  EXPECT_TRUE(inside->ready()) << "no launch has recorded it";
  stream(kComm).wait(*inside);
  stream(kComm).synchronize();
  EXPECT_EQ(read(counter(), 1).front(), 0);
}

TEST_F(CudaOrder, TheHostMayWaitForARecordInsideAGraph) {
  const auto producer = capture_producer();
  for (int round = 1; round <= 3; ++round) {
    stream(kCompute).launch(*producer);
    while (!inside->wait_host(std::chrono::milliseconds(100))) {
    }
    EXPECT_EQ(read(counter(), 1).front(), round);
  }
  synchronize_all();
}

}  // namespace
}  // namespace renai
