// Augmentation: its words, and parameters as a pure function of the sample.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  for (const std::string text : {"none", "flip", "crop4", "crop12", "crop4,flip"}) {
    EXPECT_EQ(Augmentation::parse(text).str(), text);
  }
  EXPECT_EQ(Augmentation::parse("flip,crop2").str(), "crop2,flip");
}

TEST(Augmentation, RefusesOtherWordsWithTheNearest) {
  EXPECT_THAT(message_of<UserError>([] { Augmentation::parse("flpi"); }), AllOf(HasSubstr("flpi"), HasSubstr("flip")));
  for (const std::string text :
       {"crop", "crop0", "crop-1", "crop4x", "crop99999", "flip,flip", "crop2,crop3", "flip,", ",flip", "none,flip"}) {
    message_of<UserError>([&] { Augmentation::parse(text); });
  }
  const auto said = [](const char* text) { return message_of<UserError>([&] { Augmentation::parse(text); }); };
  EXPECT_THAT(said("non"), HasSubstr("did you mean 'none'?"));
  EXPECT_THAT(said("crop4,non"), Not(HasSubstr("'none'")));
  EXPECT_THAT(said("crop4x"), HasSubstr("did you mean 'crop4'?"));
  for (const char* text : {"none,flip", "flip,none", "none,none", "flip,", ",flip", "flip,flip", "crop2,crop3", "crop0",
                           "crop99999", "crop"}) {
    EXPECT_THAT(said(text), AllOf(Not(HasSubstr("did you mean")), HasSubstr("cropN,flip"))) << text;
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

}  // namespace
}  // namespace renai
