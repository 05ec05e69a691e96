// Memory and description of the host device.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "renai/base/error.hpp"
#include "renai/device/host.hpp"

namespace renai {
namespace {

TEST(HostMemory, IsAlignedAndZero) {
  const auto device = make_host_device();
  for (const std::int64_t size : {0, 1, 255, 4096, 3'000'001}) {
    for (const bool pinned : {false, true}) {
      const Buffer buffer = pinned ? device->allocate_pinned(size) : device->allocate(size);
      ASSERT_NE(buffer.data(), nullptr);
      EXPECT_EQ(buffer.size_bytes(), size);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, 0u);
      for (std::int64_t i = 0; i < size; ++i) ASSERT_EQ(buffer.data()[i], std::byte{0});
    }
  }
}

TEST(HostMemory, IsCounted) {
  const auto device = make_host_device();
  const Buffer a = device->allocate(1000);
  const Buffer b = device->allocate_pinned(24);
  const DeviceCounters counters = device->counters();
  EXPECT_EQ(counters.allocations, 1);
  EXPECT_EQ(counters.pinned_allocations, 1);
  EXPECT_EQ(counters.allocated_bytes, 1024);
}

TEST(HostMemory, TooMuchIsRefusedWithBothSizes) {
  const auto device = make_host_device();
  try {
    const Buffer buffer = device->allocate(std::int64_t{1} << 46);
    FAIL() << "64 TiB were granted";
  } catch (const ResourceError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("asked for"), std::string::npos) << text;
    EXPECT_NE(text.find("available"), std::string::npos) << text;
    EXPECT_NE(text.find("iB"), std::string::npos) << text;
  }
  EXPECT_EQ(device->counters().allocations, 0);
  EXPECT_THROW(device->allocate(-1), InternalError);
}

TEST(HostMemory, BuffersMove) {
  const auto device = make_host_device();
  Buffer a = device->allocate(16);
  std::byte* data = a.data();
  Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  b = device->allocate(32);
  EXPECT_EQ(b.size_bytes(), 32);
}

TEST(HostInfo, NamesTheMachine) {
  const DeviceInfo info = make_host_device()->info();
  EXPECT_EQ(info.kind, "cpu");
  EXPECT_FALSE(info.model.empty());
  EXPECT_EQ(info.model.find_first_of("\n\t"), std::string::npos);
  EXPECT_TRUE(info.uuid.empty());
#if defined(__x86_64__)
  EXPECT_TRUE(info.instruction_set == "avx512" || info.instruction_set == "avx2" || info.instruction_set == "sse");
#endif
}

}  // namespace
}  // namespace renai
