#pragma once
// Boxes in the pixels of a scaled image.

#include "renai/data/jpeg.hpp"

namespace renai {

/// The box of an image at M / 8 of its size: each edge at the nearest pixel border, at least one pixel.
PixelBox scale_box(const ImageSize& size, const PixelBox& box, int eighths);

}  // namespace renai
