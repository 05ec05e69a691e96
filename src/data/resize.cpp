#include "resize.hpp"

#include <algorithm>
#include <cmath>

namespace renai {
namespace {

constexpr int kWeightBits = 22;  ///< 255 * 2^22 * (1 + rounding) stays below 2^31.

/// Of one pixel of the result: which pixels it takes, with weights that sum to about 2^kWeightBits.
struct Taps {
  std::int64_t first = 0;
  std::vector<std::int32_t> weights;
};

/// A line of pixels: how many widths of a pixel its picture has, and how many of them lie before the first one.
struct Line {
  std::int64_t pixels = 0;
  double extent = 0, before = 0;
};

Line make_line(std::int64_t pixels, std::int64_t picture, int eighths, bool mirrored) {
  const double extent = static_cast<double>(picture * eighths) / 8;
  return {pixels, extent, mirrored ? extent - static_cast<double>(pixels) : 0};
}

/// Taps of result pixels [begin, begin + count) of a line resized to `to`.
std::vector<Taps> make_taps(const Line& line, std::int64_t to, std::int64_t begin, std::int64_t count) {
  const double scale = line.extent / static_cast<double>(to);
  const double width = std::max(scale, 1.0);
  std::vector<Taps> all;
  for (std::int64_t i = begin; i < begin + count; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale - line.before;
    const std::int64_t first = std::max<std::int64_t>(0, std::llround(centre - width));
    const std::int64_t end = std::min<std::int64_t>(line.pixels, std::llround(centre + width));
    std::vector<double> weights;
    double sum = 0;
    for (std::int64_t at = first; at < end; ++at) {
      const double distance = std::abs(static_cast<double>(at) + 0.5 - centre) / width;
      weights.push_back(std::max(0.0, 1.0 - distance));
      sum += weights.back();
    }
    Taps taps{first, {}};
    for (const double weight : weights) {
      taps.weights.push_back(static_cast<std::int32_t>(std::lround(weight / sum * (1 << kWeightBits))));
    }
    all.push_back(std::move(taps));
  }
  return all;
}

std::uint8_t to_byte(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp((sum + (1 << (kWeightBits - 1))) >> kWeightBits, 0, 255));
}

/// Weighted sum of three channels, `step` bytes from pixel to pixel.
void apply(const Taps& taps, const std::uint8_t* line, std::int64_t step, std::uint8_t* out) {
  std::int32_t sums[3] = {0, 0, 0};
  const std::uint8_t* pixel = line + taps.first * step;
  for (const std::int32_t weight : taps.weights) {
    for (int c = 0; c < 3; ++c) sums[c] += weight * pixel[c];
    pixel += step;
  }
  for (int c = 0; c < 3; ++c) out[c] = to_byte(sums[c]);
}

}  // namespace

RgbImage resize_and_crop(const RgbImage& image, std::int64_t size) {
  return resize_and_crop(image, {{image.h, image.w}}, size);
}

RgbImage resize_and_crop(const RgbImage& image, const Picture& picture, std::int64_t size) {
  const auto [h, w] = picture.size;
  const std::int64_t shorter = std::min(h, w);
  const std::int64_t full_h = std::max(size, h * size / shorter), full_w = std::max(size, w * size / shorter);
  const Line across = make_line(image.w, w, picture.eighths, picture.mirrored_x);
  const Line down = make_line(image.h, h, picture.eighths, picture.mirrored_y);
  const std::vector<Taps> columns = make_taps(across, full_w, (full_w - size) / 2, size);
  const std::vector<Taps> rows = make_taps(down, full_h, (full_h - size) / 2, size);
  // Rows that the result needs, resized in width.
  const std::int64_t top = rows.front().first;
  const std::int64_t bottom = rows.back().first + static_cast<std::int64_t>(rows.back().weights.size());
  std::vector<std::uint8_t> narrow(static_cast<std::size_t>((bottom - top) * size * 3));
  for (std::int64_t y = top; y < bottom; ++y) {
    std::uint8_t* out = narrow.data() + (y - top) * size * 3;
    for (std::int64_t x = 0; x < size; ++x) {
      apply(columns[static_cast<std::size_t>(x)], image.pixels.data() + y * image.w * 3, 3, out + 3 * x);
    }
  }
  RgbImage result{size, size, std::vector<std::uint8_t>(static_cast<std::size_t>(size * size * 3))};
  for (std::int64_t y = 0; y < size; ++y) {
    Taps taps = rows[static_cast<std::size_t>(y)];
    taps.first -= top;
    for (std::int64_t x = 0; x < size; ++x) {
      apply(taps, narrow.data() + 3 * x, 3 * size, result.pixels.data() + 3 * (y * size + x));
    }
  }
  return result;
}

}  // namespace renai
