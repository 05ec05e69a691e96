// avg_pool, global_avg_pool, adaptive_avg_pool and their gradients.

#include "pool.cuh"

namespace renai::cuda {
namespace {

/// One over what an average divides by. With count_include_pad the window's cells in input and padding; in ceil mode
/// what hangs over the padded input does not count.
__device__ inline float share(const Pool& p, int oh, int ow) {
  int start_h = oh * p.stride_h - p.pad_h, start_w = ow * p.stride_w - p.pad_w;
  int end_h = min(start_h + p.kernel_h, p.h + p.pad_h), end_w = min(start_w + p.kernel_w, p.w + p.pad_w);
  if (!p.count_include_pad) {
    start_h = max(start_h, 0);
    start_w = max(start_w, 0);
    end_h = min(end_h, p.h);
    end_w = min(end_w, p.w);
  }
  return 1.0f / static_cast<float>((end_h - start_h) * (end_w - start_w));
}

template <typename T, int V>
__global__ void __launch_bounds__(kPoolThreads) avg_pool(Pool p, const void* x, void* y) {
  const Pixel at = pixel_of_thread(p.n, p.out_h, p.out_w, p.vectors);
  if (!at.inside) return;
  float sums[V] = {};
  for_each_tap(p, at.h, at.w, [&](int ih, int iw, int) {
    float values[V];
    Vector<T, V>::load(x, input_index(p, at.n, ih, iw, at.vector)).widen_to(values);
#pragma unroll
    for (int j = 0; j < V; ++j) sums[j] += values[j];
  });
  const float scale = share(p, at.h, at.w);
#pragma unroll
  for (int j = 0; j < V; ++j) sums[j] *= scale;
  Vector<T, V>::narrow_from(sums).store(y, output_index(p, at.n, at.h, at.w, at.vector));
}

template <typename T, int V>
__global__ void __launch_bounds__(kPoolThreads) avg_pool_grad(Pool p, const void* dy, void* dx) {
  const Pixel at = pixel_of_thread(p.n, p.h, p.w, p.vectors);
  if (!at.inside) return;
  float sums[V] = {};
  for_each_window(p, at.h, at.w, [&](int oh, int ow, int) {
    const float scale = share(p, oh, ow);
    float values[V];
    Vector<T, V>::load(dy, output_index(p, at.n, oh, ow, at.vector)).widen_to(values);
#pragma unroll
    for (int j = 0; j < V; ++j) sums[j] += values[j] * scale;
  });
  Vector<T, V>::narrow_from(sums).store(dx, input_index(p, at.n, at.h, at.w, at.vector));
}

/// A thread takes one vector of channels of one sample: eight positions at a time, added as a tree.
template <typename T, int V>
__global__ void __launch_bounds__(kPoolThreads) global_avg_pool(Pool p, const void* x, void* y) {
  constexpr int kUnroll = 8;
  const Pixel at = pixel_of_thread(p.n, 1, 1, p.vectors);
  if (!at.inside) return;
  const int positions = p.h * p.w;
  const std::int64_t first = std::int64_t{at.n} * positions * p.vectors + at.vector;
  float sums[V] = {};
  for (int i = 0; i < positions; i += kUnroll) {
    Vector<T, V> loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      loaded[u] = Vector<T, V>::zero();
      if (i + u < positions) loaded[u] = Vector<T, V>::load(x, first + std::int64_t{i + u} * p.vectors);
    }
    float values[kUnroll][V];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) loaded[u].widen_to(values[u]);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const float low = (values[0][j] + values[1][j]) + (values[2][j] + values[3][j]);
      const float high = (values[4][j] + values[5][j]) + (values[6][j] + values[7][j]);
      sums[j] += low + high;
    }
  }
  const float scale = 1.0f / static_cast<float>(positions);
#pragma unroll
  for (int j = 0; j < V; ++j) sums[j] *= scale;
  Vector<T, V>::narrow_from(sums).store(y, std::int64_t{at.n} * p.vectors + at.vector);
}

template <typename T, int V>
__global__ void __launch_bounds__(kPoolThreads) global_avg_pool_grad(Pool p, const void* dy, void* dx) {
  const Pixel at = pixel_of_thread(p.n, p.h, p.w, p.vectors);
  if (!at.inside) return;
  const float scale = 1.0f / static_cast<float>(p.h * p.w);
  float values[V];
  Vector<T, V>::load(dy, std::int64_t{at.n} * p.vectors + at.vector).widen_to(values);
#pragma unroll
  for (int j = 0; j < V; ++j) values[j] *= scale;
  Vector<T, V>::narrow_from(values).store(dx, input_index(p, at.n, at.h, at.w, at.vector));
}

/// adaptive_bin in 32 bits: no extent is above 16384.
struct Bin {
  int begin, end;
  __device__ Bin(int i, int from, int to) : begin(i * from / to), end(((i + 1) * from + to - 1) / to) {}
};

__device__ inline float adaptive_share(const Pool& p, int i, int j) {
  const Bin rows(i, p.h, p.out_h), columns(j, p.w, p.out_w);
  return 1.0f / static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
}

template <typename T, int V>
__global__ void __launch_bounds__(kPoolThreads) adaptive_avg_pool(Pool p, const void* x, void* y) {
  const Pixel at = pixel_of_thread(p.n, p.out_h, p.out_w, p.vectors);
  if (!at.inside) return;
  const Bin rows(at.h, p.h, p.out_h), columns(at.w, p.w, p.out_w);
  float sums[V] = {};
  for (int r = rows.begin; r < rows.end; ++r) {
    for (int s = columns.begin; s < columns.end; ++s) {
      float values[V];
      Vector<T, V>::load(x, input_index(p, at.n, r, s, at.vector)).widen_to(values);
#pragma unroll
      for (int j = 0; j < V; ++j) sums[j] += values[j];
    }
  }
  const float scale = adaptive_share(p, at.h, at.w);
#pragma unroll
  for (int j = 0; j < V; ++j) sums[j] *= scale;
  Vector<T, V>::narrow_from(sums).store(y, output_index(p, at.n, at.h, at.w, at.vector));
}

template <typename T, int V>
__global__ void __launch_bounds__(kPoolThreads) adaptive_avg_pool_grad(Pool p, const void* dy, void* dx) {
  const Pixel at = pixel_of_thread(p.n, p.h, p.w, p.vectors);
  if (!at.inside) return;
  const Bin above(at.h, p.out_h, p.h), beside(at.w, p.out_w, p.w);
  float sums[V] = {};
  for (int r = above.begin; r < above.end; ++r) {
    for (int s = beside.begin; s < beside.end; ++s) {
      const float scale = adaptive_share(p, r, s);
      float values[V];
      Vector<T, V>::load(dy, output_index(p, at.n, r, s, at.vector)).widen_to(values);
#pragma unroll
      for (int j = 0; j < V; ++j) sums[j] += values[j] * scale;
    }
  }
  Vector<T, V>::narrow_from(sums).store(dx, input_index(p, at.n, at.h, at.w, at.vector));
}

/// Calls f(T{}, vector length, Pool).
template <typename F>
void with_pool(const PoolShape& s, const void* from, const void* to, F&& f) {
  const bool divides = s.c % (s.dtype == DType::f32 ? 4 : 8) == 0;
  with_vectors(s.dtype, divides && vector_aligned({from, to}),
               [&](auto element, auto length) { f(element, length, make_pool(s, decltype(length)::value)); });
}

}  // namespace

void launch_avg_pool(const PoolShape& s, const void* x, void* y, cudaStream_t stream) {
  with_pool(s, x, y, [&](auto element, auto length, const Pool& p) {
    const unsigned blocks = pool_blocks(s.n, s.out_h, s.out_w, p.vectors);
    avg_pool<decltype(element), decltype(length)::value><<<blocks, kPoolThreads, 0, stream>>>(p, x, y);
  });
  check_launch("avg_pool");
}

void launch_avg_pool_grad(const PoolShape& s, const void* dy, void* dx, cudaStream_t stream) {
  with_pool(s, dy, dx, [&](auto element, auto length, const Pool& p) {
    const unsigned blocks = pool_blocks(s.n, s.h, s.w, p.vectors);
    avg_pool_grad<decltype(element), decltype(length)::value><<<blocks, kPoolThreads, 0, stream>>>(p, dy, dx);
  });
  check_launch("avg_pool_grad");
}

void launch_global_avg_pool(const PoolShape& s, const void* x, void* y, cudaStream_t stream) {
  with_pool(s, x, y, [&](auto element, auto length, const Pool& p) {
    const unsigned blocks = pool_blocks(s.n, 1, 1, p.vectors);
    global_avg_pool<decltype(element), decltype(length)::value><<<blocks, kPoolThreads, 0, stream>>>(p, x, y);
  });
  check_launch("global_avg_pool");
}

void launch_global_avg_pool_grad(const PoolShape& s, const void* dy, void* dx, cudaStream_t stream) {
  with_pool(s, dy, dx, [&](auto element, auto length, const Pool& p) {
    const unsigned blocks = pool_blocks(s.n, s.h, s.w, p.vectors);
    global_avg_pool_grad<decltype(element), decltype(length)::value><<<blocks, kPoolThreads, 0, stream>>>(p, dy, dx);
  });
  check_launch("global_avg_pool_grad");
}

void launch_adaptive_avg_pool(const PoolShape& s, const void* x, void* y, cudaStream_t stream) {
  with_pool(s, x, y, [&](auto element, auto length, const Pool& p) {
    const unsigned blocks = pool_blocks(s.n, s.out_h, s.out_w, p.vectors);
    adaptive_avg_pool<decltype(element), decltype(length)::value><<<blocks, kPoolThreads, 0, stream>>>(p, x, y);
  });
  check_launch("adaptive_avg_pool");
}

void launch_adaptive_avg_pool_grad(const PoolShape& s, const void* dy, void* dx, cudaStream_t stream) {
  with_pool(s, dy, dx, [&](auto element, auto length, const Pool& p) {
    const unsigned blocks = pool_blocks(s.n, s.h, s.w, p.vectors);
    adaptive_avg_pool_grad<decltype(element), decltype(length)::value><<<blocks, kPoolThreads, 0, stream>>>(p, dy, dx);
  });
  check_launch("adaptive_avg_pool_grad");
}

}  // namespace renai::cuda
