#pragma once
// Digests: XXH3 of byte strings (files, samples) and the 128-bit position-dependent digest of tensors.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace renai {

/// 128-bit digest. Equal values for equal logical content; `hex()` prints 32 digits, high word first.
struct Digest128 {
  std::uint64_t low = 0, high = 0;
  bool operator==(const Digest128&) const = default;
  std::string hex() const;
};

/// XXH3-64 of bytes. Source: xxHash.
std::uint64_t hash64(std::span<const std::byte> bytes, std::uint64_t seed = 0);
std::uint64_t hash64(std::string_view text, std::uint64_t seed = 0);
/// XXH3-128 of bytes. Source: xxHash.
Digest128 hash128(std::span<const std::byte> bytes);
Digest128 hash128(std::string_view text);

/// Contribution of one 32-bit element at a logical position. A tensor's digest is the sum (mod 2^64 in each word) of
/// its elements' contributions, so any thread count and any device give the same value.
constexpr Digest128 element_digest(std::uint32_t bits, std::uint64_t position) {
  const std::uint64_t x = (position + 1) * 0x9E3779B97F4A7C15ull ^ (std::uint64_t{bits} * 0xD6E8FEB86659FD93ull);
  const std::uint64_t a = (x ^ (x >> 32)) * 0xBF58476D1CE4E5B9ull;
  const std::uint64_t b = (x ^ (x >> 29)) * 0x94D049BB133111EBull;
  return {a ^ (a >> 31), b ^ (b >> 32)};
}

/// Digest of `values` whose first element has logical position `first_position`.
Digest128 tensor_digest(std::span<const float> values, std::uint64_t first_position = 0);

/// Combines a list of digests in order (position-dependent).
Digest128 combine_digests(std::span<const Digest128> digests);

}  // namespace renai
