#pragma once
// What the pooling kernels share: a thread's pixel, the taps of a window, the windows of a pixel.

#include "pool.hpp"
#include "renai/base/check.hpp"
#include "vectors.cuh"

namespace renai::cuda {

inline constexpr int kPoolThreads = 256;

/// PoolShape in 32 bits, channels in vectors.
struct Pool {
  int n, h, w, vectors, out_h, out_w;
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  bool count_include_pad;
};

inline Pool make_pool(const PoolShape& s, int elems) {
  const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
  const WindowParams& p = s.params.window;
  return {narrow(s.n),     narrow(s.h),        narrow(s.w),          narrow(s.c / elems),  narrow(s.out_h),
          narrow(s.out_w), narrow(p.kernel_h), narrow(p.kernel_w),   narrow(p.stride_h),   narrow(p.stride_w),
          narrow(p.pad_h), narrow(p.pad_w),    narrow(p.dilation_h), narrow(p.dilation_w), s.params.count_include_pad};
}

/// Blocks for one thread a vector of [n, h, w, vectors].
inline unsigned pool_blocks(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t vectors) {
  const std::int64_t threads = n * h * w * vectors;
  RENAI_CHECK(threads > 0 && threads < (std::int64_t{1} << 31), "pooling kernels count vectors in 32 bits");
  return static_cast<unsigned>(ceil_div<std::int64_t>(threads, kPoolThreads));
}

/// A thread's vector of [n, h, w, vectors].
struct Pixel {
  int n, h, w, vector;
  bool inside;
};

__device__ inline Pixel pixel_of_thread(int n, int h, int w, int vectors) {
  const unsigned thread = blockIdx.x * kPoolThreads + threadIdx.x;
  const unsigned pixel = thread / static_cast<unsigned>(vectors), row = pixel / static_cast<unsigned>(w);
  Pixel at;
  at.vector = static_cast<int>(thread % static_cast<unsigned>(vectors));
  at.w = static_cast<int>(pixel % static_cast<unsigned>(w));
  at.h = static_cast<int>(row % static_cast<unsigned>(h));
  at.n = static_cast<int>(row / static_cast<unsigned>(h));
  at.inside = at.n < n;
  return at;
}

/// Index of a vector of the input, of the output.
__device__ inline std::int64_t input_index(const Pool& p, int n, int h, int w, int vector) {
  return ((std::int64_t{n} * p.h + h) * p.w + w) * p.vectors + vector;
}
__device__ inline std::int64_t output_index(const Pool& p, int n, int h, int w, int vector) {
  return ((std::int64_t{n} * p.out_h + h) * p.out_w + w) * p.vectors + vector;
}

/// Calls f(ih, iw, tap) for the taps of window (oh, ow) inside the input, in row order.
template <typename F>
__device__ inline void for_each_tap(const Pool& p, int oh, int ow, F&& f) {
  for (int r = 0; r < p.kernel_h; ++r) {
    const int ih = oh * p.stride_h - p.pad_h + r * p.dilation_h;
    if (ih < 0 || ih >= p.h) continue;
    for (int s = 0; s < p.kernel_w; ++s) {
      const int iw = ow * p.stride_w - p.pad_w + s * p.dilation_w;
      if (iw >= 0 && iw < p.w) f(ih, iw, r * p.kernel_w + s);
    }
  }
}

/// The first window that may reach padded position `at`: ceil((at - reach) / stride), not below 0.
__device__ inline int first_window(int at, int reach, int stride) {
  return at <= reach ? 0 : (at - reach + stride - 1) / stride;
}

/// Calls f(oh, ow, tap) for the windows that have input pixel (ih, iw) as a tap, in row order.
template <typename F>
__device__ inline void for_each_window(const Pool& p, int ih, int iw, F&& f) {
  const int y = ih + p.pad_h, x = iw + p.pad_w;
  const int last_h = min(y / p.stride_h, p.out_h - 1), last_w = min(x / p.stride_w, p.out_w - 1);
  for (int oh = first_window(y, (p.kernel_h - 1) * p.dilation_h, p.stride_h); oh <= last_h; ++oh) {
    const int r = y - oh * p.stride_h;
    if (r % p.dilation_h != 0) continue;
    for (int ow = first_window(x, (p.kernel_w - 1) * p.dilation_w, p.stride_w); ow <= last_w; ++ow) {
      const int s = x - ow * p.stride_w;
      if (s % p.dilation_w == 0) f(oh, ow, r / p.dilation_h * p.kernel_w + s / p.dilation_w);
    }
  }
}

/// The places of V neighbouring maxima, one byte each.
template <int V>
struct Places {
  using Raw = std::conditional_t<V == 8, uint2, std::conditional_t<V == 4, unsigned int, unsigned char>>;
  /// What no tap has.
  static constexpr unsigned kNowhere = 255;
  unsigned words[V == 8 ? 2 : 1];

  __device__ unsigned operator[](int i) const { return words[i / 4] >> 8 * (i % 4) & 0xffu; }

  static __device__ Places nowhere() {
    Places places;
    for (unsigned& word : places.words) word = 0xffffffffu;
    return places;
  }
  static __device__ Places load(const std::uint8_t* from, std::int64_t index) {
    const Raw raw = reinterpret_cast<const Raw*>(from)[index];
    if constexpr (V == 8) {
      return {{raw.x, raw.y}};
    } else {
      return {{raw}};
    }
  }
  __device__ void store(std::uint8_t* to, std::int64_t index) const {
    if constexpr (V == 8) {
      reinterpret_cast<Raw*>(to)[index] = uint2{words[0], words[1]};
    } else {
      reinterpret_cast<Raw*>(to)[index] = static_cast<Raw>(words[0]);
    }
  }
};

}  // namespace renai::cuda
