// JpegDecoder beside PIL, which read the images of tests/golden/jpeg.h5; scales, boxes, and what is refused.
#include "renai/data/jpeg.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

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

TEST_F(Jpeg, BoxesThatFitNoScaleAreAveraged) {
  const std::vector<std::byte> bytes = bytes_of("yuv444");
  const Pixels eighth = whole(bytes, 1);
  const ImageSize size = decoder.open(bytes);
  const Pixels small = decoded(bytes, {0, 0, size.h, size.w}, {1, 1, 3, 4});
  EXPECT_EQ(eighth.size, (ImageSize{7, 9}));
  ASSERT_EQ(small.size, (ImageSize{3, 3}));
  for (std::int64_t y = 0; y < 3; ++y) {
    for (std::int64_t x = 0; x < 3; ++x) {
      for (std::int64_t c = 0; c < 3; ++c) {
        int sum = 0, count = 0;
        for (std::int64_t i = 3 * y; i < std::min<std::int64_t>(3 * y + 3, 7); ++i) {
          for (std::int64_t j = 3 * x; j < std::min<std::int64_t>(3 * x + 3, 9); ++j, ++count)
            sum += eighth.at(i, j, c);
        }
        EXPECT_NEAR(small.at(y, x, c), static_cast<double>(sum) / count, 0.51);
      }
    }
  }
}

TEST_F(Jpeg, TheSmallestScaleThatIsLargeEnoughIsChosen) {
  const auto chosen = [](const ImageSize& size, const PixelBox& box, std::int64_t network) {
    return choose_scale(size, box, {network, network, (3 * network + 1) / 2, (3 * network + 1) / 2});
  };
  const auto expect = [](const DecodeScale& scale, int eighths, std::int64_t average, const ImageSize& region) {
    EXPECT_EQ(scale.eighths, eighths);
    EXPECT_EQ(scale.average, average);
    EXPECT_EQ(scale.region, region);
  };
  expect(chosen({500, 400}, {0, 0, 400, 400}, 224), 5, 1, {250, 250});
  expect(chosen({500, 400}, {10, 20, 100, 90}, 224), 8, 1, {100, 90});
  expect(chosen({500, 400}, {10, 20, 224, 224}, 224), 8, 1, {224, 224});
  expect(chosen({500, 400}, {10, 20, 256, 256}, 224), 7, 1, {224, 224});
  // 2/8 has no room for it, so it is enlarged a little.
  expect(chosen({1700, 1700}, {0, 0, 1600, 1600}, 224), 1, 1, {200, 200});
  expect(chosen({8000, 6000}, {0, 0, 4480, 4480}, 224), 1, 2, {280, 280});
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
