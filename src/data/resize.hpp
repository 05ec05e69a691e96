#pragma once
// Resizing with antialiasing, for packing.

#include "png_image.hpp"

namespace renai {

/// The image with its shorter side resized to `size` (the longer one in proportion, rounded down), then its middle
/// size x size. The filter is a triangle as wide as one pixel of the result (antialiasing where the image shrinks),
/// with half-pixel centres, rows before columns, rounded to 8 bits after each: what PIL's resize(BILINEAR) computes, to
/// within one. Where the longer side leaves an odd remainder, the extra pixel is cut off at the right or bottom.
/// Determinism: integer sums; weights are the same on every machine with IEEE doubles.
RgbImage resize_and_crop(const RgbImage& image, std::int64_t size);

}  // namespace renai
