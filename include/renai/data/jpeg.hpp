#pragma once
// JpegDecoder: parts of JPEG images, decoded no larger than needed. No libjpeg type appears here.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>

#include "renai/data/augmentation.hpp"

namespace renai {

/// Why an image cannot be decoded. Callers add which one it is.
class JpegError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Height and width as they are to be seen: EXIF orientation applied.
struct ImageSize {
  std::int64_t h = 0, w = 0;
  bool operator==(const ImageSize&) const = default;
};

/// How much of the pixels to keep of a box.
struct DecodeGoal {
  std::int64_t least_h = 0, least_w = 0;  ///< What the network sees: the region is not smaller, where it can be.
  std::int64_t most_h = 0, most_w = 0;    ///< Room: the region is never larger.
};

/// What becomes of a box: it is decoded at M / 8 of its size, and where that is larger than `region`, averaged to it.
struct DecodeScale {
  int eighths = 8;
  ImageSize region;
};

/// The smallest of eight scales at which the box is not smaller than the goal; where that has no room, areas are
/// averaged to the largest region that has. `size` is the image's. A pure function.
DecodeScale choose_scale(const ImageSize& size, const PixelBox& box, const DecodeGoal& goal);

/// Decodes one image at a time; one object a thread. Grey and CMYK images become RGB, EXIF orientation is applied,
/// progressive images are images like others. Whatever libjpeg warns of (bytes missing, damaged codes) is an error:
/// pixels are right or there are none. Determinism: pixels are a pure function of bytes, box and goal.
class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  /// Reads the header. `bytes` must live until the image is decoded. Errors: JpegError.
  ImageSize open(std::span<const std::byte> bytes);
  /// EXIF orientation of the image last opened, 1 to 8.
  int orientation() const;
  /// Decodes a box of the image just opened, once. Row r of the region is put at out + r * row_bytes, 3 bytes a pixel.
  /// Returns the region's size: box and goal as in choose_scale(). Errors: JpegError.
  ImageSize decode(const PixelBox& box, const DecodeGoal& goal, std::byte* out, std::int64_t row_bytes);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace renai
