#include "pixel_values.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "renai/base/error.hpp"
#include "shape_text.hpp"

namespace renai {
namespace {

constexpr std::int64_t kMostChannels = 4;
constexpr std::int64_t kMostSide = 1 << 16;  ///< As a manifest may say; an image then has at most 2^34 values.

std::string number_text(double value) {
  char text[64];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

[[noreturn]] void refuse(const std::string& what, std::span<const std::int64_t> extents, const std::string& why,
                         const std::string& remedy) {
  throw UserError(what + " of shape " + shape_text(extents), why, remedy);
}

bool may_be_channels(std::int64_t extent) { return extent >= 1 && extent <= kMostChannels; }

/// Which of the names an array of four axes has.
std::string name_layout(const std::string& what, std::span<const std::int64_t> extents) {
  const bool last = may_be_channels(extents[3]), first = may_be_channels(extents[1]);
  if (last == first) {
    refuse(what, extents,
           first ? "either its second or its last axis may be the channels" : "no axis can be the channels",
           "say which with --layout nhwc or --layout nchw; images have 1 to 4 channels");
  }
  return last ? "nhwc" : "nchw";
}

bool may_be_side(std::int64_t extent) { return extent >= 1 && extent <= kMostSide; }

PixelLayout unfold(const std::string& what, std::span<const std::int64_t> extents, const LayoutRequest& request,
                   PixelOrder order) {
  if (request.height < 1 || request.width < 1) {
    refuse(what, extents, "its images are flat", "give --height and --width, and --channels where it is not 1");
  }
  // A damaged file may have any extents, whose product would overflow.
  constexpr std::int64_t kMostValues = kMostSide * kMostSide * kMostChannels;
  std::int64_t values = 1;
  for (const std::int64_t extent : extents.subspan(1)) {
    if (extent < 1 || extent > kMostValues / values || !may_be_side(request.height) || !may_be_side(request.width)) {
      refuse(what, extents, "height and width are 1 to 65536, channels 1 to 4", "correct --height and --width");
    }
    values *= extent;
  }
  const std::int64_t pixels = request.height * request.width;
  const std::int64_t channels = request.channels > 0 ? request.channels : values / pixels;
  if (!may_be_channels(channels) || pixels * channels != values) {
    refuse(what, extents,
           std::to_string(values) + " values are no image of " + std::to_string(request.height) + "x" +
               std::to_string(request.width) + (request.channels > 0 ? "x" + std::to_string(request.channels) : ""),
           "correct --height, --width and --channels");
  }
  return {request.height, request.width, channels, order};
}

}  // namespace

PixelLayout find_layout(const std::string& what, std::span<const std::int64_t> extents, const LayoutRequest& request) {
  if (extents.size() < 2) refuse(what, extents, "it is no array of images", "name another dataset with --images");
  if (request.layout == "flat") return unfold(what, extents, request, PixelOrder::hwc);
  if (request.layout == "flat-chw") return unfold(what, extents, request, PixelOrder::chw);
  PixelLayout layout;
  if (extents.size() == 2 && request.layout == "auto") return unfold(what, extents, request, PixelOrder::hwc);
  if (extents.size() == 3) {
    layout = {extents[1], extents[2], 1, PixelOrder::hwc};
  } else if (extents.size() == 4) {
    const std::string name = request.layout == "auto" ? name_layout(what, extents) : request.layout;
    layout = name == "nhwc" ? PixelLayout{extents[1], extents[2], extents[3], PixelOrder::hwc}
                            : PixelLayout{extents[2], extents[3], extents[1], PixelOrder::chw};
  } else {
    refuse(what, extents, "no layout has so many axes",
           "use --layout flat with --height and --width, or another dataset");
  }
  const auto fits = [](std::int64_t asked, std::int64_t found) { return asked == 0 || asked == found; };
  if (!may_be_channels(layout.channels)) {
    refuse(what, extents, "images have 1 to 4 channels", "choose another --layout");
  }
  if (!may_be_side(layout.height) || !may_be_side(layout.width)) {
    refuse(what, extents, "height and width are 1 to 65536", "choose another --layout, or another dataset");
  }
  if (!fits(request.height, layout.height) || !fits(request.width, layout.width) ||
      !fits(request.channels, layout.channels)) {
    refuse(what, extents, "it is not as --height, --width and --channels say", "leave them out, or correct them");
  }
  return layout;
}

void ValueRange::add(std::span<const float> values) {
  for (const float value : values) {
    if (!std::isfinite(value)) {
      finite = false;
      continue;
    }
    least = seen ? std::min(least, static_cast<double>(value)) : value;
    most = seen ? std::max(most, static_cast<double>(value)) : value;
    whole = whole && value == std::floor(value);
    seen = true;
  }
}

void ValueRange::add(const ValueRange& other) {
  if (other.seen) {
    least = seen ? std::min(least, other.least) : other.least;
    most = seen ? std::max(most, other.most) : other.most;
  }
  seen = seen || other.seen;
  whole = whole && other.whole;
  finite = finite && other.finite;
}

namespace {

std::string range_text(const ValueRange& range) { return number_text(range.least) + " to " + number_text(range.most); }

/// 255 or 1 where the values allow one alone, else 0.
double clear_scale(const ValueRange& range) {
  // A set of the scale 0 to 255 whose brightest value is about 1 would be black: it is more likely to be another scale.
  constexpr double kClearlyByte = 2;
  if (!range.finite || range.least < 0) return 0;
  if (range.most <= 1) return range.whole ? 0 : 255;
  return range.most > kClearlyByte && range.most <= 255 ? 1 : 0;
}

}  // namespace

double find_scale(std::span<const NamedRange> arrays) {
  const NamedRange* telling = nullptr;
  for (const NamedRange& array : arrays) {
    const double scale = clear_scale(array.range);
    if (scale == 0) continue;
    if (telling == nullptr) telling = &array;
    if (scale == clear_scale(telling->range)) continue;
    throw UserError(
        "the scale of " + telling->name + " and " + array.name,
        "the values of one, " + range_text(telling->range) + ", look like those of another scale than " +
            range_text(array.range) + " of the other",
        "bring both to one scale, or say which it is with --scale unit (0 to 1) or --scale byte (0 to 255)");
  }
  if (telling != nullptr) return clear_scale(telling->range);
  throw UserError(
      "the scale of " + arrays.front().name,
      "its values from " + range_text(arrays.front().range) + " are not clearly those of 0 to 1 or 0 to 255",
      "say which with --scale unit (0 to 1) or --scale byte (0 to 255)");
}

}  // namespace renai
