#include "renai/data/jpeg.hpp"

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

// After <cstdio>, which it needs.
#include <jpeglib.h>
// After that, which it needs.
#include <jerror.h>

#include "area_average.hpp"
#include "jpeg_scale.hpp"
#include "orientation.hpp"
#include "renai/base/check.hpp"

namespace renai {
namespace {

/// Larger images are taken for damage. All coefficients of a progressive one are in memory at once, some bytes a pixel.
constexpr std::int64_t kMostPixels = std::int64_t{1} << 28, kMostProgressivePixels = std::int64_t{1} << 26;
constexpr int kExifMarker = JPEG_APP0 + 1;
constexpr unsigned kWholeMarker = 0xFFFF;
/// Rows that begin at a multiple of this libjpeg-turbo writes past the caches, from where they are slow to read back.
constexpr std::uintptr_t kVectorBytes = 16;

/// libjpeg's error handler, first, and what ours needs.
struct ErrorState {
  jpeg_error_mgr manager;
  std::jmp_buf back;
  std::array<char, JMSG_LENGTH_MAX> message;
};

[[noreturn]] void leave(j_common_ptr info) {
  auto* state = reinterpret_cast<ErrorState*>(info->err);
  state->manager.format_message(info, state->message.data());
  std::longjmp(state->back, 1);
}

/// Level -1 is a warning: libjpeg would go on with pixels that it made up, except after the warnings named here.
/// Photographs of some cameras and tools carry bytes that belong to no segment, or headers of a later version.
void refuse_warning(j_common_ptr info, int level) {
  if (level >= 0) return;
  const int code = info->err->msg_code;
  if (code == JWRN_EXTRANEOUS_DATA || code == JWRN_JFIF_MAJOR || code == JWRN_ADOBE_XFORM) return;
  leave(info);
}

void say_nothing(j_common_ptr) {}

/// (a * b) / 255, rounded.
std::uint8_t multiply(unsigned a, unsigned b) {
  const unsigned product = a * b + 128;
  return static_cast<std::uint8_t>(((product >> 8) + product) >> 8);
}

}  // namespace

struct JpegDecoder::Impl {
  jpeg_decompress_struct info{};
  ErrorState error{};
  int orientation = 1;
  bool opened = false;
  // Of the image being decoded.
  PixelBox scaled;                 ///< In stored pixels at the scale chosen.
  bool averaged = false;           ///< Whether the region is smaller than that.
  JDIMENSION first_x = 0;          ///< Scaled pixel at which libjpeg's rows begin.
  JDIMENSION first_y = 0;          ///< The row that it gives first.
  std::uint8_t* target = nullptr;  ///< The region, as stored.
  std::int64_t target_row_bytes = 0;
  std::vector<std::uint8_t> line;    ///< Room for one row from libjpeg.
  std::vector<std::uint8_t> region;  ///< The region, before it is turned.
  AreaAverage average;

  Impl() {
    info.err = jpeg_std_error(&error.manager);
    error.manager.error_exit = leave;
    error.manager.emit_message = refuse_warning;
    error.manager.output_message = say_nothing;
    run([](Impl& self) {
      jpeg_create_decompress(&self.info);
      jpeg_save_markers(&self.info, kExifMarker, kWholeMarker);
    });
  }
  ~Impl() { jpeg_destroy_decompress(&info); }

  /// Runs a step that libjpeg may leave by longjmp: no step owns anything.
  template <typename Step>
  void run(Step step) {
    if (setjmp(error.back) == 0) {
      step(*this);
      return;
    }
    jpeg_abort_decompress(&info);
    opened = false;
    throw JpegError(error.message.data());
  }

  void check_header() const {
    const std::int64_t pixels = std::int64_t{info.image_width} * info.image_height;
    const std::int64_t most = info.progressive_mode != 0 ? kMostProgressivePixels : kMostPixels;
    if (pixels > most) {
      throw JpegError("it has " + std::to_string(pixels) + " pixels; at most " + std::to_string(most) +
                      (info.progressive_mode != 0 ? " are decoded of a progressive image" : " are decoded"));
    }
    switch (info.jpeg_color_space) {
      case JCS_GRAYSCALE:
      case JCS_RGB:
      case JCS_YCbCr:
      case JCS_CMYK:
      case JCS_YCCK: return;
      default: throw JpegError("the meaning of its " + std::to_string(info.num_components) + " channels is not known");
    }
  }

  ImageSize stored_size() const { return {info.image_height, info.image_width}; }

  int read_orientation() const {
    for (jpeg_saved_marker_ptr marker = info.marker_list; marker != nullptr; marker = marker->next) {
      if (marker->marker != kExifMarker) continue;
      const int found = exif_orientation({marker->data, marker->data_length});
      if (found != 1) return found;
    }
    return 1;
  }

  void start() {
    jpeg_start_decompress(&info);
    first_x = first_y = 0;
    // Of images with such blocks at a scale, the library's parts are not those of its whole image.
    constexpr int kMostFactors = 4;
    if (info.max_h_samp_factor * info.max_v_samp_factor > kMostFactors) return;
    first_x = static_cast<JDIMENSION>(scaled.x);
    auto width = static_cast<JDIMENSION>(scaled.w);
    if (width < info.output_width) jpeg_crop_scanline(&info, &first_x, &width);
    if (scaled.y > 0) first_y = jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(scaled.y));
  }

  void read_rows() {
    JSAMPROW row = line.data();
    if (reinterpret_cast<std::uintptr_t>(row) % kVectorBytes == 0) ++row;
    for (std::int64_t y = first_y - scaled.y; y < scaled.h; ++y) {
      // A source in memory never suspends: one row comes, or an error.
      jpeg_read_scanlines(&info, &row, 1);
      if (y < 0) continue;
      std::uint8_t* pixels = row + (scaled.x - first_x) * info.output_components;
      if (info.output_components == 4) to_rgb(pixels);
      if (averaged) {
        average.add_row(pixels);
      } else {
        std::memcpy(target + y * target_row_bytes, pixels, static_cast<std::size_t>(3 * scaled.w));
      }
    }
  }

  /// In place. Inks are stored inverted, as Adobe's programs write them and all others since.
  void to_rgb(std::uint8_t* pixels) const {
    for (std::int64_t x = 0; x < scaled.w; ++x) {
      const std::uint8_t* ink = pixels + 4 * x;
      const unsigned key = ink[3];
      const std::array<unsigned, 3> paper{ink[0], ink[1], ink[2]};
      for (std::size_t k = 0; k < 3; ++k) {
        pixels[3 * x + static_cast<std::int64_t>(k)] = static_cast<std::uint8_t>(key - multiply(255u - paper[k], key));
      }
    }
  }
};

JpegDecoder::JpegDecoder() : impl_(std::make_unique<Impl>()) {}
JpegDecoder::~JpegDecoder() = default;

ImageSize JpegDecoder::open(std::span<const std::byte> bytes) {
  Impl& self = *impl_;
  jpeg_abort_decompress(&self.info);
  self.opened = false;
  if (bytes.empty()) throw JpegError("it has no bytes");
  self.run([bytes](Impl& at) {
    jpeg_mem_src(&at.info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_read_header(&at.info, TRUE);
  });
  self.check_header();
  self.orientation = self.read_orientation();
  self.opened = true;
  const ImageSize stored = self.stored_size();
  return is_transposed(self.orientation) ? ImageSize{stored.w, stored.h} : stored;
}

int JpegDecoder::orientation() const { return impl_->orientation; }

ImageSize JpegDecoder::decode(const PixelBox& box, const DecodeGoal& goal, std::byte* out, std::int64_t row_bytes) {
  Impl& self = *impl_;
  RENAI_CHECK(self.opened, "an image was opened");
  self.opened = false;
  const bool transposed = is_transposed(self.orientation);
  const ImageSize stored = self.stored_size(), seen = transposed ? ImageSize{stored.w, stored.h} : stored;
  const PixelBox place = stored_box(self.orientation, seen, box);
  const DecodeGoal as_stored = transposed ? DecodeGoal{goal.least_w, goal.least_h, goal.most_w, goal.most_h} : goal;
  const DecodeScale scale = choose_scale(stored, place, as_stored);
  self.scaled = scale_box(stored, place, scale.eighths);
  self.averaged = scale.region != ImageSize{self.scaled.h, self.scaled.w};

  jpeg_decompress_struct& info = self.info;
  info.scale_num = static_cast<unsigned>(scale.eighths);
  info.scale_denom = 8;
  info.dct_method = JDCT_ISLOW;
  const bool inks = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.out_color_space = inks ? JCS_CMYK : JCS_RGB;
  self.run([](Impl& at) { at.start(); });
  RENAI_CHECK(info.output_components == (inks ? 4 : 3) &&
                  self.first_x + info.output_width >= static_cast<JDIMENSION>(self.scaled.x + self.scaled.w),
              "libjpeg scales to the size that was chosen");
  self.line.resize(static_cast<std::size_t>(info.output_width) * static_cast<std::size_t>(info.output_components) + 1);
  const bool turned = self.orientation != 1;
  if (turned) self.region.resize(static_cast<std::size_t>(3 * scale.region.h * scale.region.w));
  self.target = turned ? self.region.data() : reinterpret_cast<std::uint8_t*>(out);
  self.target_row_bytes = turned ? 3 * scale.region.w : row_bytes;
  if (self.averaged) {
    self.average.start({self.scaled.h, self.scaled.w}, scale.region, self.target, self.target_row_bytes);
  }
  self.run([](Impl& at) { at.read_rows(); });
  jpeg_abort_decompress(&info);
  if (!turned) return scale.region;
  orient_pixels(self.orientation, self.region.data(), scale.region, reinterpret_cast<std::uint8_t*>(out), row_bytes);
  return transposed ? ImageSize{scale.region.w, scale.region.h} : scale.region;
}

}  // namespace renai
