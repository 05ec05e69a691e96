// Stored layouts to logical ones and back.
#include "renai/base/check.hpp"
#include "renai/checkpoint/state_dict.hpp"

namespace renai {

std::vector<float> krsc_to_kcrs(std::span<const float> stored, std::int64_t k, std::int64_t c, std::int64_t r,
                                std::int64_t s) {
  const std::int64_t pixels = k * r * s;
  RENAI_CHECK(pixels > 0 && static_cast<std::int64_t>(stored.size()) % pixels == 0, "stored weights are not K R S C");
  const std::int64_t padded_c = static_cast<std::int64_t>(stored.size()) / pixels;
  RENAI_CHECK(c >= 1 && padded_c >= c, "stored weights have fewer channels than the logical ones");
  std::vector<float> logical(static_cast<std::size_t>(pixels * c));
  std::size_t to = 0;
  for (std::int64_t ik = 0; ik < k; ++ik) {
    for (std::int64_t ic = 0; ic < c; ++ic) {
      for (std::int64_t rs = 0; rs < r * s; ++rs) {
        logical[to++] = stored[static_cast<std::size_t>((ik * r * s + rs) * padded_c + ic)];
      }
    }
  }
  return logical;
}

std::vector<float> kcrs_to_krsc(std::span<const float> logical, std::int64_t k, std::int64_t c, std::int64_t r,
                                std::int64_t s) {
  RENAI_CHECK(static_cast<std::int64_t>(logical.size()) == k * c * r * s, "logical weights are not K C R S");
  std::vector<float> stored(logical.size());
  std::size_t to = 0;
  for (std::int64_t ik = 0; ik < k; ++ik) {
    for (std::int64_t rs = 0; rs < r * s; ++rs) {
      for (std::int64_t ic = 0; ic < c; ++ic) {
        stored[to++] = logical[static_cast<std::size_t>((ik * c + ic) * r * s + rs)];
      }
    }
  }
  return stored;
}

}  // namespace renai
