#pragma once
// Mixing: mixup and cutmix, which mix each sample of a shard with another one of it; and random erasing.

#include <array>
#include <cstdint>

#include "renai/tensor/slot_layout.hpp"

namespace renai {

/// Which mixing a run does. Both: each shard's step takes one of them, with even chances.
/// Source: Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018; Yun et al., "CutMix: Regularization
/// Strategy to Train Strong Classifiers with Localizable Features", 2019.
struct Mixing {
  double mixup_alpha = 0, cutmix_alpha = 0;  ///< 0: off.
  bool any() const { return mixup_alpha > 0 || cutmix_alpha > 0; }
};

/// How one shard is mixed in one step: one share, box and rotation for all of its rows.
struct ShardMix {
  std::int64_t shift = 0;                       ///< Row r is mixed with row (r + shift) % rows; 0: nothing is mixed.
  float lambda = 1.0f;                          ///< Share of the own sample.
  std::array<std::int32_t, 4> box{0, 0, 0, 0};  ///< cutmix: (y, x, h, w) of the partner's pixels; h = 0: mixup.
};

/// Draws the rotation uniformly from [1, rows), the share from Beta(alpha, alpha), and for cutmix a box of 1 - share of
/// the area around a uniform centre, clipped to the image; its share is then the exact area kept. A shard of one row
/// and an empty box mix nothing. Shapes: h, w of the network's input. Determinism: a pure function of the arguments.
ShardMix draw_mix(const Mixing& mixing, std::int64_t rows, std::int64_t h, std::int64_t w, std::uint64_t seed,
                  std::int64_t step, int shard);

/// Writes the mix_ fields of a row.
void apply_mix(const ShardMix& mix, std::int64_t rows, std::int64_t row, SampleParams& params);

/// The box (y, x, h, w) of the network's input that a sample loses; h = 0: none. With the probability given, a box of 2
/// to 33 % of the area and a ratio of height to width of 0.3 to 3.3 (uniform in its logarithm); ten boxes are tried
/// until one is smaller than the image. Determinism: a pure function of the arguments. Source: Zhong et al., "Random
/// Erasing Data Augmentation", 2020, as in torchvision's RandomErasing with value 0.
std::array<std::int32_t, 4> draw_erasing(double probability, std::int64_t h, std::int64_t w, std::uint64_t seed,
                                         std::int64_t epoch, std::int64_t sample);

}  // namespace renai
