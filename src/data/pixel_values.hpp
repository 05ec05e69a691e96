#pragma once
// Arrays of any layout and number type as 8-bit pixels, channels last.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace renai {

/// How a sample's values lie.
enum class PixelOrder { hwc, chw };

/// Of an array of images: what one sample looks like.
struct PixelLayout {
  std::int64_t height = 0, width = 0, channels = 0;
  PixelOrder order = PixelOrder::hwc;
  std::int64_t values() const { return height * width * channels; }
};

/// What is asked for on the command line; 0: as the array says.
struct LayoutRequest {
  std::string layout = "auto";  ///< auto, nhwc, nchw, flat (rows of pixels), flat-chw (planes).
  std::int64_t height = 0, width = 0, channels = 0;
};

/// Errors: UserError naming `what` when the extents fit several layouts or none.
PixelLayout find_layout(const std::string& what, std::span<const std::int64_t> extents, const LayoutRequest& request);

/// Puts one sample's values into `out`, channels last.
template <typename Value>
void reorder(const PixelLayout& layout, const Value* values, Value* out) {
  const std::int64_t pixels = layout.height * layout.width;
  for (std::int64_t at = 0; at < pixels; ++at) {
    for (std::int64_t c = 0; c < layout.channels; ++c) {
      out[at * layout.channels + c] =
          layout.order == PixelOrder::hwc ? values[at * layout.channels + c] : values[c * pixels + at];
    }
  }
}

/// What is seen of the values of floating-point images.
struct ValueRange {
  double least = 0, most = 0;
  bool seen = false, whole = true, finite = true;  ///< whole: none has a fraction.
  void add(std::span<const float> values);
  void add(const ValueRange& other);
};

/// The factor that takes values to 0 ... 255: 255 for "unit", 1 for "byte"; for "auto" what the values allow only one
/// of. Errors: UserError naming `what` when they allow both or neither.
double find_scale(const std::string& what, const std::string& request, const ValueRange& range);

}  // namespace renai
