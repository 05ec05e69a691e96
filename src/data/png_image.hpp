#pragma once
// PNG images as RGB pixels.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace renai {

/// Shapes: pixels [h, w, 3].
struct RgbImage {
  std::int64_t h = 0, w = 0;
  std::vector<std::uint8_t> pixels;
};

struct PngSize {
  std::int64_t h = 0, w = 0;
};

/// Height and width from the header alone. Errors: ImageError.
PngSize read_png_size(std::span<const std::byte> bytes);

/// Grey becomes RGB, palettes are looked up, 16 bits become the nearest of 8, alpha is dropped (colours stay as stored,
/// as PIL's convert("RGB") has them), EXIF orientation is applied. Errors: ImageError: truncated, damaged, wrong
/// checksum.
RgbImage decode_png(std::span<const std::byte> bytes);

}  // namespace renai
