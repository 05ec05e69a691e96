#pragma once
// Which pixels of a sample are its own. Every backend uses this, so the definition stands once.

#include <array>
#include <cstdint>

#include "renai/tensor/slot_layout.hpp"

namespace renai {

/// Whether a box (y, x, h, w) holds the pixel.
constexpr bool box_holds(const std::array<std::int32_t, 4>& box, std::int32_t y, std::int32_t x) {
  return y >= box[0] && y - box[0] < box[2] && x >= box[1] && x - box[1] < box[3];
}

/// Weight of the own pixel at (y, x) of the network's input; the partner's has the rest. 1 without a partner; cutmix: 0
/// inside of the box, 1 outside; mixup: lambda.
constexpr float own_share(const SampleParams& sample, std::int32_t y, std::int32_t x) {
  if (sample.mix_partner < 0) return 1.0f;
  if (sample.mix_box[2] > 0) return box_holds(sample.mix_box, y, x) ? 0.0f : 1.0f;
  return sample.mix_lambda;
}

}  // namespace renai
