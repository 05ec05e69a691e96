#include "orientation.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

namespace renai {
namespace {

/// Numbers of a TIFF structure; nothing outside of its bytes.
struct Tiff {
  std::span<const std::uint8_t> bytes;
  bool big_endian = false;

  std::optional<std::uint32_t> number(std::size_t at, std::size_t count) const {
    if (at > bytes.size() || count > bytes.size() - at) return std::nullopt;
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < count; ++i) {
      value = value << 8 | bytes[at + (big_endian ? i : count - 1 - i)];
    }
    return value;
  }
};

constexpr std::uint32_t kOrientationTag = 0x0112, kShort = 3;

}  // namespace

Turn turn_of(int orientation) {
  switch (orientation) {
    case 2: return {false, false, true};
    case 3: return {false, true, true};
    case 4: return {false, true, false};
    case 5: return {true, false, false};
    case 6: return {true, false, true};
    case 7: return {true, true, true};
    case 8: return {true, true, false};
    default: return {false, false, false};
  }
}

int exif_orientation(std::span<const std::uint8_t> marker) {
  constexpr char kExif[] = {'E', 'x', 'i', 'f', 0, 0};
  if (marker.size() < sizeof kExif + 8 || std::memcmp(marker.data(), kExif, sizeof kExif) != 0) return 1;
  Tiff tiff{marker.subspan(sizeof kExif)};
  tiff.big_endian = tiff.bytes[0] == 'M';
  if (tiff.bytes[0] != tiff.bytes[1] || (tiff.bytes[0] != 'M' && tiff.bytes[0] != 'I')) return 1;
  if (tiff.number(2, 2) != 42u) return 1;
  const std::size_t directory = tiff.number(4, 4).value_or(0);
  const std::uint32_t entries = tiff.number(directory, 2).value_or(0);
  for (std::uint32_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + 12 * std::size_t{i};
    const auto tag = tiff.number(entry, 2);
    if (!tag) return 1;
    if (*tag != kOrientationTag || tiff.number(entry + 2, 2) != kShort) continue;
    const std::uint32_t value = tiff.number(entry + 8, 2).value_or(1);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

PixelBox stored_box(int orientation, const ImageSize& seen, const PixelBox& box) {
  const Turn turn = turn_of(orientation);
  PixelBox stored = box;
  if (turn.mirrored_y) stored.y = seen.h - box.y - box.h;
  if (turn.mirrored_x) stored.x = seen.w - box.x - box.w;
  if (turn.transposed) stored = {stored.x, stored.y, stored.w, stored.h};
  return stored;
}

void orient_pixels(int orientation, const std::uint8_t* region, const ImageSize& stored, std::uint8_t* out,
                   std::int64_t row_bytes) {
  const Turn turn = turn_of(orientation);
  const std::int64_t h = turn.transposed ? stored.w : stored.h, w = turn.transposed ? stored.h : stored.w;
  for (std::int64_t y = 0; y < h; ++y) {
    const std::int64_t from_y = turn.mirrored_y ? h - 1 - y : y;
    for (std::int64_t x = 0; x < w; ++x) {
      const std::int64_t from_x = turn.mirrored_x ? w - 1 - x : x;
      const std::int64_t at = turn.transposed ? from_x * stored.w + from_y : from_y * stored.w + from_x;
      std::memcpy(out + y * row_bytes + 3 * x, region + 3 * at, 3);
    }
  }
}

}  // namespace renai
