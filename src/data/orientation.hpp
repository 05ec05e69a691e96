#pragma once
// EXIF orientation: how stored pixels become an image as it is to be seen.

#include <cstddef>
#include <cstdint>
#include <span>

#include "renai/data/jpeg.hpp"

namespace renai {

/// Orientation of an APP1 marker's contents: 1 to 8; 1 for anything that is not EXIF or is damaged.
int exif_orientation(std::span<const std::uint8_t> marker);

/// Orientations 5 to 8 exchange rows and columns.
constexpr bool is_transposed(int orientation) { return orientation >= 5; }

/// An orientation as what a stored pixel's place becomes: exchanged, then mirrored in what is seen.
struct Turn {
  bool transposed, mirrored_y, mirrored_x;
};

Turn turn_of(int orientation);

/// A box of the image as it is seen, in stored pixels. `seen` is the image's size as seen.
PixelBox stored_box(int orientation, const ImageSize& seen, const PixelBox& box);

/// Copies a stored region of `stored` pixels of 3 bytes, rows dense, to what is seen of it.
void orient_pixels(int orientation, const std::uint8_t* region, const ImageSize& stored, std::uint8_t* out,
                   std::int64_t row_bytes);

}  // namespace renai
