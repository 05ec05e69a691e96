#include "png_image.hpp"

#include <csetjmp>
#include <cstring>

// After <csetjmp>, whose jmp_buf it uses.
#include <png.h>

#include "image_error.hpp"
#include "orientation.hpp"

namespace renai {
namespace {

/// What libpng's callbacks reach: the bytes left, and the reason of a failure.
struct PngState {
  std::span<const std::byte> left;
  std::string reason;
};

[[noreturn]] void leave(png_structp png, png_const_charp message) {
  static_cast<PngState*>(png_get_error_ptr(png))->reason = message;
  png_longjmp(png, 1);
}

void say_nothing(png_structp, png_const_charp) {}

void take_bytes(png_structp png, png_bytep out, std::size_t count) {
  auto* state = static_cast<PngState*>(png_get_io_ptr(png));
  if (count > state->left.size()) png_error(png, "it is truncated");
  std::memcpy(out, state->left.data(), count);
  state->left = state->left.subspan(count);
}

constexpr std::size_t kSignature = 8, kChunkName = 4, kAroundChunk = 12;  ///< Length, name and checksum of a chunk.

std::int64_t number_at(std::span<const std::byte> bytes, std::size_t at) {
  std::int64_t value = 0;
  for (std::size_t i = at; i < at + 4; ++i) value = value << 8 | static_cast<std::int64_t>(bytes[i]);
  return value;
}

/// Whether chunks up to the last one lie in the file: libpng takes memory for some before it looks what there is.
void require_whole_chunks(std::span<const std::byte> bytes) {
  for (std::size_t at = kSignature; bytes.size() >= at + kAroundChunk;) {
    const auto size = static_cast<std::size_t>(number_at(bytes, at));
    if (size > bytes.size() - at - kAroundChunk) break;
    if (std::memcmp(bytes.data() + at + kChunkName, "IEND", 4) == 0) return;
    at += kAroundChunk + size;
  }
  throw ImageError("it is truncated");
}

/// Owns libpng's structures.
class PngReader {
 public:
  explicit PngReader(std::span<const std::byte> bytes) : state_{bytes, {}} {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state_, leave, say_nothing);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw std::bad_alloc();
    }
    png_set_read_fn(png_, &state_, take_bytes);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  /// Runs a step that libpng may leave by longjmp: no step owns anything.
  template <typename Step>
  void run(Step step) {
    if (setjmp(png_jmpbuf(png_)) == 0) {
      step(png_, info_);
      return;
    }
    throw ImageError("it is damaged: " + state_.reason);
  }

  png_structp png() const { return png_; }
  png_infop info() const { return info_; }

 private:
  PngState state_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

/// Deflate makes at most 1032 bytes of one: a shorter file cannot hold so many pixels, and no memory is taken for them.
void require_bytes_for_pixels(png_structp png, png_infop info, std::size_t file_bytes) {
  constexpr double kMostInflation = 1032.0;
  const double bits = static_cast<double>(png_get_image_height(png, info)) * png_get_image_width(png, info) *
                      png_get_channels(png, info) * png_get_bit_depth(png, info);
  if (bits / 8 > kMostInflation * static_cast<double>(file_bytes)) png_error(png, "it is truncated");
}

/// Asks libpng for 8-bit RGB whatever is stored.
void ask_for_rgb(png_structp png, png_infop info) {
  const int colour = png_get_color_type(png, info), depth = png_get_bit_depth(png, info);
  if (depth == 16) png_set_scale_16(png);
  if (colour == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (colour == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(png);
  if ((colour & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png);
  png_set_strip_alpha(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
}

int orientation_of(png_structp png, png_infop info) {
  png_uint_32 count = 0;
  png_bytep data = nullptr;
  if (png_get_eXIf_1(png, info, &count, &data) == 0 || data == nullptr) return 1;
  std::vector<std::uint8_t> marker{'E', 'x', 'i', 'f', 0, 0};  // As a JPEG file would hold it.
  marker.insert(marker.end(), data, data + count);
  return exif_orientation(marker);
}

RgbImage turn(const RgbImage& image, int orientation) {
  const bool transposed = is_transposed(orientation);
  RgbImage turned{transposed ? image.w : image.h, transposed ? image.h : image.w, {}};
  turned.pixels.resize(image.pixels.size());
  orient_pixels(orientation, image.pixels.data(), {image.h, image.w}, turned.pixels.data(), 3 * turned.w);
  return turned;
}

}  // namespace

PngSize read_png_size(std::span<const std::byte> bytes) {
  constexpr std::size_t kWidthAt = 16, kEnd = 24;  // After the signature, the first chunk's length and name.
  if (bytes.size() < kEnd) throw ImageError("it is truncated");
  return {number_at(bytes, kWidthAt + 4), number_at(bytes, kWidthAt)};
}

RgbImage decode_png(std::span<const std::byte> bytes) {
  require_whole_chunks(bytes);
  PngReader reader(bytes);
  reader.run([size = bytes.size()](png_structp png, png_infop info) {
    // Without it a chunk beside the pixels whose checksum is wrong is left out, and with it how the image is turned.
    png_set_crc_action(png, PNG_CRC_DEFAULT, PNG_CRC_ERROR_QUIT);
    png_read_info(png, info);
    require_bytes_for_pixels(png, info, size);
    ask_for_rgb(png, info);
  });
  RgbImage image{
      png_get_image_height(reader.png(), reader.info()), png_get_image_width(reader.png(), reader.info()), {}};
  if (png_get_rowbytes(reader.png(), reader.info()) != static_cast<std::size_t>(3 * image.w)) {
    throw ImageError("its pixels are of a kind that is not known");
  }
  image.pixels.resize(static_cast<std::size_t>(3 * image.h * image.w));
  std::vector<png_bytep> rows;
  for (std::int64_t y = 0; y < image.h; ++y) rows.push_back(image.pixels.data() + 3 * image.w * y);
  reader.run([&rows](png_structp png, png_infop info) {
    png_read_image(png, rows.data());
    png_read_end(png, info);  // Checks the rest: a file without its end is truncated.
  });
  const int orientation = orientation_of(reader.png(), reader.info());
  return orientation == 1 ? image : turn(image, orientation);
}

}  // namespace renai
