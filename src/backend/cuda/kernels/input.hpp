#pragma once
// The slot's contents: labels and weights to their fixed place, pixels cropped, resized, flipped, normalised,
// erased, mixed and cast.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "renai/graph/op.hpp"
#include "renai/tensor/dtype.hpp"
#include "renai/tensor/slot_layout.hpp"

namespace renai::cuda {

struct UnpackSlot {
  const std::byte* slot = nullptr;
  SlotLayout layout;
  std::int64_t rows = 0;
  std::int32_t *labels = nullptr, *mix_labels = nullptr;
  float *mix_lambda = nullptr, *sample_weights = nullptr;
  std::byte* control = nullptr;  ///< ControlBlock
};
void launch(const UnpackSlot& unpack, cudaStream_t stream);

/// x: `dtype` [rows, h, w, stored_c], channels past c are zero. The same definition as the reference kernel.
struct NormalizeInput {
  const std::byte* slot = nullptr;
  SlotLayout layout;
  InputParams params;
  void* x = nullptr;
  std::int64_t rows = 0, h = 0, w = 0, c = 0, stored_c = 0;
  DType dtype = DType::f32;
};
void launch(const NormalizeInput& input, cudaStream_t stream);

}  // namespace renai::cuda
