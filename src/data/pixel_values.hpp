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
  bool seen = false, whole = true, finite = true;  ///< whole: none has a fraction; finite: none is NaN or infinite.
  void add(std::span<const float> values);
  void add(const ValueRange& other);
};

/// The values of one array of images.
struct NamedRange {
  std::string name;
  ValueRange range;
};

/// The factor that takes the values of all arrays of a set to 0 ... 255: 255 for those of 0 to 1, 1 for those of 0 to
/// 255. Arrays whose values do not tell follow those that do. Errors: UserError naming two arrays that contradict each
/// other, or the first one where none tells.
double find_scale(std::span<const NamedRange> arrays);

}  // namespace renai
