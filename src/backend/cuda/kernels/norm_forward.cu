// Batch norm forward: sums of one pass over x about the first row, finalized in f64, then the affine map with its tail.

#include "norm.cuh"

namespace renai::cuda {
namespace {

constexpr int kUnroll = 4;
/// Half as many rows in flight where two tensors are read.
template <NormTail tail>
constexpr int kApplyUnroll = tail == NormTail::add_relu || tail == NormTail::relu_add ? 2 : 4;

/// Partial sums of d and d * d, d = x - x[row 0] of the same channel: without cancellation unless the first row lies
/// many standard deviations off. Row tiles from the last to the first.
template <typename T, int V>
__global__ void __launch_bounds__(kRowThreads, 4) sum_statistics(const void* x, float* partials, RowTiling t) {
  __shared__ float shared[2 * V * kRowThreads];
  const RowPlace place = row_place(t);
  float shift[V], sums[2 * V] = {};
  Vector<T, V> first = Vector<T, V>::zero();
  if (place.active) first = Vector<T, V>::load(x, place.vector);
  first.widen_to(shift);
  for (int k = 0; k < t.tiles; ++k) {
    const int tile = t.row_tiles - 1 - (place.row_block + k * t.row_blocks);
    if (tile < 0) break;
    const int row = tile * kUnroll * t.row_lanes + place.row_lane;
    Vector<T, V> loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int at = row + u * t.row_lanes;
      // What lies outside counts as the first row: it adds zero.
      loaded[u] = first;
      if (place.active && at < t.rows) loaded[u] = Vector<T, V>::load(x, row_index(t, place, at));
    }
    float values[kUnroll][V];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) loaded[u].widen_to(values[u]);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const float d0 = values[0][j] - shift[j], d1 = values[1][j] - shift[j];
      const float d2 = values[2][j] - shift[j], d3 = values[3][j] - shift[j];
      sums[j] += (d0 + d1) + (d2 + d3);
      sums[V + j] += __fmaf_rn(d3, d3, __fmaf_rn(d2, d2, __fmaf_rn(d1, d1, d0 * d0)));
    }
  }
  add_row_lanes(sums, shared, t, place.row_lane);
  if (place.active && place.row_lane == 0) store_partials<2, V>(sums, partials, t, place);
}

struct Statistics {
  const float *scale, *bias;
  float *mean, *var_unbiased, *var_biased, *a, *b;
  std::int64_t rows, c;
  int row_blocks;
  float eps;
};

/// `moments`: mean and sum of squared deviations of `count` rows.
__device__ inline void write_statistics(const Statistics& s, std::int64_t channel, NormPair moments, double count) {
  const float mean = static_cast<float>(moments.first);
  const float var_biased = static_cast<float>(moments.second / count);
  s.mean[channel] = mean;
  s.var_biased[channel] = var_biased;
  s.var_unbiased[channel] = static_cast<float>(moments.second / (count - 1));
  const NormAffine map = norm_affine(s.scale[channel], s.bias[channel], mean, norm_inverse(var_biased, s.eps));
  s.a[channel] = map.a;
  s.b[channel] = map.b;
}

/// Of this shard alone, or into its block.
template <typename T>
__global__ void __launch_bounds__(kFinalThreads)
    finish_statistics(const T* x, const float* partials, Statistics s, NormShards shards) {
  const Sums<2> sum = add_row_blocks<2>(partials, s.row_blocks, s.c);
  const std::int64_t channel = final_channel(s.c);
  if (channel < 0) return;
  const double count = static_cast<double>(s.rows), centre = sum.at[0] / count;
  double squares = sum.at[1] - sum.at[0] * centre;
  if (squares < 0) squares = 0;
  float shift[1];
  Vector<T, 1>::load(x, channel).widen_to(shift);
  const NormPair moments{double{shift[0]} + centre, squares};
  if (shards.blocks != nullptr) return store_pair(shards, s.c, channel, moments);
  write_statistics(s, channel, moments, count);
}

/// Of all shards. Source: Chan, Golub and LeVeque 1979.
__global__ void __launch_bounds__(kShardThreads) share_statistics(Statistics s, NormShards shards) {
  const std::int64_t channel = std::int64_t{blockIdx.x} * kShardThreads + threadIdx.x;
  if (channel >= s.c) return;
  const double rows = static_cast<double>(s.rows);
  const NormPair moments = add_shards(shards, s.c, channel, [rows](NormPair a, NormPair b, int count) {
    const double distance = b.first - a.first;
    return NormPair{a.first + distance / 2, a.second + (b.second + distance * distance * (rows * count / 2))};
  });
  write_statistics(s, channel, moments, rows * shards.shards);
}

struct Apply {
  const void *x, *other;
  const float *a, *b;
  void* y;
  std::uint32_t* mask;
};

/// A not-a-number passes through the relu, so that a broken step is seen.
__device__ inline float relu(float v) { return v < 0 ? 0 : v; }

template <NormTail tail>
__device__ inline float with_tail(float v, float other) {
  if constexpr (tail == NormTail::relu) return relu(v);
  if constexpr (tail == NormTail::add_relu) return relu(v + other);
  if constexpr (tail == NormTail::relu_add) return relu(v) + other;
  return v;
}

/// Stores the sign bits of vector `index`: a byte for 8 elements, half a byte for 4, when a pair of vectors lies with
/// neighbouring threads. The whole warp calls it.
template <int V>
__device__ inline void store_bits(std::uint32_t* mask, std::int64_t index, unsigned bits, bool inside) {
  auto* bytes = reinterpret_cast<std::uint8_t*>(mask);
  if constexpr (V == 8) {
    if (inside) bytes[index] = static_cast<std::uint8_t>(bits);
  } else {
    const unsigned next = __shfl_down_sync(0xffffffffu, bits, 1);
    if (inside && index % 2 == 0) bytes[index / 2] = static_cast<std::uint8_t>(bits | next << 4);
  }
}

template <typename T, int V, NormTail tail, bool masked>
__global__ void __launch_bounds__(kRowThreads, 4) apply_norm(Apply p, RowTiling t) {
  constexpr bool kOther = tail == NormTail::add_relu || tail == NormTail::relu_add;
  constexpr int kRows = kApplyUnroll<tail>;
  const RowPlace place = row_place(t);
  float a[V] = {}, b[V] = {};
  if (place.active) {
    load_floats(p.a, place.vector * V, a);
    load_floats(p.b, place.vector * V, b);
  }
  for (int k = 0; k < t.tiles; ++k) {
    const int row = (place.row_block * t.tiles + k) * kRows * t.row_lanes + place.row_lane;
    Vector<T, V> x[kRows], other[kRows];
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      const int at = row + u * t.row_lanes;
      const std::int64_t index = row_index(t, place, at);
      const bool inside = place.active && at < t.rows;
      x[u] = inside ? Vector<T, V>::load_last(p.x, index) : Vector<T, V>::zero();
      if constexpr (kOther) other[u] = inside ? Vector<T, V>::load_last(p.other, index) : Vector<T, V>::zero();
    }
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      const int at = row + u * t.row_lanes;
      const std::int64_t index = row_index(t, place, at);
      const bool inside = place.active && at < t.rows;
      float v[V], add[V] = {};
      x[u].widen_to(v);
      if constexpr (kOther) other[u].widen_to(add);
      unsigned bits = 0;
#pragma unroll
      for (int j = 0; j < V; ++j) {
        v[j] = with_tail<tail>(norm_apply(v[j], a[j], b[j]), add[j]);
        if constexpr (masked) bits |= v[j] > kRoundsToZero<T> ? 1u << j : 0u;
      }
      if (inside) Vector<T, V>::narrow_from(v).store(p.y, index);
      if constexpr (masked) store_bits<V>(p.mask, index, bits, inside);
    }
  }
}

/// The sign mask from y, one word a thread, where the pass that writes y cannot put whole bytes together.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    mask_from_output(const void* y, std::uint32_t* mask, std::int64_t elems) {
  const std::int64_t word = std::int64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  if (word * 32 >= elems) return;
  std::uint32_t bits = 0;
  for (int i = 0; i < 32 && word * 32 + i < elems; ++i) {
    float v[1];
    Vector<T, 1>::load(y, word * 32 + i).widen_to(v);
    bits |= v[0] > 0 ? 1u << i : 0u;
  }
  mask[word] = bits;
}

template <typename T, int V, NormTail tail>
void launch_apply(const Apply& apply, std::int64_t rows, std::int64_t c, cudaStream_t stream) {
  const RowTiling t = write_tiling(rows, c, V, kApplyUnroll<tail>);
  const std::int64_t elems = rows * c;
  if constexpr (tail == NormTail::add_relu) {
    if (apply.mask != nullptr) {
      const bool whole_bytes = V == 8 || (V == 4 && t.vectors % 2 == 0 && t.lanes % 2 == 0);
      if constexpr (V > 1) {
        if (whole_bytes) {
          apply_norm<T, V, tail, true><<<t.grid(), kRowThreads, 0, stream>>>(apply, t);
          return check_launch("apply_norm");
        }
      }
      apply_norm<T, V, tail, false><<<t.grid(), kRowThreads, 0, stream>>>(apply, t);
      check_launch("apply_norm");
      const auto blocks = static_cast<unsigned>(ceil_div(elems, std::int64_t{32} * kRowThreads));
      mask_from_output<T><<<blocks, kRowThreads, 0, stream>>>(apply.y, apply.mask, elems);
      return check_launch("mask_from_output");
    }
  }
  apply_norm<T, V, tail, false><<<t.grid(), kRowThreads, 0, stream>>>(apply, t);
  check_launch("apply_norm");
}

template <typename T, int V>
void launch_apply(NormTail tail, const Apply& apply, std::int64_t rows, std::int64_t c, cudaStream_t stream) {
  switch (tail) {
    case NormTail::none: return launch_apply<T, V, NormTail::none>(apply, rows, c, stream);
    case NormTail::relu: return launch_apply<T, V, NormTail::relu>(apply, rows, c, stream);
    case NormTail::add_relu: return launch_apply<T, V, NormTail::add_relu>(apply, rows, c, stream);
    case NormTail::relu_add: return launch_apply<T, V, NormTail::relu_add>(apply, rows, c, stream);
  }
}

}  // namespace

std::int64_t norm_workspace_bytes(std::int64_t rows, std::int64_t c) {
  int row_blocks = 0;
  for (const int elems : {1, 4, 8}) {
    if (c % elems != 0) continue;
    for (const int unroll : {2, 4}) {
      for (const int blocks : {kSumBlocks, kSumBlocksFew}) {
        row_blocks = std::max(row_blocks, sums_tiling(rows, c, elems, unroll, blocks).row_blocks);
      }
    }
  }
  return (norm_partials_offset(c) + row_blocks * 2 * c) * static_cast<std::int64_t>(sizeof(float));
}

std::int64_t norm_mask_bytes(std::int64_t rows, std::int64_t c) { return ceil_div<std::int64_t>(rows * c, 32) * 4; }

namespace {

void launch_half(const NormForward& n, NormHalf half, cudaStream_t stream) {
  if (n.rows == 0) return;
  auto* const factors = reinterpret_cast<float*>(n.workspace);
  float* const partials = norm_partials(n.workspace, n.c);
  const auto run = [&](auto element, auto elems) {
    using T = decltype(element);
    constexpr int V = decltype(elems)::value;
    const RowTiling t = sums_tiling(n.rows, n.c, V, kUnroll, kSumBlocks);
    const Statistics s{n.scale,       n.bias, n.mean, n.var_unbiased, n.var_biased, factors,
                       factors + n.c, n.rows, n.c,    t.row_blocks,   n.eps};
    if (half == NormHalf::shared) {
      share_statistics<<<shard_blocks(n.c), kShardThreads, 0, stream>>>(s, n.shards);
      check_launch("share_statistics");
    } else {
      sum_statistics<T, V><<<t.grid(), kRowThreads, 0, stream>>>(n.x, partials, t);
      check_launch("sum_statistics");
      const auto blocks = static_cast<unsigned>(ceil_div<std::int64_t>(n.c, kFinalChannels));
      finish_statistics<T><<<blocks, kFinalThreads, 0, stream>>>(static_cast<const T*>(n.x), partials, s, n.shards);
      check_launch("finish_statistics");
    }
    if (half == NormHalf::own) return;
    launch_apply<T, V>(n.tail, {n.x, n.other, factors, factors + n.c, n.y, n.mask}, n.rows, n.c, stream);
  };
  const int elems = n.dtype == DType::f32 ? 4 : 8;
  with_vectors(n.dtype, n.c % elems == 0 && vector_aligned({n.x, n.other, n.y, n.workspace}), run);
}

}  // namespace

void launch(const NormForward& n, cudaStream_t stream) {
  RENAI_CHECK(n.shards.blocks == nullptr, "a batch norm over several shards runs in two halves");
  launch_half(n, NormHalf::whole, stream);
}

void launch_own_sums(const NormForward& n, cudaStream_t stream) { launch_half(n, NormHalf::own, stream); }

void launch_shared(const NormForward& n, cudaStream_t stream) { launch_half(n, NormHalf::shared, stream); }

void launch(const NormFolded& n, cudaStream_t stream) {
  if (n.rows == 0) return;
  const auto run = [&](auto element, auto elems) {
    launch_apply<decltype(element), decltype(elems)::value>(n.tail, {n.x, n.other, n.scale, n.bias, n.y, nullptr},
                                                            n.rows, n.c, stream);
  };
  const int elems = n.dtype == DType::f32 ? 4 : 8;
  with_vectors(n.dtype, n.c % elems == 0 && vector_aligned({n.x, n.other, n.scale, n.bias, n.y}), run);
}

}  // namespace renai::cuda
