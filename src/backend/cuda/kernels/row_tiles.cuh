#pragma once
// How [rows, c] is cut into blocks by kernels with something per channel (batch norm, column sums), and sums over rows.
//
// A row is `vectors` vectors of V elements. A block of kRowThreads threads covers `lanes` neighbouring vectors (a
// column tile) of `row_lanes` rows at a time; a row tile is `unroll` such steps, so that every thread has `unroll`
// loads in flight. Blocks of sums stay resident for the whole pass and take every row_blocks-th row tile, so that all
// of them work on one moving front of the tensor: the part behind it is still in the L2 cache for the pass that follows
// in the other direction.

#include <algorithm>

#include "renai/base/check.hpp"
#include "vectors.cuh"

namespace renai::cuda {

inline constexpr int kRowThreads = 256;
inline constexpr int kRowLanes = 32;
/// Blocks of a pass of sums: 4 (3 where a thread holds more factors) on each of the H200's 132 multiprocessors. A
/// constant, since it decides which rows are added first.
inline constexpr int kSumBlocks = 528, kSumBlocksFew = 396;
/// Rows that one thread adds in f32 at most, before the partial sums go on in f64.
inline constexpr int kSumRows = 256;
/// Rows that one thread of a block that writes a tensor takes, at most.
inline constexpr int kWriteRows = 8;
/// Rows (and channels) stay below, so that sums of a few of them fit 32 bits.
inline constexpr std::int64_t kMaxRows = std::int64_t{1} << 30;

struct RowTiling {
  int rows = 0, vectors = 0, lanes = 0, row_lanes = 0, column_tiles = 0, row_tiles = 0, row_blocks = 0;
  int tiles = 0;  ///< Row tiles of a block, at most.

  unsigned grid() const { return static_cast<unsigned>(row_blocks) * static_cast<unsigned>(column_tiles); }
};

/// Column tiles of equal width, at most kRowLanes; row blocks still open.
inline RowTiling column_tiling(std::int64_t rows, std::int64_t c, int elems, int unroll) {
  RENAI_CHECK(rows > 0 && rows < kMaxRows && c > 0 && c < kMaxRows, "kernels count rows in 32 bits");
  RowTiling t;
  t.rows = static_cast<int>(rows);
  t.vectors = static_cast<int>(c) / elems;
  t.column_tiles = ceil_div(t.vectors, kRowLanes);
  t.lanes = ceil_div(t.vectors, t.column_tiles);
  t.row_lanes = kRowThreads / t.lanes;
  t.row_tiles = ceil_div(t.rows, t.row_lanes * unroll);
  return t;
}

/// About `blocks` blocks of equal work. Determinism: a function of its arguments alone.
inline RowTiling sums_tiling(std::int64_t rows, std::int64_t c, int elems, int unroll, int blocks) {
  RowTiling t = column_tiling(rows, c, elems, unroll);
  t.tiles = std::min(ceil_div(t.row_tiles, std::max(blocks / t.column_tiles, 1)), kSumRows / unroll);
  t.row_blocks = ceil_div(t.row_tiles, t.tiles);
  return t;
}

/// Small blocks for a pass that writes: their order does not matter to the result.
inline RowTiling write_tiling(std::int64_t rows, std::int64_t c, int elems, int unroll) {
  RowTiling t = column_tiling(rows, c, elems, unroll);
  const int tiles = kWriteRows / unroll;
  t.tiles = std::int64_t{t.row_tiles} * t.column_tiles >= std::int64_t{4} * kSumBlocks * tiles ? tiles : 1;
  t.row_blocks = ceil_div(t.row_tiles, t.tiles);
  return t;
}

/// Where a thread works.
struct RowPlace {
  int vector, row_block, row_lane;  ///< vector: in the row.
  bool active;
};

__device__ inline RowPlace row_place(const RowTiling& t) {
  const int thread = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x);
  RowPlace place;
  place.row_lane = thread / t.lanes;
  place.vector = block % t.column_tiles * t.lanes + thread % t.lanes;
  place.row_block = block / t.column_tiles;
  place.active = place.row_lane < t.row_lanes && place.vector < t.vectors;
  return place;
}

__device__ inline std::int64_t row_index(const RowTiling& t, const RowPlace& place, int row) {
  return std::int64_t{row} * t.vectors + place.vector;
}

/// Adds `values` of the threads of a column over the row lanes; the sum is with row lane 0. All threads of the block
/// call it. `shared`: N * kRowThreads floats. Determinism: a fixed tree.
template <int N>
__device__ inline void add_row_lanes(float (&values)[N], float* shared, const RowTiling& t, int row_lane) {
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < N; ++i) shared[i * kRowThreads + thread] = values[i];
  __syncthreads();
  int half = 1;
  while (half < t.row_lanes) half *= 2;
  for (half /= 2; half > 0; half /= 2) {
    if (row_lane < half && row_lane + half < t.row_lanes) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        values[i] += shared[i * kRowThreads + thread + half * t.lanes];
        shared[i * kRowThreads + thread] = values[i];
      }
    }
    __syncthreads();
  }
}

/// Leaves a block's N sums of V channels each in its row of the partial sums [row_blocks][N][c].
template <int N, int V>
__device__ inline void store_partials(const float (&sums)[N * V], float* partials, const RowTiling& t,
                                      const RowPlace& place) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    float part[V];
#pragma unroll
    for (int j = 0; j < V; ++j) part[j] = sums[i * V + j];
    store_floats(partials, ((std::int64_t{N} * place.row_block + i) * t.vectors + place.vector) * V, part);
  }
}

inline constexpr int kFinalChannels = 8, kFinalThreads = 1024;

template <int N>
struct Sums {
  double at[N];
};

/// The channel of a thread of a finalizing kernel, which has kFinalThreads threads for kFinalChannels channels; -1 for
/// threads that are not the one to write its results.
__device__ inline std::int64_t final_channel(std::int64_t c) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t channel = std::int64_t{blockIdx.x} * kFinalChannels + warp;
  return threadIdx.x % 32 == 0 && warp < kFinalChannels && channel < c ? channel : -1;
}

/// Partial sums of the threads' final_channel, added over the row blocks. All threads of the block call it.
/// Determinism: a fixed tree in f64.
template <int N>
__device__ inline Sums<N> add_row_blocks(const float* partials, int row_blocks, std::int64_t c) {
  constexpr int kWarps = kFinalThreads / 32;
  __shared__ Sums<N> shared[kWarps][kFinalChannels + 1];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const std::int64_t channel = std::int64_t{blockIdx.x} * kFinalChannels + thread % kFinalChannels;
  Sums<N> sums{};
  if (channel < c) {
#pragma unroll 4
    for (int row = thread / kFinalChannels; row < row_blocks; row += kFinalThreads / kFinalChannels) {
#pragma unroll
      for (int i = 0; i < N; ++i) sums.at[i] += double{partials[(std::int64_t{N} * row + i) * c + channel]};
    }
  }
  // First the lanes of a warp with the same channel, then a channel's warps.
#pragma unroll
  for (int i = 0; i < N; ++i) {
    for (int step = kFinalChannels; step < 32; step *= 2) sums.at[i] += __shfl_xor_sync(~0u, sums.at[i], step);
  }
  if (lane < kFinalChannels) shared[warp][lane] = sums;
  __syncthreads();
  if (warp >= kFinalChannels) return sums;
  sums = shared[lane][warp];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    for (int step = 1; step < 32; step *= 2) sums.at[i] += __shfl_xor_sync(~0u, sums.at[i], step);
  }
  return sums;
}

}  // namespace renai::cuda
