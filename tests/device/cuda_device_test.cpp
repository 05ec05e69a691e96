// The cuda device leaf: memory, capture and replay, waiting, counters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <thread>

#include "cuda_case.hpp"
#include "renai/base/error.hpp"

namespace renai {
namespace {

using std::chrono::milliseconds;
using testing::bytes;
using testing::CudaTest;
using ::testing::HasSubstr;
using testing::ints;
using testing::kCompute;
using testing::kTransfer;

using CudaDeviceTest = CudaTest;

TEST_F(CudaDeviceTest, SaysWhatItIs) {
  const DeviceInfo info = device->info();
  EXPECT_EQ(info.kind, "cuda");
  EXPECT_FALSE(info.model.empty());
  EXPECT_EQ(info.uuid.size(), 40u) << info.uuid;
  EXPECT_THAT(info.instruction_set, HasSubstr("sm_"));
  const CudaGpus found = find_cuda_gpus();
  EXPECT_EQ(found.gpus.front().uuid, info.uuid);
  EXPECT_GT(found.gpus.front().memory_bytes, 0);
}

TEST_F(CudaDeviceTest, RefusesAnOrdinalThatIsNotThere) {
  EXPECT_THROW(make_cuda_device({.ordinal = 1000, .while_waiting = {}}), BackendError);
}

TEST_F(CudaDeviceTest, MemoryIsAlignedAndZero) {
  const Buffer memory = device->allocate(4 * 1000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 256, 0u);
  EXPECT_EQ(read(ints(memory), 1000), std::vector<int>(1000, 0));
  const Buffer pinned = device->allocate_pinned(4096);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pinned.data()) % 256, 0u);
  for (int i = 0; i < 1024; ++i) EXPECT_EQ(ints(pinned)[i], 0);
}

TEST_F(CudaDeviceTest, TooMuchMemoryIsRefusedWithSizesAndTheDeviceWorksOn) {
  try {
    device->allocate(std::int64_t{1} << 50);
    FAIL() << "a petabyte was given";
  } catch (const ResourceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("asked for"));
    EXPECT_THAT(error.what(), HasSubstr("free"));
  }
  const Buffer memory = device->allocate(400);
  EXPECT_EQ(read(ints(memory), 100), std::vector<int>(100, 0));
}

TEST_F(CudaDeviceTest, CopiesBetweenPinnedAndDeviceMemory) {
  Buffer pinned = device->allocate_pinned(4 * 1000), memory = device->allocate(4 * 1000);
  for (int i = 0; i < 1000; ++i) ints(pinned)[i] = i * i;
  stream(kTransfer).copy(memory.data(), pinned.data(), 4 * 1000);
  const std::vector<int> values = read(ints(memory), 1000);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(values[static_cast<std::size_t>(i)], i * i);
}

TEST_F(CudaDeviceTest, CaptureRunsNothingAndEveryLaunchRunsAll) {
  Buffer memory = device->allocate(8);
  stream(kCompute).begin_capture();
  spin(kCompute, 10, ints(memory));
  stream(kCompute).copy(bytes(ints(memory) + 1), memory.data(), 4);
  const auto graph = stream(kCompute).end_capture();
  stream(kCompute).synchronize();
  EXPECT_EQ(read(ints(memory), 2), (std::vector<int>{0, 0}));
  for (int round = 1; round <= 5; ++round) {
    stream(kCompute).launch(*graph);
    stream(kCompute).synchronize();
    EXPECT_EQ(read(ints(memory), 2), (std::vector<int>{round, round}));
  }
}

TEST_F(CudaDeviceTest, AFailedCaptureIsToldAndTheStreamWorksOn) {
  Buffer memory = device->allocate(4);
  stream(kCompute).begin_capture();
  EXPECT_THROW(stream(kCompute).synchronize(), InternalError);
  EXPECT_NO_THROW(stream(kCompute).end_capture());
  spin(kCompute, 1, ints(memory));
  stream(kCompute).synchronize();
  EXPECT_EQ(read(ints(memory), 1).front(), 1);
}

TEST_F(CudaDeviceTest, ReplayAllocatesNothingAndNeverBlocks) {
  Buffer memory = device->allocate(4);
  stream(kCompute).begin_capture();
  spin(kCompute, 1, ints(memory));
  const auto graph = stream(kCompute).end_capture();
  const auto event = device->create_event();
  const DeviceCounters before = device->counters();
  EXPECT_EQ(before.allocations, 1);
  EXPECT_EQ(before.allocated_bytes, 4);
  for (int i = 0; i < 100; ++i) {
    stream(kCompute).launch(*graph);
    stream(kCompute).record(*event);
    stream(kTransfer).wait(*event);
  }
  const DeviceCounters after = device->counters();
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.pinned_allocations, before.pinned_allocations);
  EXPECT_EQ(after.host_synchronizations, before.host_synchronizations);
  EXPECT_EQ(after.launches - before.launches, 100);
  synchronize_all();
  EXPECT_EQ(device->counters().host_synchronizations - before.host_synchronizations, 4);
  EXPECT_EQ(read(ints(memory), 1).front(), 100);
}

TEST_F(CudaDeviceTest, HostWaitsHaveALimitAndAreCounted) {
  const auto event = device->create_event();
  EXPECT_TRUE(event->ready()) << "never recorded counts as reached";
  EXPECT_TRUE(event->wait_host(milliseconds(0)));
  const std::int64_t before = device->counters().host_synchronizations;
  spin(kCompute, 100e3);
  stream(kCompute).record(*event);
  EXPECT_FALSE(event->ready());
  EXPECT_FALSE(event->wait_host(milliseconds(5)));
  EXPECT_EQ(device->counters().host_synchronizations - before, 1);
  EXPECT_TRUE(event->wait_background(milliseconds(5000)));
  EXPECT_TRUE(event->wait_host(milliseconds(0)));
  EXPECT_EQ(device->counters().host_synchronizations - before, 1) << "neither a reached event nor a loader's wait";
}

TEST_F(CudaDeviceTest, AnotherThreadMayWait) {
  const auto event = device->create_event();
  spin(kCompute, 20e3);
  stream(kCompute).record(*event);
  bool reached = false;
  std::thread loader([&] { reached = event->wait_background(milliseconds(5000)); });
  // Meanwhile this thread captures: that must not disturb the other one's look at the event.
  stream(kTransfer).begin_capture();
  std::this_thread::sleep_for(milliseconds(40));
  const auto graph = stream(kTransfer).end_capture();
  loader.join();
  EXPECT_TRUE(reached);
}

TEST_F(CudaDeviceTest, ShortWaitsAddUpAndTheLookMayEndThem) {
  const auto event = device->create_event();
  milliseconds most{0};
  while_waiting = [&](milliseconds waited) { most = std::max(most, waited); };
  spin(kCompute, 150e3);
  stream(kCompute).record(*event);
  while (!event->wait_host(milliseconds(20))) {
  }
  EXPECT_GE(most, milliseconds(100));
  while_waiting = [](milliseconds) { throw PeerError("a rank is missing", "it is silent"); };
  spin(kCompute, 100e3);
  stream(kCompute).record(*event);
  EXPECT_THROW(event->wait_host(milliseconds(5000)), PeerError);
  EXPECT_THROW(stream(kCompute).synchronize(), PeerError);
  while_waiting = nullptr;
}

TEST_F(CudaDeviceTest, TimedEventsMeasure) {
  const auto start = device->create_timed_event(), end = device->create_timed_event();
  stream(kCompute).record(*start);
  spin(kCompute, 5000);
  stream(kCompute).record(*end);
  stream(kCompute).synchronize();
  EXPECT_GE(end->microseconds_since(*start), 4900);
  EXPECT_LE(end->microseconds_since(*start), 50e3);
  EXPECT_THROW(device->create_event()->microseconds_since(*start), InternalError);
}

}  // namespace
}  // namespace renai
