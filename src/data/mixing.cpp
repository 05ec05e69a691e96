#include "renai/data/mixing.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "draws.hpp"
#include "renai/base/philox.hpp"

namespace renai {
namespace {

/// Words of one (seed, step, shard), block after block.
class Words {
 public:
  Words(std::uint64_t seed, std::int64_t step, int shard)
      : seed_(seed),
        position_(static_cast<std::uint64_t>(step) << 16 | (static_cast<std::uint32_t>(shard) & 0xFFFFu)) {}

  std::uint32_t next() {
    if (used_ == 4) {
      block_ = random_block(seed_, RandomPurpose::mix, position_, index_++);
      used_ = 0;
    }
    return block_[used_++];
  }
  /// Uniform in (0, 1): its logarithm is finite.
  double uniform() { return (static_cast<double>(next()) + 0.5) * 0x1.0p-32; }
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

 private:
  std::uint64_t seed_, position_;
  std::uint32_t index_ = 0;
  std::size_t used_ = 4;
  PhiloxBlock block_{};
};

/// Logarithm of a Gamma(alpha, 1) variate. Below alpha = 1 it is one of alpha + 1 times u^(1 / alpha), whose logarithm
/// does not underflow where alpha is small.
/// Source: Marsaglia and Tsang, "A Simple Method for Generating Gamma Variables", 2000.
double log_gamma_variate(double alpha, Words& words) {
  if (alpha < 1.0) {
    const double more = log_gamma_variate(alpha + 1.0, words);
    return more + std::log(words.uniform()) / alpha;
  }
  const double d = alpha - 1.0 / 3.0, c = 1.0 / std::sqrt(9.0 * d);
  for (;;) {
    const double x = words.normal(), u = words.uniform();
    const double root = 1.0 + c * x;
    if (root <= 0.0) continue;
    const double v = root * root * root;
    if (std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return std::log(d) + std::log(v);
  }
}

/// Beta(alpha, alpha).
double draw_share(double alpha, Words& words) {
  const double own = log_gamma_variate(alpha, words), other = log_gamma_variate(alpha, words);
  return 1.0 / (1.0 + std::exp(other - own));
}

/// A box of 1 - share of the area, as wide to high as the image, around a uniform centre; what reaches outside is cut.
std::array<std::int32_t, 4> draw_box(double share, std::int64_t h, std::int64_t w, Words& words) {
  const double side = std::sqrt(1.0 - share);
  const auto half_h = static_cast<std::int64_t>(static_cast<double>(h) * side) / 2;
  const auto half_w = static_cast<std::int64_t>(static_cast<double>(w) * side) / 2;
  const std::int64_t y = draw_below(words.next(), h), x = draw_below(words.next(), w);
  const std::int64_t top = std::max<std::int64_t>(y - half_h, 0), left = std::max<std::int64_t>(x - half_w, 0);
  const std::int64_t box_h = std::min(y + half_h, h) - top, box_w = std::min(x + half_w, w) - left;
  if (box_h <= 0 || box_w <= 0) return {0, 0, 0, 0};
  return {static_cast<std::int32_t>(top), static_cast<std::int32_t>(left), static_cast<std::int32_t>(box_h),
          static_cast<std::int32_t>(box_w)};
}

}  // namespace

ShardMix draw_mix(const Mixing& mixing, std::int64_t rows, std::int64_t h, std::int64_t w, std::uint64_t seed,
                  std::int64_t step, int shard) {
  ShardMix mix;
  if (!mixing.any() || rows < 2) return mix;
  Words words(seed, step, shard);
  const std::uint32_t choice = words.next();
  mix.shift = 1 + draw_below(words.next(), rows - 1);
  const bool both = mixing.mixup_alpha > 0 && mixing.cutmix_alpha > 0;
  const bool cutmix = both ? choice >> 31 != 0 : mixing.cutmix_alpha > 0;
  const double share = draw_share(cutmix ? mixing.cutmix_alpha : mixing.mixup_alpha, words);
  if (!cutmix) {
    mix.lambda = static_cast<float>(share);
    return mix;
  }
  mix.box = draw_box(share, h, w, words);
  const std::int64_t area = std::int64_t{mix.box[2]} * mix.box[3];
  if (area == 0) return ShardMix{};
  mix.lambda = static_cast<float>(1.0 - static_cast<double>(area) / static_cast<double>(h * w));
  return mix;
}

void apply_mix(const ShardMix& mix, std::int64_t rows, std::int64_t row, SampleParams& params) {
  if (mix.shift == 0) return;
  params.mix_partner = static_cast<std::int32_t>((row + mix.shift) % rows);
  params.mix_lambda = mix.lambda;
  params.mix_box = mix.box;
}

}  // namespace renai
