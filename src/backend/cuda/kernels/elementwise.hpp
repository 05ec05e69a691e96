#pragma once
// Element-wise operators on dense tensors of `dtype` (f32, f16 or bf16); arithmetic in f32.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "renai/graph/op.hpp"
#include "renai/tensor/dtype.hpp"
#include "renai/tensor/slot_layout.hpp"

namespace renai::cuda {

void launch_activation(const void* x, void* y, std::int64_t elems, const ActivationParams& params, DType dtype,
                       cudaStream_t stream);
/// `saved` is y where backward_reads_output(kind), else x.
void launch_activation_grad(const void* saved, const void* dy, void* dx, std::int64_t elems,
                            const ActivationParams& params, DType dtype, cudaStream_t stream);
/// y = a + b; y may be a or b.
void launch_add(const void* a, const void* b, void* y, std::int64_t elems, DType dtype, cudaStream_t stream);
/// Copies columns [from_column, from_column + columns) of [rows, from_pitch] to columns at to_column of [rows,
/// to_pitch]: one part of a concat along C or of its gradient. Units: elements.
struct ColumnCopy {
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t rows = 0, columns = 0, from_pitch = 0, from_column = 0, to_pitch = 0, to_column = 0;
  DType dtype = DType::f32;
};
void launch(const ColumnCopy& copy, cudaStream_t stream);
/// Forward and backward are the same product with the mask of (seed, step, layer, shard, element); see dropout_key.hpp.
/// The control block lies in device memory.
void launch_dropout(const void* from, void* to, std::int64_t elems, const DropoutParams& params,
                    const ControlBlock* control, DType dtype, cudaStream_t stream);
/// Rounds to nearest even.
void launch_cast(const float* from, void* to, std::int64_t elems, DType to_dtype, cudaStream_t stream);
void launch_cast_to_f32(const void* from, float* to, std::int64_t elems, DType from_dtype, cudaStream_t stream);
/// out[column] = sum over rows of values [rows, columns] (a bias gradient). Determinism: row blocks by the shape alone,
/// combined in a fixed tree.
std::int64_t column_sums_workspace_bytes(std::int64_t rows, std::int64_t columns);
void launch_column_sums(const void* values, float* out, std::int64_t rows, std::int64_t columns, std::byte* workspace,
                        DType dtype, cudaStream_t stream);

}  // namespace renai::cuda
