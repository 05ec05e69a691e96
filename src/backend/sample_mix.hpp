#pragma once
// Which pixels of a sample are its own, and their colours. Every backend uses this, so the definition stands once.

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

/// Applies the sample's colour map to the first three values of a pixel, on the scale 0 to 255.
template <typename T>
constexpr void map_colour(const SampleParams& sample, T* pixel) {
  if (sample.colour == 0) return;
  const T red = pixel[0], green = pixel[1], blue = pixel[2];
  for (unsigned k = 0; k < 3; ++k) {
    const T value = static_cast<T>(sample.colour_map[4 * k]) * red +
                    static_cast<T>(sample.colour_map[4 * k + 1]) * green +
                    static_cast<T>(sample.colour_map[4 * k + 2]) * blue + static_cast<T>(sample.colour_map[4 * k + 3]);
    pixel[k] = value < T(0) ? T(0) : value > T(255) ? T(255) : value;
  }
}

}  // namespace renai
