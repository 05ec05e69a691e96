// A failure of work on one stream reaches everybody who waits for it, and nobody hangs.
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "renai/base/error.hpp"
#include "renai/device/host.hpp"

namespace renai {
namespace {

using std::chrono::milliseconds;

constexpr int kTransfer = 0, kCompute = 1, kComm = 2, kUpdate = 3;
constexpr milliseconds kLong{20'000};

[[noreturn]] void fail() { throw BackendError("kernel failed", "on purpose"); }

class Failures : public ::testing::Test {
 protected:
  HostStream& stream(int index) { return dynamic_cast<HostStream&>(*streams[static_cast<std::size_t>(index)]); }
  /// Fails a stream and waits until it has.
  void poison(int index) {
    stream(index).enqueue([] { fail(); });
    EXPECT_THROW(stream(index).synchronize(), BackendError);
  }

  std::unique_ptr<Device> device = make_host_device();
  std::vector<std::unique_ptr<Stream>> streams = [this] {
    std::vector<std::unique_ptr<Stream>> made;
    for (int i = 0; i < 4; ++i) made.push_back(device->create_stream(i));
    return made;
  }();
};

TEST_F(Failures, SynchronizeAndEveryLaterCallRethrow) {
  bool ran = false;
  stream(kCompute).enqueue([] { fail(); });
  try {
    stream(kCompute).enqueue([&] { ran = true; });
  } catch (const BackendError&) {  // The worker may be faster than this thread.
  }
  EXPECT_THROW(stream(kCompute).synchronize(), BackendError);
  EXPECT_FALSE(ran);
  const auto event = device->create_event();
  std::byte byte{};
  EXPECT_THROW(stream(kCompute).enqueue([] {}), BackendError);
  EXPECT_THROW(stream(kCompute).record(*event), BackendError);
  EXPECT_THROW(stream(kCompute).wait(*event), BackendError);
  EXPECT_THROW(stream(kCompute).copy(&byte, &byte, 1), BackendError);
  EXPECT_THROW(stream(kCompute).zero(&byte, 1), BackendError);
  EXPECT_THROW(stream(kCompute).begin_capture(), BackendError);
  EXPECT_THROW(stream(kCompute).synchronize(), BackendError);
}

TEST_F(Failures, LaterEventsFailAndEarlierOnesDoNot) {
  const auto before = device->create_event(), after = device->create_event();
  std::atomic<bool> go{false};
  stream(kCompute).record(*before);
  stream(kCompute).enqueue([&] {
    while (!go) std::this_thread::sleep_for(milliseconds{1});
    fail();
  });
  stream(kCompute).record(*after);
  EXPECT_TRUE(before->wait_host(kLong));
  EXPECT_FALSE(after->wait_host(milliseconds{1}));
  go = true;
  EXPECT_THROW(static_cast<void>(after->wait_host(kLong)), BackendError);
  EXPECT_THROW(static_cast<void>(after->ready()), BackendError);
  EXPECT_TRUE(before->ready());
}

TEST_F(Failures, StreamsThatWaitForItFailToo) {
  const auto first = device->create_event(), second = device->create_event();
  std::atomic<bool> go{false}, ran{false};
  stream(kTransfer).enqueue([&] {
    while (!go) std::this_thread::sleep_for(milliseconds{1});
    fail();
  });
  stream(kTransfer).record(*first);
  stream(kCompute).wait(*first);
  stream(kCompute).enqueue([&] { ran = true; });
  stream(kCompute).record(*second);
  stream(kComm).wait(*second);
  stream(kComm).enqueue([&] { ran = true; });
  go = true;
  EXPECT_THROW(stream(kComm).synchronize(), BackendError);
  EXPECT_THROW(stream(kCompute).synchronize(), BackendError);
  EXPECT_FALSE(ran);
}

TEST_F(Failures, AWaitForAnEventThatHasFailedAlreadyFails) {
  const auto event = device->create_event();
  std::atomic<bool> go{false};
  stream(kTransfer).enqueue([&] {
    while (!go) std::this_thread::sleep_for(milliseconds{1});
    fail();
  });
  stream(kTransfer).record(*event);
  go = true;
  EXPECT_THROW(static_cast<void>(event->wait_host(kLong)), BackendError);
  stream(kComm).wait(*event);
  EXPECT_THROW(stream(kComm).synchronize(), BackendError);
}

TEST_F(Failures, StreamsThatDoNotWaitGoOnEvenOnTheSameWorker) {
  poison(kCompute);
  std::atomic<bool> ran{false};
  stream(kUpdate).enqueue([&] { ran = true; });
  stream(kUpdate).synchronize();
  EXPECT_TRUE(ran);
}

TEST_F(Failures, AGraphThatFailsReleasesItsExternalEventsAsFailed) {
  const auto before = device->create_event(), after = device->create_event();
  bool rest = false;
  HostStream& compute = stream(kCompute);
  compute.begin_capture();
  compute.record(*before);
  compute.enqueue([] { fail(); });
  compute.record(*after);
  compute.enqueue([&] { rest = true; });
  const auto graph = compute.end_capture();
  compute.launch(*graph);
  stream(kComm).wait(*after);
  EXPECT_THROW(stream(kComm).synchronize(), BackendError);
  EXPECT_TRUE(before->ready());
  EXPECT_THROW(static_cast<void>(after->ready()), BackendError);
  EXPECT_THROW(compute.synchronize(), BackendError);
  EXPECT_FALSE(rest);
}

TEST_F(Failures, AnyExceptionTypeArrivesAsItWasThrown) {
  stream(kComm).enqueue([] { throw std::out_of_range("index 9"); });
  try {
    stream(kComm).synchronize();
    FAIL() << "nothing was thrown";
  } catch (const std::out_of_range& error) {
    EXPECT_STREQ(error.what(), "index 9");
  }
}

TEST_F(Failures, AnEventRecordedAgainOnAHealthyStreamIsWellAgain) {
  const auto event = device->create_event();
  std::atomic<bool> go{false};
  stream(kTransfer).enqueue([&] {
    while (!go) std::this_thread::sleep_for(milliseconds{1});
    fail();
  });
  stream(kTransfer).record(*event);
  go = true;
  EXPECT_THROW(static_cast<void>(event->wait_host(kLong)), BackendError);
  stream(kComm).record(*event);
  EXPECT_TRUE(event->wait_host(kLong));
}

}  // namespace
}  // namespace renai
