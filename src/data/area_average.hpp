#pragma once
// AreaAverage: makes an image smaller by any factor; each pixel is the mean of the area that it covers.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "renai/data/jpeg.hpp"

namespace renai {

/// Rows of 3 bytes a pixel go in one after the other, smaller ones come out. Determinism: integers only.
class AreaAverage {
 public:
  /// `to` is at most `from` on each side. Row r of the result is put at out + r * row_bytes.
  void start(const ImageSize& from, const ImageSize& to, std::uint8_t* out, std::int64_t row_bytes);
  void add_row(const std::uint8_t* pixels);

 private:
  /// Where a pixel of the input goes: a share of it to the pixel of the output at work and, where it `ends` that one,
  /// the rest to the next. The shares that a pixel of the output gets add up to 2^16.
  struct Tap {
    std::uint32_t here = 0, next = 0;
    bool ends = false;
  };
  static void make_taps(std::int64_t from, std::int64_t to, std::vector<Tap>& taps);
  void average_across(const std::uint8_t* pixels);

  std::vector<Tap> columns_, rows_;
  std::vector<std::uint32_t> line_;  ///< One row of the input, averaged across: 2^8 a grey level.
  std::vector<std::uint32_t> sums_;  ///< The row of the output at work: 2^24 a grey level.
  std::uint8_t* out_ = nullptr;
  std::int64_t row_bytes_ = 0;
  std::size_t next_row_ = 0;
};

}  // namespace renai
