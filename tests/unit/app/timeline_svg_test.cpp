// The picture of a timeline: lanes, boxes to scale, names that need escaping.

#include "../../../src/app/timeline_svg.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace renai {
namespace {

std::size_t count_of(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST(TimelineSvg, DrawsABoxForEachSpanInItsStreamsLane) {
  const std::vector<TimelineSpan> spans{
      {"TRANSFER_A", "TRANSFER", 0, 500}, {"DEEP_FWD_BWD", "COMPUTE", 500, 1000}, {"ZERO_GRAD", "COMPUTE", 0, 250}};
  const std::string svg = timeline_svg(spans, "mlp");
  EXPECT_TRUE(svg.starts_with("<svg "));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_EQ(count_of(svg, "<title>"), spans.size());
  EXPECT_EQ(count_of(svg, ">TRANSFER<"), 1u);
  EXPECT_EQ(count_of(svg, ">COMPUTE<"), 1u);
  // Half of the time is half of the plot's 1090 pixels.
  EXPECT_EQ(count_of(svg, "width=\"545.00\""), 2u);
  EXPECT_EQ(count_of(svg, "width=\"272.50\""), 1u);
}

TEST(TimelineSvg, EscapesTextAndTakesAnEmptyTimeline) {
  EXPECT_NE(timeline_svg({}, "a < b & \"c\"").find("a &lt; b &amp; &quot;c&quot;"), std::string::npos);
}

}  // namespace
}  // namespace renai
