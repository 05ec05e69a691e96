#pragma once
// What tests of the cuda device leaf share: the skip without a GPU, streams, memory.

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "renai/device/cuda.hpp"
#include "spin.hpp"

namespace renai::testing {

constexpr int kTransfer = 0, kCompute = 1, kComm = 2, kUpdate = 3;

/// Skips where there is no GPU, saying why.
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (cuda_device_count_or_reason(&reason) == 0) GTEST_SKIP() << reason;
    device = make_cuda_device({.ordinal = 0, .while_waiting = [this](auto waited) {
                                 if (while_waiting) while_waiting(waited);
                               }});
    for (int i = 0; i < 4; ++i) streams.push_back(device->create_stream(i));
  }

  CudaStream& stream(int index) { return dynamic_cast<CudaStream&>(*streams[static_cast<std::size_t>(index)]); }
  void spin(int index, double us, int* counter = nullptr) { spin_then_count(stream(index).native(), us, counter); }
  void synchronize_all() {
    for (const auto& one : streams) one->synchronize();
  }
  /// `count` integers of device memory on the host. Effects: waits.
  std::vector<int> read(const int* from, std::size_t count) {
    std::vector<int> values(count, -1);
    stream(kTransfer).copy(reinterpret_cast<std::byte*>(values.data()), reinterpret_cast<const std::byte*>(from),
                           static_cast<std::int64_t>(count * sizeof(int)));
    stream(kTransfer).synchronize();
    return values;
  }

  std::function<void(std::chrono::milliseconds)> while_waiting;
  std::unique_ptr<Device> device;
  std::vector<std::unique_ptr<Stream>> streams;
};

inline int* ints(const Buffer& buffer) { return reinterpret_cast<int*>(buffer.data()); }
inline std::byte* bytes(int* at) { return reinterpret_cast<std::byte*>(at); }

}  // namespace renai::testing
