// Streams of the host leaf: order, events, recording and replay.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "renai/base/error.hpp"
#include "renai/device/host.hpp"

namespace renai {
namespace {

using std::chrono::milliseconds;

constexpr int kTransfer = 0, kCompute = 1, kComm = 2, kUpdate = 3;
constexpr milliseconds kLong{20'000};

/// A door that work waits at, opened by the test.
class Gate {
 public:
  void open() { open_.store(true); }
  void pass() const {
    while (!open_.load()) std::this_thread::sleep_for(milliseconds{1});
  }

 private:
  std::atomic<bool> open_{false};
};

class Streams : public ::testing::Test {
 protected:
  HostStream& stream(int index) { return dynamic_cast<HostStream&>(*streams[static_cast<std::size_t>(index)]); }

  std::unique_ptr<Device> device = make_host_device();
  std::vector<std::unique_ptr<Stream>> streams = [this] {
    std::vector<std::unique_ptr<Stream>> made;
    for (int i = 0; i < 4; ++i) made.push_back(device->create_stream(i));
    return made;
  }();
};

TEST_F(Streams, WorkRunsInOrder) {
  std::vector<int> order;
  for (int i = 0; i < 5000; ++i)
    stream(kCompute).enqueue([&order, i] { order.push_back(i); });  // Over the ring's size.
  stream(kCompute).synchronize();
  ASSERT_EQ(order.size(), 5000u);
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST_F(Streams, ComputeAndUpdateShareAWorker) {
  std::vector<std::thread::id> ids(4);
  for (int i = 0; i < 4; ++i) {
    stream(i).enqueue([&ids, i] { ids[static_cast<std::size_t>(i)] = std::this_thread::get_id(); });
  }
  for (int i = 0; i < 4; ++i) stream(i).synchronize();
  EXPECT_EQ(ids[kCompute], ids[kUpdate]);
  EXPECT_NE(ids[kCompute], ids[kTransfer]);
  EXPECT_NE(ids[kCompute], ids[kComm]);
  EXPECT_NE(ids[kTransfer], ids[kComm]);
  EXPECT_NE(ids[kCompute], std::this_thread::get_id());
}

TEST_F(Streams, StreamsOfOneWorkerRunInLaunchOrder) {
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) stream(i % 2 == 0 ? kCompute : kUpdate).enqueue([&order, i] { order.push_back(i); });
  stream(kCompute).synchronize();
  stream(kUpdate).synchronize();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST_F(Streams, AStreamWaitsForAnotherOnesEvent) {
  Gate gate;
  std::atomic<int> value{0};
  const auto event = device->create_event();
  stream(kTransfer).enqueue([&] {
    gate.pass();
    value = 7;
  });
  stream(kTransfer).record(*event);
  int seen = -1;
  stream(kCompute).wait(*event);
  stream(kCompute).enqueue([&] { seen = value; });
  EXPECT_FALSE(event->ready());
  EXPECT_FALSE(event->wait_host(milliseconds{5}));
  gate.open();
  stream(kCompute).synchronize();
  EXPECT_EQ(seen, 7);
  EXPECT_TRUE(event->ready());
}

TEST_F(Streams, AnEventThatWasNeverRecordedIsReached) {
  const auto event = device->create_event();
  EXPECT_TRUE(event->ready());
  EXPECT_TRUE(event->wait_host(milliseconds{0}));
  stream(kCompute).wait(*event);
  stream(kCompute).synchronize();
}

TEST_F(Streams, RecordingAgainMovesAnEvent) {
  Gate first, second;
  const auto event = device->create_event();
  stream(kTransfer).enqueue([&] { first.pass(); });
  stream(kTransfer).record(*event);
  // A wait refers to the record before it, not to later ones.
  std::atomic<bool> early{false};
  stream(kCompute).wait(*event);
  stream(kCompute).enqueue([&] { early = true; });
  stream(kTransfer).enqueue([&] { second.pass(); });
  stream(kTransfer).record(*event);
  first.open();
  stream(kCompute).synchronize();
  EXPECT_TRUE(early);
  EXPECT_FALSE(event->ready());
  second.open();
  EXPECT_TRUE(event->wait_host(kLong));
}

TEST_F(Streams, RecordsOfOneEventByTwoStreamsCompleteInTheOrderOfTheCalls) {
  Gate gate;
  const auto event = device->create_event();
  std::atomic<bool> slow_done{false};
  stream(kTransfer).enqueue([&] {
    gate.pass();
    slow_done = true;
  });
  stream(kTransfer).record(*event);
  bool seen = false;
  stream(kCompute).wait(*event);
  stream(kCompute).enqueue([&] { seen = slow_done; });
  stream(kComm).record(*event);  // Has nothing before it, yet must not release the wait above.
  std::this_thread::sleep_for(milliseconds{5});
  EXPECT_FALSE(event->ready());
  gate.open();
  stream(kCompute).synchronize();
  EXPECT_TRUE(seen);
}

TEST_F(Streams, CopyAndZero) {
  std::vector<std::byte> from(1000, std::byte{3}), to(1000, std::byte{9});
  stream(kTransfer).copy(to.data(), from.data(), 500);
  stream(kTransfer).zero(to.data() + 100, 50);
  stream(kTransfer).synchronize();
  for (std::size_t i = 0; i < to.size(); ++i) {
    const int expected = i >= 100 && i < 150 ? 0 : i < 500 ? 3 : 9;
    ASSERT_EQ(std::to_integer<int>(to[i]), expected) << i;
  }
  EXPECT_THROW(stream(kTransfer).copy(to.data(), from.data(), -1), InternalError);
}

TEST_F(Streams, CaptureRecordsAndDoesNotRun) {
  int runs = 0;
  std::vector<std::byte> from(16, std::byte{1}), to(16), cleared(16, std::byte{5});
  HostStream& compute = stream(kCompute);
  compute.begin_capture();
  compute.enqueue([&] { ++runs; });
  compute.copy(to.data(), from.data(), 16);
  compute.zero(cleared.data(), 16);
  const auto graph = compute.end_capture();
  compute.synchronize();
  EXPECT_EQ(runs, 0);
  for (int launch = 1; launch <= 3; ++launch) {
    from.assign(16, std::byte(launch));
    compute.launch(*graph);
    compute.synchronize();
    EXPECT_EQ(runs, launch);
    EXPECT_EQ(to[15], std::byte(launch));
    EXPECT_EQ(cleared[0], std::byte{0});
  }
}

TEST_F(Streams, AGraphRunsOnAnyStreamAndOutlivesItsHandle) {
  std::atomic<int> runs{0};
  stream(kCompute).begin_capture();
  stream(kCompute).enqueue([&] { ++runs; });
  auto graph = stream(kCompute).end_capture();
  Gate gate;
  stream(kTransfer).enqueue([&] { gate.pass(); });
  stream(kTransfer).launch(*graph);
  graph.reset();
  gate.open();
  stream(kTransfer).synchronize();
  EXPECT_EQ(runs, 1);
}

TEST_F(Streams, CaptureIsOfTheCallingThreadOnly) {
  std::atomic<int> captured{0}, eager{0};
  HostStream& compute = stream(kCompute);
  compute.begin_capture();
  compute.enqueue([&] { ++captured; });
  std::thread([&] {
    compute.enqueue([&] { ++eager; });
    compute.synchronize();
  }).join();
  EXPECT_EQ(eager, 1);
  EXPECT_EQ(captured, 0);
  EXPECT_THROW(compute.begin_capture(), InternalError);
  EXPECT_THROW(compute.synchronize(), InternalError);
  const auto graph = compute.end_capture();
  compute.launch(*graph);
  compute.synchronize();
  EXPECT_EQ(captured, 1);
  EXPECT_EQ(eager, 1);
  EXPECT_THROW(compute.end_capture(), InternalError);
}

TEST_F(Streams, AnExternalEventIsReleasedInsideEachLaunch) {
  Gate gates[2];
  int launch = 0;
  const auto inside = device->create_event();
  HostStream& compute = stream(kCompute);
  compute.begin_capture();
  compute.enqueue([] {});
  compute.record(*inside);
  compute.enqueue([&] { gates[launch++].pass(); });  // The graph's rest, after the event.
  const auto graph = compute.end_capture();
  EXPECT_TRUE(inside->ready());  // Recording is not passing.
  for (int i = 0; i < 2; ++i) {
    Gate before;
    compute.enqueue([&] { before.pass(); });
    compute.launch(*graph);
    EXPECT_FALSE(inside->ready()) << "open from the launch on";
    stream(kComm).wait(*inside);
    bool done = false;
    stream(kComm).enqueue([&] { done = true; });
    before.open();
    stream(kComm).synchronize();  // Gets through while the graph's rest still runs.
    EXPECT_TRUE(done);
    gates[i].open();
    compute.synchronize();
  }
}

TEST_F(Streams, AnExternalWaitRefersToTheRecordBeforeTheLaunch) {
  const auto input = device->create_event();
  std::atomic<int> value{0};
  std::vector<int> seen;
  HostStream& compute = stream(kCompute);
  compute.begin_capture();
  compute.wait(*input);
  compute.enqueue([&] { seen.push_back(value); });
  const auto graph = compute.end_capture();
  for (int i = 1; i <= 3; ++i) {
    stream(kTransfer).enqueue([&value, i] {
      std::this_thread::sleep_for(milliseconds{2});
      value = i;
    });
    stream(kTransfer).record(*input);
    compute.launch(*graph);
    compute.synchronize();
  }
  EXPECT_EQ(seen, (std::vector<int>{1, 2, 3}));
  Gate later;
  compute.launch(*graph);
  stream(kTransfer).enqueue([&] { later.pass(); });
  stream(kTransfer).record(*input);
  compute.synchronize();  // Does not wait for the record made after the launch.
  EXPECT_EQ(seen.size(), 4u);
  later.open();
  stream(kTransfer).synchronize();  // The gate lives on this frame.
}

TEST_F(Streams, LaunchInsideACaptureIsTakenOver) {
  std::vector<int> order;
  const auto event = device->create_event();
  HostStream& compute = stream(kCompute);
  compute.begin_capture();
  compute.enqueue([&] { order.push_back(1); });
  compute.record(*event);
  const auto inner = compute.end_capture();
  compute.begin_capture();
  compute.enqueue([&] { order.push_back(0); });
  compute.launch(*inner);
  compute.enqueue([&] { order.push_back(2); });
  EXPECT_THROW(compute.record(*event), InternalError);  // Twice in one graph.
  const auto outer = compute.end_capture();
  EXPECT_TRUE(order.empty());
  compute.launch(*outer);
  compute.synchronize();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(event->ready());
}

TEST_F(Streams, ManyStreamsAndEventsKeepEveryOrder) {
  // A ring of dependencies through all workers: each step adds to the same plain integer, so a lost order is a race.
  const auto moved = device->create_event();
  long value = 0;
  for (int round = 0; round < 400; ++round) {
    for (const int index : {kTransfer, kCompute, kComm, kUpdate}) {
      stream(index).wait(*moved);
      stream(index).enqueue([&value, index] { value = value * 3 % 1'000'003 + index; });
      stream(index).record(*moved);
    }
  }
  EXPECT_TRUE(moved->wait_host(kLong));
  long expected = 0;
  for (int round = 0; round < 400; ++round) {
    for (const int index : {kTransfer, kCompute, kComm, kUpdate}) expected = expected * 3 % 1'000'003 + index;
  }
  EXPECT_EQ(value, expected);
}

TEST_F(Streams, CountersTellWhatBlocked) {
  const DeviceCounters before = device->counters();
  stream(kCompute).begin_capture();
  stream(kCompute).enqueue([] {});
  const auto graph = stream(kCompute).end_capture();
  for (int i = 0; i < 10; ++i) stream(kCompute).launch(*graph);
  const auto event = device->create_event();
  stream(kCompute).record(*event);
  EXPECT_EQ(device->counters().host_synchronizations, before.host_synchronizations);
  stream(kCompute).synchronize();
  EXPECT_TRUE(event->wait_host(kLong));  // Reached already: does not count.
  EXPECT_EQ(device->counters().host_synchronizations, before.host_synchronizations + 1);
  EXPECT_EQ(device->counters().launches, before.launches + 10);
}

TEST(StreamMapping, OtherWorkersAndBadIndices) {
  HostDeviceOptions options;
  options.stream_count = 2;
  options.worker_of_stream[0] = options.worker_of_stream[1] = 0;
  const auto device = make_host_device(options);
  const auto stream = device->create_stream(1);
  stream->synchronize();
  EXPECT_THROW(device->create_stream(2), InternalError);
  EXPECT_THROW(device->create_stream(-1), InternalError);
  options.stream_count = 5;
  EXPECT_THROW(make_host_device(options), InternalError);
}

TEST(StreamLifetime, AStreamDrainsBeforeItGoes) {
  std::atomic<int> done{0};
  {
    const auto device = make_host_device();
    const auto stream = device->create_stream(kCompute);
    for (int i = 0; i < 10; ++i) {
      dynamic_cast<HostStream&>(*stream).enqueue([&] {
        std::this_thread::sleep_for(milliseconds{1});
        ++done;
      });
    }
  }
  EXPECT_EQ(done, 10);
}

}  // namespace
}  // namespace renai
