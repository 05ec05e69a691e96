#pragma once
// Texts as lines.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace renai {

/// The lines of a text without their ends; the end of the last one may be missing. None of an empty text.
std::vector<std::string> lines_of(std::string_view text);

/// Index of the first line in which two texts differ; where one text is the beginning of the other, its length.
std::size_t first_difference(std::span<const std::string> a, std::span<const std::string> b);

}  // namespace renai
