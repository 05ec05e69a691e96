#include "renai/base/digest.hpp"

#include <xxhash.h>

#include <bit>

#include "renai/base/text.hpp"

namespace renai {

std::string Digest128::hex() const { return hex64(high) + hex64(low); }

std::uint64_t hash64(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::uint64_t hash64(std::string_view text, std::uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

Digest128 hash128(std::span<const std::byte> bytes) {
  const XXH128_hash_t h = XXH3_128bits(bytes.data(), bytes.size());
  return {h.low64, h.high64};
}

Digest128 hash128(std::string_view text) { return hash128(std::as_bytes(std::span(text.data(), text.size()))); }

// Vector forms of the same integer arithmetic: every clone gives the same bits.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3")))
#endif
static void
sum_digests(const float* values, std::size_t count, std::uint64_t first_position, std::uint64_t* low,
            std::uint64_t* high) {
  std::uint64_t low_sum = 0;
  std::uint64_t high_sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Digest128 d = element_digest(std::bit_cast<std::uint32_t>(values[i]), first_position + i);
    low_sum += d.low;
    high_sum += d.high;
  }
  *low = low_sum;
  *high = high_sum;
}

Digest128 tensor_digest(std::span<const float> values, std::uint64_t first_position) {
  Digest128 digest;
  sum_digests(values.data(), values.size(), first_position, &digest.low, &digest.high);
  return digest;
}

Digest128 combine_digests(std::span<const Digest128> digests) {
  Digest128 total;
  for (std::size_t i = 0; i < digests.size(); ++i) {
    const std::uint64_t words[3] = {digests[i].low, digests[i].high, i};
    const Digest128 h = hash128(std::as_bytes(std::span(words)));
    total.low += h.low;
    total.high += h.high;
  }
  return total;
}

}  // namespace renai
