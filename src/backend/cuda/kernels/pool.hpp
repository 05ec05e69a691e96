#pragma once
// Pooling on NHWC tensors of `dtype`. Backward gathers: each input pixel adds its windows in row order, so the sum has
// one order and no atomics.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "renai/graph/op.hpp"
#include "renai/tensor/dtype.hpp"

namespace renai::cuda {

struct PoolShape {
  std::int64_t n = 0, h = 0, w = 0, c = 0, out_h = 0, out_w = 0;
  PoolParams params;
  DType dtype = DType::f32;
};
/// Bytes of the places of the maxima: one an output element (the tap's index in row order; 255 taps at most).
std::int64_t max_pool_places_bytes(const PoolShape& shape);
/// `places` may be null. Not-a-number wins, ties go to the first tap in row order.
void launch_max_pool(const PoolShape& shape, const void* x, void* y, std::uint8_t* places, cudaStream_t stream);
void launch_max_pool_grad(const PoolShape& shape, const std::uint8_t* places, const void* dy, void* dx,
                          cudaStream_t stream);
void launch_avg_pool(const PoolShape& shape, const void* x, void* y, cudaStream_t stream);
void launch_avg_pool_grad(const PoolShape& shape, const void* dy, void* dx, cudaStream_t stream);
/// y [n, c] = mean over h * w.
void launch_global_avg_pool(const PoolShape& shape, const void* x, void* y, cudaStream_t stream);
void launch_global_avg_pool_grad(const PoolShape& shape, const void* dy, void* dx, cudaStream_t stream);
/// Means over adaptive_bin.
void launch_adaptive_avg_pool(const PoolShape& shape, const void* x, void* y, cudaStream_t stream);
void launch_adaptive_avg_pool_grad(const PoolShape& shape, const void* dy, void* dx, cudaStream_t stream);

}  // namespace renai::cuda
