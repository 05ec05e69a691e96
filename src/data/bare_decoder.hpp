#pragma once
// libjpeg-turbo by itself, which decoding is measured beside.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

// After <cstdio>, which it needs.
#include <jpeglib.h>

#include "renai/data/jpeg.hpp"

namespace renai {

/// The shortest loop around libjpeg-turbo that decodes a whole image: the images were decoded before, so that none
/// fails.
class BareDecoder {
 public:
  BareDecoder() {
    info_.err = jpeg_std_error(&error_);
    jpeg_create_decompress(&info_);
  }
  BareDecoder(const BareDecoder&) = delete;
  BareDecoder& operator=(const BareDecoder&) = delete;
  ~BareDecoder() { jpeg_destroy_decompress(&info_); }

  /// At the scale, in eighths, that `choose` gives for the image's size. Returns bytes of pixels.
  template <typename Choose>
  std::int64_t decode(const std::vector<std::byte>& bytes, Choose choose) {
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_read_header(&info_, TRUE);
    info_.scale_num = static_cast<unsigned>(choose(ImageSize{info_.image_height, info_.image_width}));
    info_.scale_denom = 8;
    if (info_.num_components == 3) info_.out_color_space = JCS_RGB;
    jpeg_start_decompress(&info_);
    const std::size_t row_bytes = std::size_t{info_.output_width} * static_cast<std::size_t>(info_.output_components);
    pixels_.resize(std::max(pixels_.size(), row_bytes * info_.output_height));
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = pixels_.data() + row_bytes * info_.output_scanline;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    jpeg_finish_decompress(&info_);
    return static_cast<std::int64_t>(row_bytes * info_.output_height);
  }

 private:
  jpeg_decompress_struct info_{};
  jpeg_error_mgr error_{};
  std::vector<std::uint8_t> pixels_;
};

}  // namespace renai
