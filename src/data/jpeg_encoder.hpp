#pragma once
// Pixels as JPEG, for images that came as something else.

#include <cstddef>
#include <vector>

#include "png_image.hpp"

namespace renai {

inline constexpr int kEncodedQuality = 95;

/// Quality kEncodedQuality, full-resolution colour (4:4:4), baseline. Errors: ImageError when a side is over 65500
/// pixels. Determinism: the same bytes for the same pixels and libjpeg.
std::vector<std::byte> encode_jpeg(const RgbImage& image);

}  // namespace renai
