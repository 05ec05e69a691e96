// Texts as lines.
#include "renai/base/lines.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace renai {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Lines, OfATextWithAndWithoutALastEnd) {
  EXPECT_THAT(lines_of(""), IsEmpty());
  EXPECT_THAT(lines_of("a\n\nb\n"), ElementsAre("a", "", "b"));
  EXPECT_THAT(lines_of("a\nb"), ElementsAre("a", "b"));
  EXPECT_THAT(lines_of("\n"), ElementsAre(""));
}

TEST(Lines, TheFirstDifferenceMayBeTheEndOfOne) {
  const std::vector<std::string> long_text{"a", "b", "c"}, short_text{"a", "b"}, other{"a", "x", "c"};
  EXPECT_EQ(first_difference(long_text, other), 1u);
  EXPECT_EQ(first_difference(long_text, short_text), 2u);
  EXPECT_EQ(first_difference(short_text, long_text), 2u);
  EXPECT_EQ(first_difference(long_text, long_text), 3u);
}

}  // namespace
}  // namespace renai
