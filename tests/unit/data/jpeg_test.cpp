// JpegDecoder beside PIL, which read the images of tests/golden/jpeg.h5; scales, boxes, and what is refused.
#include "renai/data/jpeg.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

// After <cstdio>, which it needs.
#include <jpeglib.h>

#include "../../../src/data/area_average.hpp"
#include "../../../src/data/jpeg_scale.hpp"
#include "../../../src/data/orientation.hpp"
#include "data_files.hpp"
#include "renai/io/hdf5.hpp"

namespace renai {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

constexpr std::int64_t kRoom = 1 << 14;

struct Pixels {
  ImageSize size;
  std::vector<std::byte> bytes;

  int at(std::int64_t y, std::int64_t x, std::int64_t c) const {
    return static_cast<int>(bytes[static_cast<std::size_t>((y * size.w + x) * 3 + c)]);
  }
};

class Jpeg : public ::testing::Test {
 protected:
  std::vector<std::byte> bytes_of(const std::string& name) {
    const std::int64_t count = golden.info(name + "/bytes").extents[0];
    std::vector<std::byte> bytes(static_cast<std::size_t>(count));
    golden.read(name + "/bytes", DType::u8, 0, count, bytes);
    return bytes;
  }
  Pixels wanted(const std::string& name, int eighths) {
    const std::string dataset = name + "/pixels" + std::to_string(eighths);
    const auto extents = golden.info(dataset).extents;
    Pixels pixels{{extents[0], extents[1]},
                  std::vector<std::byte>(static_cast<std::size_t>(extents[0] * extents[1] * 3))};
    golden.read(dataset, DType::u8, 0, extents[0], pixels.bytes);
    return pixels;
  }
  /// A box; a goal of one pixel and so much room picks the scale by the room, one of huge extents by the goal.
  Pixels decoded(const std::vector<std::byte>& bytes, const PixelBox& box, const DecodeGoal& goal) {
    decoder.open(bytes);
    constexpr std::int64_t kStride = 512;
    std::vector<std::byte> rows(static_cast<std::size_t>(512 * kStride), std::byte{0xEE});
    Pixels pixels;
    pixels.size = decoder.decode(box, goal, rows.data(), kStride);
    for (std::int64_t y = 0; y < 512; ++y) {
      for (std::int64_t x = 0; x < kStride; ++x) {
        const std::byte value = rows[static_cast<std::size_t>(y * kStride + x)];
        if (y < pixels.size.h && x < 3 * pixels.size.w) {
          pixels.bytes.push_back(value);
        } else {
          EXPECT_EQ(value, std::byte{0xEE}) << "written outside of the region at " << y << ", " << x;
        }
      }
    }
    return pixels;
  }
  Pixels whole(const std::vector<std::byte>& bytes, int eighths) {
    const ImageSize size = decoder.open(bytes);
    const PixelBox box{0, 0, size.h, size.w};
    const PixelBox scaled = scale_box(size, box, eighths);
    return decoded(bytes, box, {scaled.h, scaled.w, kRoom, kRoom});
  }

  H5File golden = H5File::open(std::string(RENAI_GOLDEN_DIR) + "/jpeg.h5");
  JpegDecoder decoder;
};

/// Between a part and the pixels of the whole from (y, x) on; `margin` pixels at the part's sides are left out.
int largest_difference(const Pixels& part, const Pixels& whole, std::int64_t y, std::int64_t x,
                       std::int64_t margin = 0) {
  int largest = 0;
  for (std::int64_t i = margin; i < part.size.h - margin; ++i) {
    for (std::int64_t j = margin; j < part.size.w - margin; ++j) {
      for (std::int64_t c = 0; c < 3; ++c) {
        largest = std::max(largest, std::abs(part.at(i, j, c) - whole.at(y + i, x + j, c)));
      }
    }
  }
  return largest;
}

/// Mean over the area that a pixel of a smaller image of size `to` covers.
double mean_of(const Pixels& image, const ImageSize& to, std::int64_t y, std::int64_t x, std::int64_t c) {
  const auto overlap = [](std::int64_t from, std::int64_t size, std::int64_t out, std::int64_t in) {
    const double scale = static_cast<double>(from) / static_cast<double>(size);
    const double begin = std::max(static_cast<double>(out) * scale, static_cast<double>(in));
    return std::max(0.0, std::min(static_cast<double>(out + 1) * scale, static_cast<double>(in + 1)) - begin);
  };
  double sum = 0, area = 0;
  for (std::int64_t i = 0; i < image.size.h; ++i) {
    const double rows = overlap(image.size.h, to.h, y, i);
    if (rows == 0.0) continue;
    for (std::int64_t j = 0; j < image.size.w; ++j) {
      const double part = rows * overlap(image.size.w, to.w, x, j);
      sum += part * image.at(i, j, c);
      area += part;
    }
  }
  return sum / area;
}

TEST_F(Jpeg, WholeImagesOfEveryKindAreAsPilReadsThem) {
  int compared = 0;
  for (const std::string& name : golden.children("/")) {
    const std::vector<std::byte> bytes = bytes_of(name);
    for (const int eighths : {8, 4, 2, 1}) {
      if (!golden.exists(name + "/pixels" + std::to_string(eighths))) continue;
      SCOPED_TRACE(name + " at " + std::to_string(eighths) + "/8");
      const Pixels expected = wanted(name, eighths), got = whole(bytes, eighths);
      const bool turned = name.starts_with("orientation");
      if (turned && got.size != expected.size) continue;
      // The last row and column of a scaled image may hold less than half of a pixel: a box leaves them out.
      ASSERT_TRUE(expected.size.h - got.size.h == 0 || expected.size.h - got.size.h == 1);
      ASSERT_TRUE(expected.size.w - got.size.w == 0 || expected.size.w - got.size.w == 1);
      EXPECT_LE(largest_difference(got, expected, 0, 0), 1);
      ++compared;
    }
  }
  EXPECT_GE(compared, 45);
}

/// A box is the same pixels as in the whole image; next to its sides, chroma has no neighbour to be smoothed with.
TEST_F(Jpeg, BoxesArePartsOfTheWholeImage) {
  for (const char* name :
       {"yuv420", "yuv422", "yuv444", "grey", "cmyk", "progressive", "orientation3", "orientation6"}) {
    const std::vector<std::byte> bytes = bytes_of(name);
    const ImageSize size = decoder.open(bytes);
    const bool turned = std::string(name).starts_with("orientation");
    for (const int eighths : {8, 7, 6, 5, 4, 3, 2, 1}) {
      if (turned && eighths < 8) continue;  // Borders at one half of a pixel fall elsewhere.
      const Pixels all = whole(bytes, eighths);
      for (const PixelBox& box : {PixelBox{0, 0, 20, 30}, PixelBox{11, 17, 29, 23},
                                  PixelBox{size.h - 9, size.w - 14, 9, 14}, PixelBox{3, 0, size.h - 3, size.w}}) {
        SCOPED_TRACE(std::string(name) + " at " + std::to_string(eighths) + "/8, box at " + std::to_string(box.y) +
                     ", " + std::to_string(box.x));
        const PixelBox scaled = scale_box(size, box, eighths);
        const Pixels part = decoded(bytes, box, {scaled.h, scaled.w, scaled.h, scaled.w});
        ASSERT_EQ(part.size, (ImageSize{scaled.h, scaled.w}));
        EXPECT_LE(largest_difference(part, all, scaled.y, scaled.x, 1), 1);
      }
    }
  }
}

/// A JPEG image whose luma has `h` x `v` times the samples of its chroma.
std::vector<std::byte> encode_with_factors(int h, int v) {
  constexpr int kHeight = 75, kWidth = 93;
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long count = 0;
  jpeg_mem_dest(&info, &bytes, &count);
  info.image_width = kWidth;
  info.image_height = kHeight;
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  info.comp_info[0].h_samp_factor = h;
  info.comp_info[0].v_samp_factor = v;
  jpeg_start_compress(&info, TRUE);
  std::vector<std::uint8_t> line(3 * kWidth);
  for (int y = 0; y < kHeight; ++y) {
    for (int at = 0; at < 3 * kWidth; ++at) {
      const int c = at % 3, x = at / 3;
      line[static_cast<std::size_t>(at)] = static_cast<std::uint8_t>(40 + (x / 16 + y / (16 + c)) % 2 * 160 + x % 9);
    }
    JSAMPROW row = line.data();
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const auto* begin = reinterpret_cast<const std::byte*>(bytes);
  std::vector<std::byte> result(begin, begin + count);
  std::free(bytes);
  return result;
}

TEST_F(Jpeg, BoxesOfImagesWithAnySamplingArePartsOfTheWhole) {
  for (const auto& [h, v] : {std::pair{2, 2}, std::pair{4, 1}, std::pair{1, 4}, std::pair{4, 2}, std::pair{2, 4}}) {
    const std::vector<std::byte> bytes = encode_with_factors(h, v);
    const ImageSize size = decoder.open(bytes);
    for (int eighths = 1; eighths <= 8; ++eighths) {
      const Pixels all = whole(bytes, eighths);
      for (const PixelBox& box : {PixelBox{0, 0, 20, 30}, PixelBox{37, 51, 29, 33}, PixelBox{20, 0, 55, size.w}}) {
        SCOPED_TRACE(std::to_string(h) + "x" + std::to_string(v) + " at " + std::to_string(eighths) + "/8, box at " +
                     std::to_string(box.y) + ", " + std::to_string(box.x));
        const PixelBox scaled = scale_box(size, box, eighths);
        const Pixels part = decoded(bytes, box, {scaled.h, scaled.w, scaled.h, scaled.w});
        EXPECT_LE(largest_difference(part, all, scaled.y, scaled.x, 1), 1);
      }
    }
  }
}

TEST_F(Jpeg, BoxesThatFitNoScaleAreAveraged) {
  const std::vector<std::byte> bytes = bytes_of("yuv444");
  const Pixels eighth = whole(bytes, 1);
  const ImageSize size = decoder.open(bytes);
  const Pixels small = decoded(bytes, {0, 0, size.h, size.w}, {1, 1, 3, 4});
  EXPECT_EQ(eighth.size, (ImageSize{7, 9}));
  ASSERT_EQ(small.size, (ImageSize{3, 3}));  // By 7 / 3 on both sides.
  for (std::int64_t y = 0; y < 3; ++y) {
    for (std::int64_t x = 0; x < 3; ++x) {
      for (std::int64_t c = 0; c < 3; ++c) EXPECT_NEAR(small.at(y, x, c), mean_of(eighth, small.size, y, x, c), 0.52);
    }
  }
}

TEST_F(Jpeg, TheSmallestScaleThatIsLargeEnoughIsChosen) {
  const auto chosen = [](const ImageSize& size, const PixelBox& box, std::int64_t network) {
    return choose_scale(size, box, {network, network, (3 * network + 1) / 2, (3 * network + 1) / 2});
  };
  const auto expect = [](const DecodeScale& scale, int eighths, const ImageSize& region) {
    EXPECT_EQ(scale.eighths, eighths);
    EXPECT_EQ(scale.region, region);
  };
  expect(chosen({500, 400}, {0, 0, 400, 400}, 224), 5, {250, 250});
  expect(chosen({500, 400}, {10, 20, 100, 90}, 224), 8, {100, 90});
  expect(chosen({500, 400}, {10, 20, 224, 224}, 224), 8, {224, 224});
  expect(chosen({500, 400}, {10, 20, 256, 256}, 224), 7, {224, 224});
  // 1/8 is too small, 2/8 has no room: it is averaged.
  expect(chosen({1700, 1700}, {0, 0, 1600, 1600}, 224), 2, {336, 336});
  expect(chosen({8000, 6000}, {0, 0, 4480, 4480}, 224), 1, {336, 336});
  expect(chosen({8000, 6000}, {0, 0, 4480, 3360}, 224), 1, {336, 252});
  expect(chosen({8000, 6000}, {0, 0, 300, 6000}, 224), 6, {16, 336});
}

TEST(AreaAverage, EachPixelIsTheMeanOfItsArea) {
  std::uint32_t state = 7;
  for (const auto& [from, to] : {std::pair{ImageSize{7, 9}, ImageSize{7, 9}},
                                 {ImageSize{7, 9}, ImageSize{1, 1}},
                                 {ImageSize{40, 31}, ImageSize{17, 30}},
                                 {ImageSize{12, 20}, ImageSize{4, 5}},
                                 {ImageSize{1, 5}, ImageSize{1, 2}},
                                 {ImageSize{500, 375}, ImageSize{336, 252}}}) {
    SCOPED_TRACE(std::to_string(from.h) + "x" + std::to_string(from.w) + " to " + std::to_string(to.h) + "x" +
                 std::to_string(to.w));
    Pixels image{from, std::vector<std::byte>(static_cast<std::size_t>(3 * from.h * from.w))};
    for (std::byte& value : image.bytes) {
      state = state * 1664525u + 1013904223u;
      value = (state >> 30) == 0 ? std::byte{255} : static_cast<std::byte>(state >> 24);
    }
    Pixels small{to, std::vector<std::byte>(static_cast<std::size_t>(3 * to.h * to.w))};
    AreaAverage average;
    average.start(from, to, reinterpret_cast<std::uint8_t*>(small.bytes.data()), 3 * to.w);
    for (std::int64_t y = 0; y < from.h; ++y) {
      average.add_row(reinterpret_cast<const std::uint8_t*>(image.bytes.data()) + 3 * y * from.w);
    }
    for (std::int64_t y = 0; y < to.h; ++y) {
      for (std::int64_t x = 0; x < to.w; ++x) {
        for (std::int64_t c = 0; c < 3; ++c) ASSERT_NEAR(small.at(y, x, c), mean_of(image, to, y, x, c), 0.52);
      }
    }
    std::fill(image.bytes.begin(), image.bytes.end(), std::byte{255});
    average.start(from, to, reinterpret_cast<std::uint8_t*>(small.bytes.data()), 3 * to.w);
    for (std::int64_t y = 0; y < from.h; ++y) {
      average.add_row(reinterpret_cast<const std::uint8_t*>(image.bytes.data()));
    }
    EXPECT_TRUE(std::all_of(small.bytes.begin(), small.bytes.end(), [](std::byte b) { return b == std::byte{255}; }));
  }
}

TEST_F(Jpeg, DamageIsAnErrorAndTheDecoderStaysUsable) {
  const std::vector<std::byte> good = bytes_of("yuv420");
  const Pixels expected = whole(good, 8);
  const auto refused = [&](std::vector<std::byte> bytes) {
    return message_of<JpegError>([&] {
      const ImageSize size = decoder.open(bytes);
      decoded(bytes, {0, 0, size.h, size.w}, {kRoom, kRoom, kRoom, kRoom});
    });
  };
  for (const std::size_t kept :
       {std::size_t{0}, std::size_t{1}, std::size_t{20}, std::size_t{300}, good.size() / 2, good.size() - 40}) {
    SCOPED_TRACE(kept);
    refused({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(kept)});
  }
  EXPECT_THAT(refused({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(good.size() / 2)}),
              HasSubstr("Premature end"));
  std::vector<std::byte> damaged = good;
  damaged[good.size() / 2] = std::byte{0xFF};
  damaged[good.size() / 2 + 1] = std::byte{0xD9};  // The end of an image.
  refused(damaged);
  refused(std::vector<std::byte>(100, std::byte{0x41}));
  EXPECT_EQ(whole(good, 8).bytes, expected.bytes);
}

/// Bytes between two segments, which some cameras leave, take nothing from the pixels.
TEST_F(Jpeg, BytesBetweenSegmentsAreNoDamage) {
  const std::vector<std::byte> good = bytes_of("yuv420");
  const std::size_t first = 2;  // Behind the start of the image; its length stands behind its marker.
  const std::size_t behind =
      first + 2 + std::to_integer<std::size_t>(good[first + 2]) * 256 + std::to_integer<std::size_t>(good[first + 3]);
  std::vector<std::byte> longer = good;
  longer.insert(longer.begin() + static_cast<std::ptrdiff_t>(behind), {std::byte{0}, std::byte{17}, std::byte{34}});
  EXPECT_EQ(whole(longer, 8).bytes, whole(good, 8).bytes);
}

TEST_F(Jpeg, HugeImagesAreTakenForDamage) {
  std::vector<std::byte> bytes = bytes_of("yuv444");
  for (std::size_t i = 0; i + 9 < bytes.size(); ++i) {
    if (bytes[i] != std::byte{0xFF} || bytes[i + 1] != std::byte{0xC0}) continue;
    for (std::size_t k = 5; k < 9; ++k) bytes[i + k] = std::byte{0xF0};  // Height and width 61680.
    break;
  }
  EXPECT_THAT(message_of<JpegError>([&] { decoder.open(bytes); }), HasSubstr("pixels"));
}

TEST(Orientation, DamagedExifMeansAsStored) {
  std::vector<std::uint8_t> marker{'E', 'x', 'i', 'f',  0, 0, 'M', 'M', 0, 42, 0, 0, 0, 8,
                                   0,   1,   1,   0x12, 0, 3, 0,   0,   0, 1,  0, 6, 0, 0};
  EXPECT_EQ(exif_orientation(marker), 6);
  for (std::size_t kept = 0; kept < 24; ++kept) EXPECT_EQ(exif_orientation({marker.data(), kept}), 1) << kept;
  const auto with = [&](std::size_t at, std::uint8_t value) {
    std::vector<std::uint8_t> changed = marker;
    changed[at] = value;
    return exif_orientation(changed);
  };
  EXPECT_EQ(with(25, 9), 1);
  EXPECT_EQ(with(25, 0), 1);
  EXPECT_EQ(with(6, 'I'), 1);
  EXPECT_EQ(with(9, 41), 1);
  EXPECT_EQ(with(10, 0xFF), 1) << "a directory far outside";
  EXPECT_EQ(with(14, 0xFF), 6) << "more entries than there are, after the one that counts";
  EXPECT_EQ(with(19, 4), 1) << "another type";
}

}  // namespace
}  // namespace renai
