#include "area_average.hpp"

#include <algorithm>

#include "renai/base/check.hpp"

namespace renai {
namespace {

constexpr std::int64_t kOne = 1 << 16;

}  // namespace

void AreaAverage::make_taps(std::int64_t from, std::int64_t to, std::vector<Tap>& taps) {
  taps.resize(static_cast<std::size_t>(from));
  // In units of which a pixel of the input is `to` long and one of the output `from`.
  for (std::int64_t i = 0; i < from; ++i) {
    const std::int64_t begin = i * to, end = begin + to, place = begin / from, border = (place + 1) * from;
    const auto share = [&](std::int64_t at) { return (at - place * from) * kOne / from; };
    Tap& tap = taps[static_cast<std::size_t>(i)];
    tap.here = static_cast<std::uint32_t>(share(std::min(end, border)) - share(begin));
    tap.ends = end >= border;
    tap.next = static_cast<std::uint32_t>(end > border ? (end - border) * kOne / from : 0);
  }
}

void AreaAverage::start(const ImageSize& from, const ImageSize& to, std::uint8_t* out, std::int64_t row_bytes) {
  RENAI_CHECK(to.h >= 1 && to.w >= 1 && to.h <= from.h && to.w <= from.w, "an average is no larger than its image");
  make_taps(from.w, to.w, columns_);
  make_taps(from.h, to.h, rows_);
  line_.resize(static_cast<std::size_t>(3 * to.w));
  sums_.assign(line_.size(), 0);
  out_ = out;
  row_bytes_ = row_bytes;
  next_row_ = 0;
}

void AreaAverage::average_across(const std::uint8_t* pixels) {
  std::uint32_t* place = line_.data();
  std::uint32_t red = 0, green = 0, blue = 0;
  for (const Tap& tap : columns_) {
    red += tap.here * pixels[0];
    green += tap.here * pixels[1];
    blue += tap.here * pixels[2];
    if (tap.ends) {
      place[0] = (red + (1u << 7)) >> 8;
      place[1] = (green + (1u << 7)) >> 8;
      place[2] = (blue + (1u << 7)) >> 8;
      place += 3;
      red = tap.next * pixels[0];
      green = tap.next * pixels[1];
      blue = tap.next * pixels[2];
    }
    pixels += 3;
  }
}

void AreaAverage::add_row(const std::uint8_t* pixels) {
  average_across(pixels);
  const Tap tap = rows_[next_row_++];
  const std::size_t count = line_.size();
  std::uint32_t* sums = sums_.data();
  const std::uint32_t* line = line_.data();
  if (!tap.ends) {
    for (std::size_t i = 0; i < count; ++i) sums[i] += tap.here * line[i];
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    out_[i] = static_cast<std::uint8_t>((sums[i] + tap.here * line[i] + (1u << 23)) >> 24);
    sums[i] = tap.next * line[i];
  }
  out_ += row_bytes_;
}

}  // namespace renai
