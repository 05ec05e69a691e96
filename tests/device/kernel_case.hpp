#pragma once
// What tests of single CUDA kernels stand on: device memory that is poisoned and fenced, and the skip without a GPU.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "renai/tensor/dtype.hpp"

namespace renai::testing {

inline void require_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

/// Skips where there is no GPU, saying why.
class KernelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) GTEST_SKIP() << "no GPU: " << cudaGetErrorString(error);
    if (count == 0) GTEST_SKIP() << "no GPU: the driver lists none";
  }
  static void synchronize() { require_cuda(cudaDeviceSynchronize(), "running a kernel"); }
};

/// `count` values in device memory between fences; all bytes start as 0xFF.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    void* memory = nullptr;
    require_cuda(cudaMalloc(&memory, bytes() + 2 * kFence), "allocating device memory");
    memory_ = static_cast<std::byte*>(memory);
    require_cuda(cudaMemset(memory_, 0xA5, bytes() + 2 * kFence), "filling device memory");
    poison();
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) { set(values); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(memory_); }

  T* data() { return reinterpret_cast<T*>(memory_ + kFence); }
  std::size_t size() const { return count_; }
  void poison() { require_cuda(cudaMemset(data(), 0xFF, bytes()), "poisoning device memory"); }
  void set(const std::vector<T>& values) {
    if (values.size() != count_) throw std::logic_error("a device array is set as a whole");
    require_cuda(cudaMemcpy(data(), values.data(), bytes(), cudaMemcpyHostToDevice), "copying to the device");
  }
  std::vector<T> get() const {
    std::vector<T> values(count_);
    require_cuda(cudaMemcpy(values.data(), memory_ + kFence, bytes(), cudaMemcpyDeviceToHost), "copying to the host");
    return values;
  }
  bool fences_hold() const {
    std::vector<std::uint8_t> all(bytes() + 2 * kFence);
    require_cuda(cudaMemcpy(all.data(), memory_, all.size(), cudaMemcpyDeviceToHost), "copying to the host");
    const auto intact = [](std::uint8_t value) { return value == 0xA5; };
    return std::all_of(all.begin(), all.begin() + kFence, intact) && std::all_of(all.end() - kFence, all.end(), intact);
  }

 private:
  static constexpr std::ptrdiff_t kFence = 256;
  std::size_t bytes() const { return count_ * sizeof(T); }
  std::size_t count_;
  std::byte* memory_ = nullptr;
};

/// Equal bytes: values that are not numbers count, too.
template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Rounds to the element type, as bytes and back.
inline std::vector<std::byte> encode(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(dtype_bytes(dtype)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::f32) {
      std::memcpy(bytes.data() + 4 * i, &values[i], 4);
    } else if (dtype == DType::f16) {
      const __half half = __float2half_rn(values[i]);
      std::memcpy(bytes.data() + 2 * i, &half, 2);
    } else {
      const __nv_bfloat16 half = __float2bfloat16_rn(values[i]);
      std::memcpy(bytes.data() + 2 * i, &half, 2);
    }
  }
  return bytes;
}

inline std::vector<float> decode(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<float> values(bytes.size() / static_cast<std::size_t>(dtype_bytes(dtype)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::f32) {
      std::memcpy(&values[i], bytes.data() + 4 * i, 4);
    } else if (dtype == DType::f16) {
      __half half;
      std::memcpy(&half, bytes.data() + 2 * i, 2);
      values[i] = __half2float(half);
    } else {
      __nv_bfloat16 half;
      std::memcpy(&half, bytes.data() + 2 * i, 2);
      values[i] = __bfloat162float(half);
    }
  }
  return values;
}

/// Largest relative error of one rounding to the type, and the absolute one below its normal numbers.
inline double unit_of(DType dtype) { return dtype == DType::f32 ? 0x1p-24 : dtype == DType::f16 ? 0x1p-11 : 0x1p-8; }
inline double tiny_of(DType dtype) { return dtype == DType::f16 ? 0x1p-25 : 0.0; }

inline std::vector<float> random_floats(std::mt19937& random, std::size_t count, float low = -1, float high = 1) {
  std::uniform_real_distribution<float> uniform(low, high);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random);
  return values;
}

}  // namespace renai::testing
