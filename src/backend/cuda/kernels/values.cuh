#pragma once
// Small pieces that the loss, input and RANGE kernels share: single elements, sums within a block, tables of tiles.

#include "renai/base/check.hpp"
#include "vectors.cuh"

namespace renai::cuda {

inline constexpr int kWarp = 32;

inline unsigned block_count(std::int64_t items, std::int64_t items_per_block) {
  const std::int64_t blocks = (items + items_per_block - 1) / items_per_block;
  RENAI_CHECK(blocks < (std::int64_t{1} << 31), "a launch has at most 2^31 - 1 blocks");
  return static_cast<unsigned>(blocks);
}

/// 16-byte accesses need 16-byte addresses; every slot of a plan has them.
inline void require_aligned(const void* data, const char* what) {
  RENAI_CHECK(reinterpret_cast<std::uintptr_t>(data) % 16 == 0, std::string(what) + " is 16-byte aligned");
}

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(__half value) { return __half2float(value); }
__device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

/// Rounds to nearest even.
template <typename T>
__device__ inline T from_float(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(value);
  } else {
    return __float2bfloat16_rn(value);
  }
}

/// Calls f(T{}) with the device type of `dtype`. Errors: BackendError for another than f32, f16 and bf16.
template <typename F>
void with_element_type(DType dtype, F&& f) {
  with_vectors(dtype, false, [&](auto element, auto) { f(element); });
}

/// The entry of a table by rising `first_tile` whose tiles hold `tile`.
template <typename Entry>
__device__ int last_at_or_before(const Entry* entries, int count, std::uint32_t tile) {
  int low = 0, high = count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (entries[middle].first_tile <= tile) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

struct Sum {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Largest {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// Combines the values of all kThreads threads of the block, and gives every thread the result. Determinism: one tree
/// over the threads. Each call needs shared memory of its own or a __syncthreads() between uses of `shared`.
template <int kThreads, typename T, typename Op>
__device__ T combine_block(T value, Op op, T* shared) {
  constexpr int kWarps = kThreads / kWarp;
  static_assert(kThreads % kWarp == 0 && kWarps <= kWarp && (kWarps & (kWarps - 1)) == 0);
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = op(value, __shfl_xor_sync(0xFFFFFFFFu, value, distance));
  }
  if constexpr (kWarps > 1) {
    if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
    __syncthreads();
    value = shared[threadIdx.x % kWarps];
#pragma unroll
    for (int distance = kWarps / 2; distance > 0; distance /= 2) {
      value = op(value, __shfl_xor_sync(0xFFFFFFFFu, value, distance));
    }
  }
  return value;
}

}  // namespace renai::cuda
