#pragma once
// Softmax cross-entropy: metrics and gradient in one pass over the logits.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "renai/tensor/dtype.hpp"
#include "renai/tensor/slot_layout.hpp"

namespace renai::cuda {

std::int64_t loss_workspace_bytes(std::int64_t rows);

/// Definitions: LossParams in renai/graph/op.hpp. Shapes: logits, dlogits `dtype` [rows, classes]; the rest [rows].
/// A label out of range gives metrics that are not a number. Determinism: one thread block a row; rows are
/// summed in fp64 in an order of their number alone.
struct SoftmaxCrossEntropy {
  const void* logits = nullptr;
  const std::int32_t *labels = nullptr, *mix_labels = nullptr;
  const float *mix_lambda = nullptr, *weights = nullptr;
  float* metrics = nullptr;               ///< f32 [16]; null: not wanted.
  void* dlogits = nullptr;                ///< Null: not wanted.
  const float* loss_scale = nullptr;      ///< Factor of dlogits in device memory; null: 1.
  const ControlBlock* control = nullptr;  ///< Its loss_factor is another; null: 1.
  std::byte* workspace = nullptr;         ///< For metrics.
  std::int64_t rows = 0, classes = 0;
  float smoothing = 0.0f;
  DType dtype = DType::f32;
};
void launch(const SoftmaxCrossEntropy& loss, cudaStream_t stream);

}  // namespace renai::cuda
