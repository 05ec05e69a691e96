#pragma once
// How random words become choices.

#include <cstdint>

namespace renai {

/// Uniform in [0, count). Source: multiply-shift; the bias of count / 2^32 is of no consequence for pixels and rows.
constexpr std::int64_t draw_below(std::uint32_t word, std::int64_t count) {
  return static_cast<std::int64_t>((std::uint64_t{word} * static_cast<std::uint64_t>(count)) >> 32);
}

/// Uniform in [low, high).
constexpr double draw_between(std::uint32_t word, double low, double high) {
  return low + (high - low) * static_cast<double>(word) * 0x1.0p-32;
}

}  // namespace renai
