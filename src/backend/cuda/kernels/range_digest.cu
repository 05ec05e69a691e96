#include <algorithm>

#include "range.hpp"
#include "renai/base/digest.hpp"
#include "values.cuh"

namespace renai::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kTileElems = 4096;  ///< Elements of one block.

struct DigestTable {
  static constexpr int kMost = 90;
  struct Entry {
    const float* data;
    std::int64_t elems, row_elems, row_stride;  ///< row_stride 0: dense.
    std::uint32_t first_tile;
    std::uint32_t item;
  };
  Entry entries[kMost];
  int count;
  unsigned long long* out;
};
static_assert(sizeof(DigestTable) <= 4096);

__device__ void add_element(float value, std::int64_t position, unsigned long long& low, unsigned long long& high) {
  const Digest128 part = element_digest(__float_as_uint(value), static_cast<std::uint64_t>(position));
  low += part.low;
  high += part.high;
}

__global__ void __launch_bounds__(kThreads) digest_tiles(DigestTable table) {
  __shared__ unsigned long long lows[kWarp], highs[kWarp];
  const DigestTable::Entry& entry = table.entries[last_at_or_before(table.entries, table.count, blockIdx.x)];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x - entry.first_tile) * kTileElems;
  const std::int64_t end = min(first + kTileElems, entry.elems);
  unsigned long long low = 0, high = 0;
  if (entry.row_stride == 0) {
    const std::int64_t words_end = first + (end - first) / 4 * 4;
    for (std::int64_t i = first + 4 * threadIdx.x; i < words_end; i += 4 * kThreads) {
      const float4 values = *reinterpret_cast<const float4*>(entry.data + i);
      add_element(values.x, i, low, high);
      add_element(values.y, i + 1, low, high);
      add_element(values.z, i + 2, low, high);
      add_element(values.w, i + 3, low, high);
    }
    if (words_end + threadIdx.x < end) {
      add_element(entry.data[words_end + threadIdx.x], words_end + threadIdx.x, low, high);
    }
  } else {
    for (std::int64_t i = first + threadIdx.x; i < end; i += kThreads) {
      const std::int64_t row = i / entry.row_elems;
      add_element(entry.data[row * entry.row_stride + (i - row * entry.row_elems)], i, low, high);
    }
  }
  low = combine_block<kThreads>(low, Sum{}, lows);
  high = combine_block<kThreads>(high, Sum{}, highs);
  if (threadIdx.x != 0) return;
  atomicAdd(table.out + 2 * entry.item, low);
  atomicAdd(table.out + 2 * entry.item + 1, high);
}

}  // namespace

void launch_digest(std::span<const DigestItem> items, std::byte* out, cudaStream_t stream) {
  static_assert(sizeof(Digest128) == 16 && offsetof(Digest128, low) == 0);
  require_aligned(out, "the digests");
  require(cudaMemsetAsync(out, 0, items.size() * sizeof(Digest128), stream), "clearing the digests");
  for (std::size_t first = 0; first < items.size(); first += DigestTable::kMost) {
    const auto chunk = items.subspan(first, std::min<std::size_t>(DigestTable::kMost, items.size() - first));
    DigestTable table{};
    table.out = reinterpret_cast<unsigned long long*>(out);
    std::int64_t tiles = 0;
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      const DigestItem& item = chunk[i];
      const std::int64_t elems = item.rows * item.row_elems;
      if (elems == 0) continue;
      const bool dense = item.row_stride == 0 || item.row_stride == item.row_elems || item.rows == 1;
      if (dense) require_aligned(item.data, "a digested tensor");
      table.entries[table.count++] = {item.data,
                                      elems,
                                      item.row_elems,
                                      dense ? 0 : item.row_stride,
                                      static_cast<std::uint32_t>(tiles),
                                      static_cast<std::uint32_t>(first + i)};
      tiles += (elems + kTileElems - 1) / kTileElems;
    }
    if (table.count == 0) continue;
    digest_tiles<<<block_count(tiles, 1), kThreads, 0, stream>>>(table);
    check_launch("digest");
  }
}

}  // namespace renai::cuda
