// The steady state of the host leaf: no allocation by launches, records, waits and copies, and no core burnt in idling.
#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <thread>
#include <vector>

#include "allocation_counter.hpp"
#include "renai/device/host.hpp"

namespace renai {
namespace {

using std::chrono::milliseconds;

constexpr int kTransfer = 0, kCompute = 1, kComm = 2;

TEST(SteadyState, AStepAllocatesNothing) {
  const auto device = make_host_device();
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(device->create_stream(i));
  std::vector<std::byte> from(256), to(256);
  const auto moved = device->create_event(), bucket = device->create_event(), reduced = device->create_event(),
             consumed = device->create_event();
  std::atomic<long> runs{0};
  Stream& compute = *streams[kCompute];
  compute.begin_capture();
  dynamic_cast<HostStream&>(compute).enqueue([&runs] { ++runs; });
  compute.record(*bucket);
  compute.wait(*moved);
  compute.zero(to.data(), 64);
  const auto graph = compute.end_capture();
  const auto step = [&] {
    streams[kTransfer]->wait(*consumed);
    streams[kTransfer]->copy(to.data(), from.data(), 256);
    streams[kTransfer]->record(*moved);
    compute.wait(*moved);
    compute.launch(*graph);
    streams[kComm]->wait(*bucket);
    streams[kComm]->record(*reduced);
    compute.wait(*reduced);
    compute.record(*consumed);
  };
  step();
  compute.synchronize();
  const DeviceCounters counters = device->counters();
  const long before = test::allocations.load();
  for (int i = 0; i < 50; ++i) step();
  EXPECT_TRUE(reduced->wait_host(milliseconds{20'000}));
  compute.synchronize();
  EXPECT_EQ(test::allocations.load(), before);
  EXPECT_EQ(device->counters().allocations, counters.allocations);
  EXPECT_EQ(device->counters().pinned_allocations, counters.pinned_allocations);
  EXPECT_EQ(runs, 51);
}

TEST(SteadyState, TheCounterCounts) {
  const long before = test::allocations.load();
  const std::vector<int> some(10);
  EXPECT_GT(test::allocations.load(), before);
}

TEST(SteadyState, IdleAndBlockedWorkersUseNoProcessorTime) {
  const auto device = make_host_device();
  const auto transfer = device->create_stream(kTransfer), compute = device->create_stream(kCompute);
  const auto event = device->create_event();
  dynamic_cast<HostStream&>(*transfer).enqueue([] { std::this_thread::sleep_for(milliseconds{200}); });
  transfer->record(*event);
  compute->wait(*event);
  const auto cpu_seconds = [] {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  const double before = cpu_seconds();
  EXPECT_TRUE(event->wait_host(milliseconds{20'000}));
  compute->synchronize();
  EXPECT_LT(cpu_seconds() - before, 0.1);
}

}  // namespace
}  // namespace renai
