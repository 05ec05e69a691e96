#include "timeline_svg.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "renai/base/digest.hpp"
#include "renai/base/text.hpp"

namespace renai {
namespace {

constexpr double kLabelWidth = 90, kPlotWidth = 1090, kLaneHeight = 34, kTop = 40;
/// Narrower boxes have no room for their name.
constexpr double kNamedWidth = 70;

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

/// The same graph has the same colour in every picture.
std::string colour(const std::string& graph) { return "hsl(" + std::to_string(hash64(graph) % 360) + ",55%,72%)"; }

std::string text_at(double x, double y, const std::string& text, const char* extra = "") {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" " + extra + ">" + escape_markup(text) + "</text>\n";
}

/// A round step that divides the axis into about ten.
double axis_step(double length) {
  const double raw = std::max(length, 1e-9) / 10, power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return factor * power;
  }
  return 10 * power;
}

}  // namespace

std::string timeline_svg(std::span<const TimelineSpan> spans, const std::string& title) {
  std::vector<std::string> lanes;
  double end_us = 0;
  for (const TimelineSpan& span : spans) {
    if (std::find(lanes.begin(), lanes.end(), span.stream) == lanes.end()) lanes.push_back(span.stream);
    end_us = std::max(end_us, span.end_us);
  }
  const double scale = kPlotWidth / std::max(end_us, 1e-9),
               bottom = kTop + kLaneHeight * static_cast<double>(lanes.size());
  std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1200\" height=\"" + number(bottom + 30) +
      "\" font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  svg += text_at(kLabelWidth, 20, title, "font-size=\"14\"");
  const double step_us = axis_step(end_us);
  for (double at = 0; at <= end_us; at += step_us) {
    const double x = kLabelWidth + at * scale;
    svg += "<line x1=\"" + number(x) + "\" y1=\"" + number(kTop) + "\" x2=\"" + number(x) + "\" y2=\"" +
           number(bottom) + "\" stroke=\"#ddd\"/>\n" +
           text_at(x, bottom + 16, number(at / 1000) + " ms", "text-anchor=\"middle\"");
  }
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    svg += text_at(4, kTop + kLaneHeight * (static_cast<double>(lane) + 0.6), lanes[lane]);
  }
  for (const TimelineSpan& span : spans) {
    const auto lane = static_cast<double>(std::find(lanes.begin(), lanes.end(), span.stream) - lanes.begin());
    const double x = kLabelWidth + span.start_us * scale, y = kTop + lane * kLaneHeight + 3;
    const double width = std::max((span.end_us - span.start_us) * scale, 0.5);
    svg += "<g><title>" + escape_markup(span.graph) + ": " + number(span.start_us / 1000) + " ms, " +
           number(span.end_us - span.start_us) + " us</title><rect x=\"" + number(x) + "\" y=\"" + number(y) +
           "\" width=\"" + number(width) + "\" height=\"" + number(kLaneHeight - 6) + "\" fill=\"" +
           colour(span.graph) + "\" stroke=\"#555\" stroke-width=\"0.4\"/></g>\n";
    if (width >= kNamedWidth) svg += text_at(x + 3, y + 17, span.graph, "font-size=\"9\"");
  }
  return svg + "</svg>\n";
}

}  // namespace renai
