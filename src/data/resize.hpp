#pragma once
// Resizing with antialiasing, for packing.

#include "png_image.hpp"
#include "renai/data/jpeg.hpp"

namespace renai {

/// What an image's pixels show: a picture of `size`, decoded at `eighths` of that. Where this leaves a part of a pixel,
/// the image has a whole one or none, at the right and the bottom unless that side was mirrored.
struct Picture {
  ImageSize size;
  int eighths = 8;
  bool mirrored_y = false, mirrored_x = false;
};

/// The picture with its shorter side resized to `size` (the longer one in proportion, rounded down), then its middle
/// size x size. The filter is a triangle as wide as one pixel of the result (antialiasing where the image shrinks),
/// with half-pixel centres, rows before columns, rounded to 8 bits after each: what PIL's resize(BILINEAR) computes, to
/// within one where the image is the whole picture. Where the longer side leaves an odd remainder, the extra pixel is
/// cut off at the right or bottom. Determinism: integer sums; weights are the same on every machine with IEEE doubles.
RgbImage resize_and_crop(const RgbImage& image, const Picture& picture, std::int64_t size);
/// Of an image that is its picture.
RgbImage resize_and_crop(const RgbImage& image, std::int64_t size);

}  // namespace renai
