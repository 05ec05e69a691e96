// Which size a box of a JPEG image is decoded at.
#include "jpeg_scale.hpp"

#include <algorithm>

#include "renai/base/check.hpp"

namespace renai {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

PixelBox scale_box(const ImageSize& size, const PixelBox& box, int eighths) {
  const auto nearest = [eighths](std::int64_t at) { return (at * eighths + 4) / 8; };
  const std::int64_t scaled_h = ceil_div(size.h * eighths, 8), scaled_w = ceil_div(size.w * eighths, 8);
  PixelBox scaled;
  scaled.y = std::min(nearest(box.y), scaled_h - 1);
  scaled.x = std::min(nearest(box.x), scaled_w - 1);
  scaled.h = std::clamp<std::int64_t>(nearest(box.y + box.h) - scaled.y, 1, scaled_h - scaled.y);
  scaled.w = std::clamp<std::int64_t>(nearest(box.x + box.w) - scaled.x, 1, scaled_w - scaled.x);
  return scaled;
}

DecodeScale choose_scale(const ImageSize& size, const PixelBox& box, const DecodeGoal& goal) {
  RENAI_CHECK(box.y >= 0 && box.x >= 0 && box.h > 0 && box.w > 0 && box.y + box.h <= size.h && box.x + box.w <= size.w,
              "a box lies in its image");
  RENAI_CHECK(goal.most_h > 0 && goal.most_w > 0, "there is room for a region");
  const auto region = [&](int eighths) {
    const PixelBox scaled = scale_box(size, box, eighths);
    return ImageSize{scaled.h, scaled.w};
  };
  const auto too_small = [&goal](const ImageSize& r) { return r.h < goal.least_h || r.w < goal.least_w; };
  DecodeScale scale{1, region(1)};
  while (scale.eighths < 8 && too_small(scale.region)) scale.region = region(++scale.eighths);
  if (scale.region.h <= goal.most_h && scale.region.w <= goal.most_w) return scale;
  // Both sides by the factor of the one that needs it more.
  const ImageSize decoded = scale.region;
  if (decoded.h * goal.most_w > decoded.w * goal.most_h) {
    scale.region = {goal.most_h, std::max<std::int64_t>(decoded.w * goal.most_h / decoded.h, 1)};
  } else {
    scale.region = {std::max<std::int64_t>(decoded.h * goal.most_w / decoded.w, 1), goal.most_w};
  }
  return scale;
}

}  // namespace renai
