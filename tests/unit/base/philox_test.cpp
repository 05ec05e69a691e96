// Philox against the published known-answer vectors of Random123 and the independence of purposes.
#include "renai/base/philox.hpp"

#include <gtest/gtest.h>

#include <set>

namespace renai {
namespace {

TEST(Philox, KnownAnswersOfRandom123) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, RandomBlockPlacesEveryArgumentInItsOwnWord) {
  const PhiloxBlock expected = philox4x32(
      {0x89abcdef, 0x01234567, 7, static_cast<std::uint32_t>(RandomPurpose::augment)}, {0x55667788, 0x11223344});
  EXPECT_EQ(random_block(0x1122334455667788, RandomPurpose::augment, 0x0123456789abcdef, 7), expected);
}

TEST(Philox, PurposesSeedsAndPositionsGiveDifferentBlocks) {
  std::set<PhiloxBlock> seen;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    for (const RandomPurpose purpose :
         {RandomPurpose::init, RandomPurpose::shuffle, RandomPurpose::augment, RandomPurpose::dropout,
          RandomPurpose::mix, RandomPurpose::synthetic, RandomPurpose::erase}) {
      for (std::uint64_t a = 0; a < 4; ++a) {
        for (std::uint32_t b = 0; b < 4; ++b) seen.insert(random_block(seed, purpose, a, b));
      }
    }
  }
  EXPECT_EQ(seen.size(), 4u * 7u * 4u * 4u);
}

TEST(Philox, Uniform01CoversTheHalfOpenInterval) {
  EXPECT_EQ(uniform01(0), 0.0f);
  EXPECT_EQ(uniform01(0xffu), 0.0f);
  EXPECT_EQ(uniform01(0x80000000u), 0.5f);
  EXPECT_LT(uniform01(0xffffffffu), 1.0f);
  double sum = 0.0;
  constexpr int kBlocks = 4096;
  for (int i = 0; i < kBlocks; ++i) {
    for (const std::uint32_t word : random_block(1, RandomPurpose::test, static_cast<std::uint64_t>(i), 0)) {
      sum += uniform01(word);
    }
  }
  // The mean of 16,384 uniform numbers has a standard deviation of 0.289 / 128 = 0.00226; 5 of them are allowed.
  EXPECT_NEAR(sum / (4 * kBlocks), 0.5, 5 * 0.00226);
}

}  // namespace
}  // namespace renai
