// One thread adds one element, or four neighbours, over all ranks; no element depends on the number of threads.

#include <cuda_runtime.h>

#include <algorithm>

#include "add.hpp"

namespace renai::nccl {
namespace {

constexpr int kThreads = 256;
/// Blocks beyond this walk in strides: enough to fill any GPU.
constexpr std::int64_t kMostBlocks = 4096;
/// Levels of the tree of the largest world, 2^20 ranks.
constexpr int kLevels = 20;

__device__ inline float add(float a, float b) { return a + b; }
__device__ inline float4 add(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

/// Vector of `rank` at element `i`, counted in V.
template <typename V>
__device__ inline V operand(const TreeOperands& o, int rank, std::int64_t i) {
  if (rank == o.own) return reinterpret_cast<const V*>(o.own_values)[i];
  const int place = rank < o.own ? rank : rank - 1;
  return reinterpret_cast<const V*>(o.others + place * o.stride_elems)[i];
}

/// Sum of `Count` ranks from `first` on, unrolled.
template <typename V, int Count>
__device__ inline V subtree(const TreeOperands& o, int first, std::int64_t i) {
  if constexpr (Count == 1) {
    return operand<V>(o, first, i);
  } else {
    return add(subtree<V, Count / 2>(o, first, i), subtree<V, Count / 2>(o, first + Count / 2, i));
  }
}

/// Any power of two of ranks: octets merge like a binary counter, which is the balanced tree.
template <typename V>
__device__ inline V large_tree(const TreeOperands& o, std::int64_t i) {
  V levels[kLevels];
  V carry{};
  for (int octet = 0; octet < o.count / 8; ++octet) {
    carry = subtree<V, 8>(o, 8 * octet, i);
    int level = 0;
    for (; (octet >> level & 1) != 0; ++level) carry = add(levels[level], carry);
    levels[level] = carry;
  }
  return carry;
}

/// `Count` ranks; 0: more than 8.
template <typename V, int Count>
__global__ void __launch_bounds__(kThreads) add_kernel(TreeOperands o, std::int64_t first, std::int64_t end) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = first + static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < end; i += step) {
    V sum{};
    if constexpr (Count > 0) {
      sum = subtree<V, Count>(o, 0, i);
    } else {
      sum = large_tree<V>(o, i);
    }
    reinterpret_cast<V*>(o.own_values)[i] = sum;
  }
}

template <typename V>
void launch(const TreeOperands& o, std::int64_t first, std::int64_t end, cudaStream_t stream) {
  if (first >= end) return;
  const auto blocks = static_cast<unsigned>(std::min(kMostBlocks, (end - first + kThreads - 1) / kThreads));
  switch (o.count) {
    case 2: add_kernel<V, 2><<<blocks, kThreads, 0, stream>>>(o, first, end); break;
    case 4: add_kernel<V, 4><<<blocks, kThreads, 0, stream>>>(o, first, end); break;
    case 8: add_kernel<V, 8><<<blocks, kThreads, 0, stream>>>(o, first, end); break;
    default: add_kernel<V, 0><<<blocks, kThreads, 0, stream>>>(o, first, end); break;
  }
}

}  // namespace

int add_tree(const TreeOperands& o, void* stream) {
  auto* const native = static_cast<cudaStream_t>(stream);
  const auto bits = reinterpret_cast<std::uintptr_t>(o.own_values) | reinterpret_cast<std::uintptr_t>(o.others) |
                    static_cast<std::uintptr_t>(o.stride_elems * 4);
  const std::int64_t vectors = bits % sizeof(float4) == 0 ? o.elems / 4 : 0;
  launch<float4>(o, 0, vectors, native);
  launch<float>(o, 4 * vectors, o.elems, native);
  return cudaGetLastError();
}

}  // namespace renai::nccl
