#include "jpeg_encoder.hpp"

#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>

// After <cstdio>, which it needs.
#include <jpeglib.h>

#include "image_error.hpp"

namespace renai {
namespace {

/// libjpeg's error handler, first, and what ours needs.
struct EncodeErrors {
  jpeg_error_mgr manager;
  std::jmp_buf back;
  std::array<char, JMSG_LENGTH_MAX> message;
};

[[noreturn]] void leave(j_common_ptr info) {
  auto* errors = reinterpret_cast<EncodeErrors*>(info->err);
  errors->manager.format_message(info, errors->message.data());
  std::longjmp(errors->back, 1);
}

/// Owns the encoder and the bytes that libjpeg allocates.
struct Encoder {
  jpeg_compress_struct info{};
  EncodeErrors errors{};
  unsigned char* bytes = nullptr;
  unsigned long size_bytes = 0;

  Encoder() {
    info.err = jpeg_std_error(&errors.manager);
    errors.manager.error_exit = leave;
  }
  ~Encoder() {
    jpeg_destroy_compress(&info);
    std::free(bytes);
  }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  void encode(const RgbImage& image) {
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &bytes, &size_bytes);
    info.image_width = static_cast<JDIMENSION>(image.w);
    info.image_height = static_cast<JDIMENSION>(image.h);
    info.input_components = 3;
    info.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, kEncodedQuality, TRUE);
    for (int i = 0; i < info.num_components; ++i) info.comp_info[i].h_samp_factor = info.comp_info[i].v_samp_factor = 1;
    info.dct_method = JDCT_ISLOW;
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < info.image_height) {
      const auto at = static_cast<std::size_t>(info.next_scanline) * info.image_width * 3;
      JSAMPROW row =
          const_cast<JSAMPROW>(image.pixels.data() + at);  // Read only, though libjpeg's type does not say so.
      jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
  }
};

}  // namespace

std::vector<std::byte> encode_jpeg(const RgbImage& image) {
  Encoder encoder;
  if (setjmp(encoder.errors.back) != 0) {
    throw ImageError(std::string("it cannot be encoded: ") + encoder.errors.message.data());
  }
  encoder.encode(image);
  std::vector<std::byte> bytes(encoder.size_bytes);
  std::memcpy(bytes.data(), encoder.bytes, bytes.size());
  return bytes;
}

}  // namespace renai
