// Augmentation: its words, and parameters as a pure function of the sample.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "data_files.hpp"
#include "renai/data/loader.hpp"

namespace renai {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;
using ::testing::Not;

TEST(Augmentation, ParsesAndPrints) {
  for (const std::string text : {"none", "flip", "crop4", "crop12", "crop4,flip", "resized-crop", "resized-crop0.35",
                                 "resized-crop,flip,colour0.4", "colour1", "crop4,flip,colour0.125"}) {
    EXPECT_EQ(Augmentation::parse(text).str(), text);
  }
  EXPECT_EQ(Augmentation::parse("colour,resized-crop0.08").str(), "resized-crop,colour0.4");
  EXPECT_EQ(Augmentation::parse("flip,crop2").str(), "crop2,flip");
}

TEST(Augmentation, RefusesOtherWordsWithTheNearest) {
  EXPECT_THAT(message_of<UserError>([] { Augmentation::parse("flpi"); }), AllOf(HasSubstr("flpi"), HasSubstr("flip")));
  for (const std::string text :
       {"crop", "crop0", "crop-1", "crop4x", "crop99999", "flip,flip", "crop2,crop3", "flip,", ",flip", "none,flip"}) {
    message_of<UserError>([&] { Augmentation::parse(text); });
  }
  for (const std::string text :
       {"resized-crop0", "resized-crop1.5", "resized-crop-1", "colour0", "colour2", "colour0.4x", "crop4,resized-crop",
        "resized-crop,resized-crop0.5", "colour,colour0.1", "colour."}) {
    message_of<UserError>([&] { Augmentation::parse(text); });
  }
  const auto said = [](const char* text) { return message_of<UserError>([&] { Augmentation::parse(text); }); };
  EXPECT_THAT(said("non"), HasSubstr("did you mean 'none'?"));
  EXPECT_THAT(said("crop4,non"), Not(HasSubstr("'none'")));
  EXPECT_THAT(said("crop4x"), HasSubstr("did you mean 'crop4'?"));
  for (const char* text : {"none,flip", "flip,none", "none,none", "flip,", ",flip", "flip,flip", "crop2,crop3", "crop0",
                           "crop99999", "crop"}) {
    EXPECT_THAT(said(text), AllOf(Not(HasSubstr("did you mean")), HasSubstr("cropN"))) << text;
  }
}

TEST(Augmentation, ParametersArePureAndKeyed) {
  const Augmentation augmentation = Augmentation::parse("crop4,flip");
  const auto draw = [&](std::uint64_t seed, std::int64_t epoch, std::int64_t sample) {
    return draw_params(augmentation, 28, 30, seed, epoch, sample);
  };
  const auto equal = [](const SampleParams& a, const SampleParams& b) { return std::memcmp(&a, &b, sizeof(a)) == 0; };
  EXPECT_TRUE(equal(draw(1, 2, 3), draw(1, 2, 3)));
  int same_seed = 0, same_epoch = 0;
  for (std::int64_t sample = 0; sample < 100; ++sample) {
    same_seed += equal(draw(1, 2, sample), draw(2, 2, sample)) ? 1 : 0;
    same_epoch += equal(draw(1, 2, sample), draw(1, 3, sample)) ? 1 : 0;
  }
  EXPECT_LT(same_seed, 10);
  EXPECT_LT(same_epoch, 10);
}

TEST(Augmentation, CropsCoverThePaddingAndFlipsAreHalf) {
  const Augmentation augmentation = Augmentation::parse("crop2,flip");
  std::set<std::int32_t> ys, xs;
  int flips = 0;
  for (std::int64_t sample = 0; sample < 1000; ++sample) {
    const SampleParams params = draw_params(augmentation, 8, 9, 1, 0, sample);
    EXPECT_TRUE(params.crop_h == 8 && params.crop_w == 9 && params.mix_partner == -1 && params.mix_lambda == 1.0f);
    ys.insert(params.crop_y);
    xs.insert(params.crop_x);
    flips += params.flip;
  }
  EXPECT_EQ(ys, (std::set<std::int32_t>{-2, -1, 0, 1, 2}));
  EXPECT_EQ(xs, ys);
  EXPECT_NEAR(flips, 500, 80);  // Five standard deviations.
}

TEST(Augmentation, NoneIsTheIdentity) {
  const SampleParams params = draw_params(Augmentation{}, 8, 9, 1, 2, 3);
  EXPECT_TRUE(params.crop_y == 0 && params.crop_x == 0 && params.crop_h == 8 && params.crop_w == 9 && params.flip == 0);
}

TEST(Augmentation, ResizedCropsHaveTheAreasAndShapesAllowed) {
  const Augmentation augmentation = Augmentation::parse("resized-crop0.25");
  double area_sum = 0, ratio_sum = 0;
  std::set<std::int32_t> lefts;
  for (std::int64_t sample = 0; sample < 20000; ++sample) {
    const SampleParams params = draw_params(augmentation, 300, 400, 1, 2, sample);
    ASSERT_TRUE(params.crop_y >= 0 && params.crop_x >= 0 && params.crop_h > 0 && params.crop_w > 0);
    ASSERT_TRUE(params.crop_y + params.crop_h <= 300 && params.crop_x + params.crop_w <= 400);
    const double area = static_cast<double>(params.crop_h) * params.crop_w / (300.0 * 400.0);
    const double ratio = static_cast<double>(params.crop_w) / params.crop_h;
    ASSERT_TRUE(area > 0.24 && area <= 1.0 && ratio > 0.74 && ratio < 1.35);
    area_sum += area;
    ratio_sum += ratio;
    lefts.insert(params.crop_x);
    EXPECT_EQ(params.flip, 0);
  }
  // As 40,000 draws of torchvision's RandomResizedCrop.get_params: 0.5224 and 1.0555.
  EXPECT_NEAR(area_sum / 20000, 0.5224, 0.005);
  EXPECT_NEAR(ratio_sum / 20000, 1.0555, 0.005);
  EXPECT_GT(lefts.size(), 150u);
}

TEST(Augmentation, ImagesWithoutRoomForACropGiveTheirMiddle) {
  const Augmentation augmentation = Augmentation::parse("resized-crop1");
  const auto box = [&](std::int64_t h, std::int64_t w) {
    const SampleParams params = draw_params(augmentation, h, w, 1, 2, 3);
    return PixelBox{params.crop_y, params.crop_x, params.crop_h, params.crop_w};
  };
  EXPECT_EQ(box(90, 900), (PixelBox{0, 390, 90, 120}));
  EXPECT_EQ(box(900, 90), (PixelBox{390, 0, 120, 90}));
  EXPECT_EQ(box(1, 1), (PixelBox{0, 0, 1, 1}));
}

TEST(Augmentation, SwitchingOnColourLeavesCropAndFlipAsTheyAre) {
  for (std::int64_t sample = 0; sample < 50; ++sample) {
    const SampleParams with = draw_params(Augmentation::parse("resized-crop,flip,colour"), 90, 80, 1, 2, sample);
    const SampleParams without = draw_params(Augmentation::parse("resized-crop,flip"), 90, 80, 1, 2, sample);
    EXPECT_EQ(std::memcmp(&with, &without, sizeof with), 0);
  }
}

TEST(Augmentation, TheMiddleOfAnImage) {
  EXPECT_EQ(centre_box(1.0, false, 30, 40), (PixelBox{0, 0, 30, 40}));
  EXPECT_EQ(centre_box(1.0, true, 30, 40), (PixelBox{0, 5, 30, 30}));
  EXPECT_EQ(centre_box(0.875, true, 256, 320), (PixelBox{16, 48, 224, 224}));
  EXPECT_EQ(centre_box(0.5, false, 30, 40), (PixelBox{7, 10, 15, 20}));
  EXPECT_EQ(centre_box(0.01, true, 1, 7), (PixelBox{0, 3, 1, 1}));
}

/// Brightness, contrast and saturation one after the other, in any order, are the one map while nothing is clamped.
TEST(Colour, TheMapIsTheProductOfTheThree) {
  const std::array<std::array<double, 3>, 4> pixels{{{90, 120, 60}, {100, 70, 140}, {110, 110, 110}, {80, 130, 95}}};
  const auto grey_of = [](const std::array<double, 3>& p) { return 0.299 * p[0] + 0.587 * p[1] + 0.114 * p[2]; };
  const auto mean_of = [&](const auto& all) {
    double sum = 0;
    for (const auto& pixel : all) sum += grey_of(pixel);
    return sum / static_cast<double>(all.size());
  };
  const ColourFactors factors{1.2, 0.7, 1.3};
  SampleParams params;
  apply_colour(factors, mean_of(pixels), params);
  EXPECT_EQ(params.colour, 1);
  std::array<int, 3> order{0, 1, 2};
  do {
    auto wanted = pixels;
    for (const int step : order) {
      const double mean = mean_of(wanted);
      for (auto& pixel : wanted) {
        const double grey = grey_of(pixel);
        for (double& value : pixel) {
          if (step == 0) value *= factors.brightness;
          if (step == 1) value = factors.contrast * value + (1 - factors.contrast) * mean;
          if (step == 2) value = factors.saturation * value + (1 - factors.saturation) * grey;
        }
      }
    }
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      for (std::size_t k = 0; k < 3; ++k) {
        double value = double{params.colour_map[4 * k + 3]};
        for (std::size_t c = 0; c < 3; ++c) value += double{params.colour_map[4 * k + c]} * pixels[i][c];
        EXPECT_NEAR(value, wanted[i][k], 1e-3);
      }
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Colour, FactorsLieInTheirRangeAndAreKeyed) {
  const Augmentation augmentation = Augmentation::parse("colour0.4");
  double least = 9, most = 0, sum = 0;
  for (std::int64_t sample = 0; sample < 1000; ++sample) {
    const ColourFactors factors = draw_colour(augmentation, 1, 2, sample);
    for (const double factor : {factors.brightness, factors.contrast, factors.saturation}) {
      least = std::min(least, factor);
      most = std::max(most, factor);
      sum += factor;
    }
  }
  EXPECT_TRUE(least >= 0.6 && least < 0.61 && most <= 1.4 && most > 1.39);
  EXPECT_NEAR(sum / 3000, 1.0, 0.02);
  EXPECT_NE(draw_colour(augmentation, 1, 2, 3).contrast, draw_colour(augmentation, 1, 3, 3).contrast);
  EXPECT_NE(draw_colour(augmentation, 1, 2, 3).contrast, draw_colour(augmentation, 2, 2, 3).contrast);
}

TEST(Colour, TheMeanGreyCountsWhatLiesOutsideAsBlack) {
  std::vector<std::uint8_t> image(4 * 20, 255);  // 4 x 6 pixels in rows of 20 bytes.
  for (std::size_t y = 0; y < 4; ++y) {
    for (std::size_t x = 0; x < 6; ++x) {
      image[20 * y + 3 * x] = 10;
      image[20 * y + 3 * x + 1] = 20;
      image[20 * y + 3 * x + 2] = static_cast<std::uint8_t>(x < 3 ? 30 : 60);
    }
  }
  const double left = 0.299 * 10 + 0.587 * 20 + 0.114 * 30, right = left + 0.114 * 30;
  EXPECT_NEAR(mean_grey(image.data(), 4, 6, 20, {0, 0, 4, 6}), (left + right) / 2, 1e-9);
  EXPECT_NEAR(mean_grey(image.data(), 4, 6, 20, {1, 3, 2, 3}), right, 1e-9);
  EXPECT_NEAR(mean_grey(image.data(), 4, 6, 20, {-2, -3, 4, 6}), left / 4, 1e-9);
  EXPECT_EQ(mean_grey(image.data(), 4, 6, 20, {7, 9, 2, 2}), 0.0);
}

}  // namespace
}  // namespace renai
