// Operators on [rows, columns] with something per column: copies of columns, bias gradients.

#include "elementwise.hpp"
#include "row_tiles.cuh"

namespace renai::cuda {
namespace {

constexpr int kUnroll = 4;

/// Units: vectors.
struct Columns {
  const void* from;
  void* to;
  int from_pitch, from_column, to_pitch, to_column;
};

template <typename T, int V>
__global__ void __launch_bounds__(kRowThreads) copy_columns(Columns c, RowTiling t) {
  const RowPlace place = row_place(t);
  for (int k = 0; k < t.tiles; ++k) {
    const int row = (place.row_block * t.tiles + k) * kUnroll * t.row_lanes + place.row_lane;
    Vector<T, V> values[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int at = row + u * t.row_lanes;
      values[u] = Vector<T, V>::zero();
      if (!place.active || at >= t.rows) continue;
      values[u] = Vector<T, V>::load(c.from, std::int64_t{at} * c.from_pitch + c.from_column + place.vector);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int at = row + u * t.row_lanes;
      if (!place.active || at >= t.rows) continue;
      values[u].store(c.to, std::int64_t{at} * c.to_pitch + c.to_column + place.vector);
    }
  }
}

template <typename T, int V>
__global__ void __launch_bounds__(kRowThreads) sum_columns(const void* values, float* partials, RowTiling t) {
  __shared__ float shared[V * kRowThreads];
  const RowPlace place = row_place(t);
  float sums[V] = {};
  for (int k = 0; k < t.tiles; ++k) {
    const int row = (place.row_block + k * t.row_blocks) * kUnroll * t.row_lanes + place.row_lane;
    float rows[kUnroll][V];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int at = row + u * t.row_lanes;
      const bool inside = place.active && at < t.rows;
      const Vector<T, V> loaded = inside ? Vector<T, V>::load(values, row_index(t, place, at)) : Vector<T, V>::zero();
      loaded.widen_to(rows[u]);
    }
#pragma unroll
    for (int j = 0; j < V; ++j) sums[j] += (rows[0][j] + rows[1][j]) + (rows[2][j] + rows[3][j]);
  }
  add_row_lanes(sums, shared, t, place.row_lane);
  if (place.active && place.row_lane == 0) store_partials<1, V>(sums, partials, t, place);
}

__global__ void __launch_bounds__(kFinalThreads)
    finish_columns(const float* partials, float* out, int row_blocks, std::int64_t columns) {
  const Sums<1> sum = add_row_blocks<1>(partials, row_blocks, columns);
  const std::int64_t column = final_channel(columns);
  if (column >= 0) out[column] = static_cast<float>(sum.at[0]);
}

bool divides(int elems, std::initializer_list<std::int64_t> counts) {
  return std::all_of(counts.begin(), counts.end(), [&](std::int64_t count) { return count % elems == 0; });
}

int vector_elems(DType dtype) { return dtype == DType::f32 ? 4 : 8; }

}  // namespace

void launch(const ColumnCopy& c, cudaStream_t stream) {
  if (c.rows == 0 || c.columns == 0) return;
  RENAI_CHECK(c.from_pitch < kMaxRows && c.to_pitch < kMaxRows, "kernels count columns in 32 bits");
  const bool vectors =
      divides(vector_elems(c.dtype), {c.columns, c.from_pitch, c.from_column, c.to_pitch, c.to_column}) &&
      vector_aligned({c.from, c.to});
  with_vectors(c.dtype, vectors, [&](auto element, auto length) {
    constexpr int V = decltype(length)::value;
    const auto in_vectors = [](std::int64_t elems) { return static_cast<int>(elems / V); };
    const RowTiling t = write_tiling(c.rows, c.columns, V, kUnroll);
    const Columns columns{c.from,
                          c.to,
                          in_vectors(c.from_pitch),
                          in_vectors(c.from_column),
                          in_vectors(c.to_pitch),
                          in_vectors(c.to_column)};
    copy_columns<decltype(element), V><<<t.grid(), kRowThreads, 0, stream>>>(columns, t);
  });
  check_launch("copy_columns");
}

std::int64_t column_sums_workspace_bytes(std::int64_t rows, std::int64_t columns) {
  int row_blocks = 0;
  for (const int elems : {1, 4, 8}) {
    if (columns % elems != 0) continue;
    row_blocks = std::max(row_blocks, sums_tiling(rows, columns, elems, kUnroll, kSumBlocks).row_blocks);
  }
  return row_blocks * columns * static_cast<std::int64_t>(sizeof(float));
}

void launch_column_sums(const void* values, float* out, std::int64_t rows, std::int64_t columns, std::byte* workspace,
                        DType dtype, cudaStream_t stream) {
  auto* const partials = reinterpret_cast<float*>(workspace);
  const bool vectors = divides(vector_elems(dtype), {columns}) && vector_aligned({values, workspace});
  int row_blocks = 0;
  with_vectors(dtype, vectors, [&](auto element, auto length) {
    constexpr int V = decltype(length)::value;
    const RowTiling t = sums_tiling(rows, columns, V, kUnroll, kSumBlocks);
    row_blocks = t.row_blocks;
    sum_columns<decltype(element), V><<<t.grid(), kRowThreads, 0, stream>>>(values, partials, t);
  });
  check_launch("sum_columns");
  const auto blocks = static_cast<unsigned>(ceil_div<std::int64_t>(columns, kFinalChannels));
  finish_columns<<<blocks, kFinalThreads, 0, stream>>>(partials, out, row_blocks, columns);
  check_launch("finish_columns");
}

}  // namespace renai::cuda
