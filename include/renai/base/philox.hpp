#pragma once
// Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC11).

#include <array>
#include <cstdint>

namespace renai {

using PhiloxBlock = std::array<std::uint32_t, 4>;

/// Ten rounds of Philox 4x32. Determinism: a pure function of counter and key.
constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// What random numbers are for: no two purposes share a counter.
enum class RandomPurpose : std::uint32_t {
  init = 1,       ///< Weight initialisation: position = (hash of tensor name, element).
  shuffle = 2,    ///< Sample order: position = (epoch, round).
  augment = 3,    ///< Augmentation: position = (epoch, sample id).
  dropout = 4,    ///< Dropout masks: position = (step, layer, shard, element).
  mix = 5,        ///< Mixup and cutmix: position = (step, shard, draw).
  synthetic = 6,  ///< Synthetic data sets.
  test = 7,       ///< Tests and benchmarks.
  erase = 8,      ///< Random erasing: position = (epoch, sample id, draw).
  resize = 9,     ///< Random resized crops: position = (epoch, sample id, try).
  colour = 10,    ///< Colour jitter: position = (epoch, sample id).
};

/// Four random words for (seed, purpose, a, b): counter = {a_lo, a_hi, b, purpose}, key = seed.
constexpr PhiloxBlock random_block(std::uint64_t seed, RandomPurpose purpose, std::uint64_t a, std::uint32_t b) {
  return philox4x32(
      {static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(a >> 32), b, static_cast<std::uint32_t>(purpose)},
      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}

/// Maps a word to [0, 1) with 24 bits.
constexpr float uniform01(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1.0p-24f; }

}  // namespace renai
