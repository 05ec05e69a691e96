#pragma once
// How random words become choices.

#include <cstdint>

namespace renai {

/// Uniform in [0, count). Source: multiply-shift; the bias of count / 2^32 is of no consequence for pixels and rows.
constexpr std::int64_t draw_below(std::uint32_t word, std::int64_t count) {
  return static_cast<std::int64_t>((std::uint64_t{word} * static_cast<std::uint64_t>(count)) >> 32);
}

}  // namespace renai
