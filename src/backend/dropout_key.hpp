#pragma once
// The dropout mask: which random number decides about which element. Every backend uses this, so masks agree bit for
// bit.

#include <cstdint>

#include "renai/base/philox.hpp"
#include "renai/tensor/slot_layout.hpp"

namespace renai {

/// Elements that one random block decides about.
inline constexpr std::int64_t kDropoutBlockElems = 4;

/// The four random words of elements 4 * block to 4 * block + 3 (logical positions in the shard's NHWC or NC tensor).
/// Counter: step in the upper and block in the lower half of `a`; layer in the upper and logical shard in the lower
/// half of `b`. Layers and shards are below 65536, steps and blocks below 2^32. Determinism: a pure function of (seed,
/// step, shard, layer, block).
constexpr PhiloxBlock dropout_block(const ControlBlock& control, std::uint32_t layer, std::int64_t block) {
  const std::uint64_t a =
      static_cast<std::uint64_t>(control.step) << 32 | (static_cast<std::uint64_t>(block) & 0xFFFFFFFFu);
  const std::uint32_t b = layer << 16 | (static_cast<std::uint32_t>(control.shard) & 0xFFFFu);
  return random_block(control.seed, RandomPurpose::dropout, a, b);
}

/// True when the element with this random word survives.
constexpr bool dropout_keeps(std::uint32_t word, float p) { return uniform01(word) >= p; }

/// What survivors are multiplied with. Unused (nothing survives) for p = 1.
constexpr float dropout_scale(float p) { return p < 1.0f ? 1.0f / (1.0f - p) : 0.0f; }

}  // namespace renai
