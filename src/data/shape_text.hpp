#pragma once
// Shapes as data files have them, for messages.

#include <cstdint>
#include <span>
#include <string>

namespace renai {

/// "60000x28x28"; nothing for a single value.
inline std::string shape_text(std::span<const std::int64_t> extents) {
  std::string text;
  for (const std::int64_t extent : extents) text += (text.empty() ? "" : "x") + std::to_string(extent);
  return text;
}

}  // namespace renai
