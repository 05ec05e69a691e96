#pragma once
// Vectors of elements: how kernels read and write f32, f16 and bf16 tensors in pieces of 16 bytes (or one element where
// 16 bytes do not fit) with arithmetic in f32; the choice of the piece; the check after a launch.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "../checked.hpp"
#include "renai/base/error.hpp"
#include "renai/tensor/dtype.hpp"

namespace renai::cuda {

/// Elements of a 16-byte vector.
template <typename T>
inline constexpr int kVectorElems = 16 / static_cast<int>(sizeof(T));

/// The largest number that rounds to zero as a T: half of the smallest subnormal, a tie that goes to even.
template <typename T>
inline constexpr float kRoundsToZero = std::is_same_v<T, __half>          ? 0x1p-25f
                                       : std::is_same_v<T, __nv_bfloat16> ? 0x1p-134f
                                                                          : 0.0f;

/// Two 16-bit floats of a word as f32; the first element is the lower half.
template <typename T>
__device__ inline float2 widen(std::uint32_t word) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
  } else {
    const __half2_raw raw{static_cast<unsigned short>(word & 0xffffu), static_cast<unsigned short>(word >> 16)};
    return __half22float2(__half2(raw));
  }
}

/// Rounds to nearest even.
template <typename T>
__device__ inline std::uint32_t narrow(float low, float high) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const __nv_bfloat162_raw raw = __floats2bfloat162_rn(low, high);
    return raw.x | std::uint32_t{raw.y} << 16;
  } else {
    const __half2_raw raw = __floats2half2_rn(low, high);
    return raw.x | std::uint32_t{raw.y} << 16;
  }
}

/// V adjacent elements as they lie in memory. V = 1 or kVectorElems<T>.
template <typename T, int V>
struct Vector {
  static_assert(V == 1 || V == kVectorElems<T>);
  static constexpr bool kNarrow = sizeof(T) == 2;
  using Raw = std::conditional_t<(V > 1), uint4, std::conditional_t<kNarrow, unsigned short, unsigned int>>;
  Raw raw;

  /// Vector `index` of the tensor at `from`.
  static __device__ Vector load(const void* from, std::int64_t index) { return {static_cast<const Raw*>(from)[index]}; }
  /// The same for values that nobody reads again soon: they leave the cache first.
  static __device__ Vector load_last(const void* from, std::int64_t index) {
    return {__ldcs(static_cast<const Raw*>(from) + index)};
  }
  __device__ void store(void* to, std::int64_t index) const { static_cast<Raw*>(to)[index] = raw; }

  static __device__ Vector zero() {
    if constexpr (V > 1) {
      return {uint4{0, 0, 0, 0}};
    } else {
      return {0};
    }
  }

  __device__ void widen_to(float (&out)[V]) const {
    if constexpr (V == 1) {
      if constexpr (kNarrow) {
        out[0] = widen<T>(raw).x;
      } else {
        out[0] = __uint_as_float(raw);
      }
    } else {
      const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if constexpr (kNarrow) {
          const float2 pair = widen<T>(words[i]);
          out[2 * i] = pair.x;
          out[2 * i + 1] = pair.y;
        } else {
          out[i] = __uint_as_float(words[i]);
        }
      }
    }
  }

  static __device__ Vector narrow_from(const float (&values)[V]) {
    if constexpr (V == 1) {
      if constexpr (kNarrow) {
        return {static_cast<unsigned short>(narrow<T>(values[0], 0.0f))};
      } else {
        return {__float_as_uint(values[0])};
      }
    } else {
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if constexpr (kNarrow) {
          words[i] = narrow<T>(values[2 * i], values[2 * i + 1]);
        } else {
          words[i] = __float_as_uint(values[i]);
        }
      }
      return {uint4{words[0], words[1], words[2], words[3]}};
    }
  }
};

/// V adjacent f32 parameters (a scale, a bias ...) from element `first` on; `from` 16-byte aligned for V > 1.
template <int V>
__device__ inline void load_floats(const float* from, std::int64_t first, float (&out)[V]) {
  if constexpr (V == 1) {
    out[0] = from[first];
  } else {
#pragma unroll
    for (int i = 0; i < V; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + first + i);
      out[i] = four.x;
      out[i + 1] = four.y;
      out[i + 2] = four.z;
      out[i + 3] = four.w;
    }
  }
}

template <int V>
__device__ inline void store_floats(float* to, std::int64_t first, const float (&values)[V]) {
  if constexpr (V == 1) {
    to[first] = values[0];
  } else {
#pragma unroll
    for (int i = 0; i < V; i += 4) {
      *reinterpret_cast<float4*>(to + first + i) = float4{values[i], values[i + 1], values[i + 2], values[i + 3]};
    }
  }
}

/// True when 16-byte accesses may be used on all of them (null counts as aligned).
inline bool vector_aligned(std::initializer_list<const void*> pointers) {
  std::uintptr_t bits = 0;
  for (const void* pointer : pointers) bits |= reinterpret_cast<std::uintptr_t>(pointer);
  return bits % 16 == 0;
}

/// Calls f(T{}, vector length as an integral_constant) for the element type; `vectors`: 16-byte pieces may be used.
/// Errors: BackendError for a type without such kernels.
template <typename F>
void with_vectors(DType dtype, bool vectors, F&& f) {
  const auto call = [&](auto element) {
    using T = decltype(element);
    if (vectors) {
      f(element, std::integral_constant<int, kVectorElems<T>>{});
    } else {
      f(element, std::integral_constant<int, 1>{});
    }
  };
  switch (dtype) {
    case DType::f32: return call(float{});
    case DType::f16: return call(__half{});
    case DType::bf16: return call(__nv_bfloat16{});
    default:
      throw BackendError("a CUDA kernel cannot work on " + std::string(dtype_name(dtype)),
                         "its element types are float32, float16 and bfloat16", "please report this");
  }
}

/// Call after every launch. Errors: BackendError when the launch was refused.
inline void check_launch(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) {
    throw BackendError(std::string("the CUDA kernel ") + kernel + " could not be launched", cudaGetErrorString(error),
                       kGpuRemedy);
  }
}

template <typename Int>
constexpr Int ceil_div(Int a, Int b) {
  return (a + b - 1) / b;
}

}  // namespace renai::cuda
