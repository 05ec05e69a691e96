// max_pool and its gradient, which reads the places of the maxima instead of the input.

#include <limits>

#include "pool.cuh"

namespace renai::cuda {
namespace {

/// Any window. Not-a-number wins and stays, so that a broken step is seen.
template <typename T, int V>
__global__ void __launch_bounds__(kPoolThreads) max_pool(Pool p, const void* x, void* y, std::uint8_t* places) {
  const Pixel at = pixel_of_thread(p.n, p.out_h, p.out_w, p.vectors);
  if (!at.inside) return;
  float best[V] = {};
  unsigned place[V] = {};
  bool first = true;
  for_each_tap(p, at.h, at.w, [&](int ih, int iw, int tap) {
    float candidate[V];
    Vector<T, V>::load(x, input_index(p, at.n, ih, iw, at.vector)).widen_to(candidate);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const bool wins = candidate[j] > best[j] || (candidate[j] != candidate[j] && best[j] == best[j]);
      if (!first && !wins) continue;
      best[j] = candidate[j];
      place[j] = static_cast<unsigned>(tap);
    }
    first = false;
  });
  const std::int64_t index = output_index(p, at.n, at.h, at.w, at.vector);
  Vector<T, V>::narrow_from(best).store(y, index);
  if (places == nullptr) return;
  Places<V> packed{};
#pragma unroll
  for (int j = 0; j < V; ++j) packed.words[j / 4] |= place[j] << 8 * (j % 4);
  packed.store(places, index);
}

/// A pair of 16-bit floats of a word.
template <typename T>
__device__ inline auto pair_of(std::uint32_t word) {
  const auto low = static_cast<unsigned short>(word & 0xffffu), high = static_cast<unsigned short>(word >> 16);
  if constexpr (std::is_same_v<T, __half>) {
    return __half2(__half2_raw{low, high});
  } else {
    return __nv_bfloat162(__nv_bfloat162_raw{low, high});
  }
}

/// The larger of both halves; not-a-number wins.
template <typename T>
__device__ inline std::uint32_t larger_halves(std::uint32_t a, std::uint32_t b) {
  const auto larger = __hmax2_nan(pair_of<T>(a), pair_of<T>(b));
  if constexpr (std::is_same_v<T, __half>) {
    const __half2_raw raw = larger;
    return raw.x | std::uint32_t{raw.y} << 16;
  } else {
    const __nv_bfloat162_raw raw = larger;
    return raw.x | std::uint32_t{raw.y} << 16;
  }
}

/// All bits of the halves that are equal; not-a-number equals nothing.
template <typename T>
__device__ inline std::uint32_t equal_halves(std::uint32_t a, std::uint32_t b) {
  return __heq2_mask(pair_of<T>(a), pair_of<T>(b));
}

/// K x K windows, 16-bit elements, two at a time: first the maxima, then the first tap that equals its maximum.
template <typename T, int K>
__global__ void __launch_bounds__(kPoolThreads) max_pool_pairs(Pool p, const void* x, void* y, std::uint8_t* places) {
  constexpr std::uint32_t kLowest = std::is_same_v<T, __half> ? 0xfc00fc00u : 0xff80ff80u;  // -infinity
  const Pixel at = pixel_of_thread(p.n, p.out_h, p.out_w, p.vectors);
  if (!at.inside) return;
  uint4 taps[K * K];
  bool inside[K * K];
#pragma unroll
  for (int tap = 0; tap < K * K; ++tap) {
    const int ih = at.h * p.stride_h - p.pad_h + tap / K, iw = at.w * p.stride_w - p.pad_w + tap % K;
    inside[tap] = ih >= 0 && ih < p.h && iw >= 0 && iw < p.w;
    taps[tap] = uint4{kLowest, kLowest, kLowest, kLowest};
    if (inside[tap]) taps[tap] = Vector<T, 8>::load(x, input_index(p, at.n, ih, iw, at.vector)).raw;
  }
  std::uint32_t best[4], place[4] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto word = [&](int tap) {
      return i == 0 ? taps[tap].x : i == 1 ? taps[tap].y : i == 2 ? taps[tap].z : taps[tap].w;
    };
    best[i] = word(0);
#pragma unroll
    for (int tap = 1; tap < K * K; ++tap) best[i] = larger_halves<T>(best[i], word(tap));
    const std::uint32_t broken = ~equal_halves<T>(best[i], best[i]);
#pragma unroll
    for (int tap = K * K - 1; tap >= 0; --tap) {
      std::uint32_t here = equal_halves<T>(word(tap), best[i]);
      if (broken != 0) here |= ~equal_halves<T>(word(tap), word(tap)) & broken;
      if (inside[tap]) place[i] = (place[i] & ~here) | (static_cast<std::uint32_t>(tap) * 0x10001u & here);
    }
  }
  const std::int64_t index = output_index(p, at.n, at.h, at.w, at.vector);
  Vector<T, 8>{uint4{best[0], best[1], best[2], best[3]}}.store(y, index);
  if (places == nullptr) return;
  Places<8>{{__byte_perm(place[0], place[1], 0x6420), __byte_perm(place[2], place[3], 0x6420)}}.store(places, index);
}

/// Any window: a thread adds the windows of its input pixel.
template <typename T, int V>
__global__ void __launch_bounds__(kPoolThreads)
    max_pool_grad(Pool p, const std::uint8_t* places, const void* dy, void* dx) {
  const Pixel at = pixel_of_thread(p.n, p.h, p.w, p.vectors);
  if (!at.inside) return;
  float sums[V] = {};
  for_each_window(p, at.h, at.w, [&](int oh, int ow, int tap) {
    const std::int64_t index = output_index(p, at.n, oh, ow, at.vector);
    const Places<V> place = Places<V>::load(places, index);
    float values[V];
    Vector<T, V>::load(dy, index).widen_to(values);
#pragma unroll
    for (int j = 0; j < V; ++j) sums[j] += place[j] == static_cast<unsigned>(tap) ? values[j] : 0.0f;
  });
  Vector<T, V>::narrow_from(sums).store(dx, input_index(p, at.n, at.h, at.w, at.vector));
}

/// Tap of input row (or column) 2 * a + side in window a + step of K taps; outside [0, K): not one of its taps.
__host__ __device__ constexpr int quad_tap(int pad, int side, int step) { return side + pad - 2 * step; }
__host__ __device__ constexpr bool quad_has(int k, int pad, int side, int step) {
  return quad_tap(pad, side, step) >= 0 && quad_tap(pad, side, step) < k;
}

/// K x K windows of stride 2 and one padding: a thread takes 2 x 2 input pixels, which share their windows.
template <typename T, int V, int K, int pad>
__global__ void __launch_bounds__(kPoolThreads)
    max_pool_grad_quads(Pool p, const std::uint8_t* places, const void* dy, void* dx) {
  const Pixel at = pixel_of_thread(p.n, (p.h + 1) / 2, (p.w + 1) / 2, p.vectors);
  if (!at.inside) return;
  Places<V> place[9];
  Vector<T, V> value[9];
#pragma unroll
  for (int i = 0; i < 9; ++i) {
    const int step_h = i / 3 - 1, step_w = i % 3 - 1, oh = at.h + step_h, ow = at.w + step_w;
    place[i] = Places<V>::nowhere();
    value[i] = Vector<T, V>::zero();
    const bool used = (quad_has(K, pad, 0, step_h) || quad_has(K, pad, 1, step_h)) &&
                      (quad_has(K, pad, 0, step_w) || quad_has(K, pad, 1, step_w));
    if (!used || oh < 0 || oh >= p.out_h || ow < 0 || ow >= p.out_w) continue;
    const std::int64_t index = output_index(p, at.n, oh, ow, at.vector);
    place[i] = Places<V>::load(places, index);
    value[i] = Vector<T, V>::load(dy, index);
  }
#pragma unroll
  for (int quarter = 0; quarter < 4; ++quarter) {
    const int side_h = quarter / 2, side_w = quarter % 2, ih = 2 * at.h + side_h, iw = 2 * at.w + side_w;
    float sums[V] = {};
#pragma unroll
    for (int i = 0; i < 9; ++i) {
      const int step_h = i / 3 - 1, step_w = i % 3 - 1;
      if (!quad_has(K, pad, side_h, step_h) || !quad_has(K, pad, side_w, step_w)) continue;
      const int tap = quad_tap(pad, side_h, step_h) * K + quad_tap(pad, side_w, step_w);
      float values[V];
      value[i].widen_to(values);
#pragma unroll
      for (int j = 0; j < V; ++j) sums[j] += place[i][j] == static_cast<unsigned>(tap) ? values[j] : 0.0f;
    }
    if (ih < p.h && iw < p.w) {
      Vector<T, V>::narrow_from(sums).store(dx, input_index(p, at.n, ih, iw, at.vector));
    }
  }
}

/// A square window of stride 2 and dilation 1 with equal padding on both axes: its size, else 0.
int square_window(const WindowParams& w) {
  const bool square = w.kernel_h == w.kernel_w && w.pad_h == w.pad_w;
  return square && w.stride_h == 2 && w.stride_w == 2 && w.dilation_h == 1 && w.dilation_w == 1
             ? static_cast<int>(w.kernel_h)
             : 0;
}

/// Every window has a tap inside the input.
bool windows_inside(const PoolShape& s) {
  const WindowParams& w = s.params.window;
  return w.pad_h < w.kernel_h && w.pad_w < w.kernel_w && (s.out_h - 1) * w.stride_h - w.pad_h < s.h &&
         (s.out_w - 1) * w.stride_w - w.pad_w < s.w;
}

template <typename T, int V>
void launch_quads(const PoolShape& s, const std::uint8_t* places, const void* dy, void* dx, cudaStream_t stream) {
  const Pool p = make_pool(s, V);
  const unsigned blocks = pool_blocks(s.n, s.h, s.w, p.vectors);
  const unsigned quads = pool_blocks(s.n, (s.h + 1) / 2, (s.w + 1) / 2, p.vectors);
  const int square = square_window(s.params.window);
  if (square == 3 && p.pad_h == 1) {
    max_pool_grad_quads<T, V, 3, 1><<<quads, kPoolThreads, 0, stream>>>(p, places, dy, dx);
  } else if (square == 3 && p.pad_h == 0) {
    max_pool_grad_quads<T, V, 3, 0><<<quads, kPoolThreads, 0, stream>>>(p, places, dy, dx);
  } else if (square == 2 && p.pad_h == 0) {
    max_pool_grad_quads<T, V, 2, 0><<<quads, kPoolThreads, 0, stream>>>(p, places, dy, dx);
  } else {
    max_pool_grad<T, V><<<blocks, kPoolThreads, 0, stream>>>(p, places, dy, dx);
  }
}

bool divides(const PoolShape& s) { return s.c % (s.dtype == DType::f32 ? 4 : 8) == 0; }

}  // namespace

std::int64_t max_pool_places_bytes(const PoolShape& s) { return s.n * s.out_h * s.out_w * s.c; }

void launch_max_pool(const PoolShape& s, const void* x, void* y, std::uint8_t* places, cudaStream_t stream) {
  RENAI_CHECK(s.params.window.kernel_h * s.params.window.kernel_w <= 255, "a place is a byte");
  with_vectors(s.dtype, divides(s) && vector_aligned({x, y, places}), [&](auto element, auto length) {
    using T = decltype(element);
    constexpr int V = decltype(length)::value;
    const Pool p = make_pool(s, V);
    const unsigned blocks = pool_blocks(s.n, s.out_h, s.out_w, p.vectors);
    if constexpr (V == 8) {
      const int square = windows_inside(s) ? square_window(s.params.window) : 0;
      if (square == 3) return max_pool_pairs<T, 3><<<blocks, kPoolThreads, 0, stream>>>(p, x, y, places);
      if (square == 2) return max_pool_pairs<T, 2><<<blocks, kPoolThreads, 0, stream>>>(p, x, y, places);
    }
    max_pool<T, V><<<blocks, kPoolThreads, 0, stream>>>(p, x, y, places);
  });
  check_launch("max_pool");
}

void launch_max_pool_grad(const PoolShape& s, const std::uint8_t* places, const void* dy, void* dx,
                          cudaStream_t stream) {
  with_vectors(s.dtype, divides(s) && vector_aligned({places, dy, dx}), [&](auto element, auto length) {
    launch_quads<decltype(element), decltype(length)::value>(s, places, dy, dx, stream);
  });
  check_launch("max_pool_grad");
}

}  // namespace renai::cuda
