#include <cmath>

#include "draws.hpp"
#include "renai/base/philox.hpp"
#include "renai/data/mixing.hpp"

namespace renai {
namespace {

constexpr int kTries = 10;
constexpr double kLeastArea = 0.02, kMostArea = 0.33, kLeastRatio = 0.3, kMostRatio = 3.3;
/// Blocks of one sample and epoch: the decision, then one for each try.
constexpr std::uint32_t kBlocks = 16;
static_assert(kTries < kBlocks);

}  // namespace

std::array<std::int32_t, 4> draw_erasing(double probability, std::int64_t h, std::int64_t w, std::uint64_t seed,
                                         std::int64_t epoch, std::int64_t sample) {
  const auto block = [&](std::uint32_t index) {
    return random_block(seed, RandomPurpose::erase, static_cast<std::uint64_t>(sample),
                        static_cast<std::uint32_t>(epoch) * kBlocks + index);
  };
  if (probability <= 0.0 || draw_between(block(0)[0], 0.0, 1.0) >= probability) return {0, 0, 0, 0};
  for (std::uint32_t attempt = 1; attempt <= kTries; ++attempt) {
    const PhiloxBlock words = block(attempt);
    const double area = static_cast<double>(h * w) * draw_between(words[0], kLeastArea, kMostArea);
    const double ratio = std::exp(draw_between(words[1], std::log(kLeastRatio), std::log(kMostRatio)));
    const std::int64_t box_h = std::lround(std::sqrt(area * ratio)), box_w = std::lround(std::sqrt(area / ratio));
    if (box_h < 1 || box_w < 1 || box_h >= h || box_w >= w) continue;
    return {static_cast<std::int32_t>(draw_below(words[2], h - box_h + 1)),
            static_cast<std::int32_t>(draw_below(words[3], w - box_w + 1)), static_cast<std::int32_t>(box_h),
            static_cast<std::int32_t>(box_w)};
  }
  return {0, 0, 0, 0};
}

}  // namespace renai
