#pragma once
// A benchmark's timeline as a picture: one lane a stream, one box a graph.

#include <span>
#include <string>

#include "renai/train/step_bench.hpp"

namespace renai {

/// SVG text, 1200 pixels wide. Lanes in the order of the streams' first spans; a box's tooltip gives graph, start and
/// length. Units: the axis in milliseconds.
std::string timeline_svg(std::span<const TimelineSpan> spans, const std::string& title);

}  // namespace renai
