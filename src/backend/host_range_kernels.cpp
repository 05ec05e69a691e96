#include "host_range_kernels.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "renai/base/check.hpp"

namespace renai::host_range {
namespace {

/// Elements whose carry stays in the first-level cache through all levels.
constexpr std::int64_t kMergeBlockElems = 2048;
constexpr int kLanes = 8;

double block_sum_of_squares(const float* values, std::int64_t elems) {
  std::array<double, kLanes> lanes{};
  const std::int64_t whole = elems / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[static_cast<std::size_t>(lane)] += value * value;
    }
  }
  for (std::int64_t i = whole; i < elems; ++i) {
    const double value = values[i];
    lanes[static_cast<std::size_t>(i - whole)] += value * value;
  }
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

}  // namespace

void merge_shard(float* values, std::span<float* const> counters, std::int64_t elems, std::int32_t local_shard) {
  const int levels = std::countr_one(static_cast<std::uint32_t>(local_shard));
  RENAI_CHECK(local_shard >= 0 && levels <= static_cast<int>(counters.size()),
              "local shard " + std::to_string(local_shard) + " has no place in the binary counter");
  float* const target =
      levels == static_cast<int>(counters.size()) ? values : counters[static_cast<std::size_t>(levels)];
  std::array<float, kMergeBlockElems> carry;
  for (std::int64_t first = 0; first < elems; first += kMergeBlockElems) {
    const std::int64_t count = std::min(kMergeBlockElems, elems - first);
    std::copy_n(values + first, count, carry.begin());
    for (int level = 0; level < levels; ++level) {
      const float* counter = counters[static_cast<std::size_t>(level)] + first;
      for (std::int64_t i = 0; i < count; ++i) carry[static_cast<std::size_t>(i)] += counter[i];
    }
    std::copy_n(carry.begin(), count, target + first);
  }
}

void add_micro_batch(float* values, float* micro, std::int64_t elems, int micro_batch, int micro_batches) {
  RENAI_CHECK(micro_batch >= 0 && micro_batch < micro_batches,
              "micro-batch " + std::to_string(micro_batch) + " is out of range");
  if (micro_batch == 0) {
    std::copy_n(values, elems, micro);
    return;
  }
  float* const sum = micro_batch + 1 == micro_batches ? values : micro;
  for (std::int64_t i = 0; i < elems; ++i) sum[i] = micro[i] + values[i];
}

double sum_of_squares(const float* values, std::int64_t elems) {
  double sum = 0;
  for (std::int64_t first = 0; first < elems; first += kNormBlockElems) {
    sum += block_sum_of_squares(values + first, std::min(kNormBlockElems, elems - first));
  }
  return sum;
}

bool all_finite(const float* values, std::int64_t elems) {
  // All exponent bits set means infinite or not a number; the integer form vectorises and survives any fast-math flag.
  constexpr std::uint32_t kExponent = 0x7F800000u;
  std::uint32_t bad = 0;
  for (std::int64_t i = 0; i < elems; ++i) {
    bad |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(values[i]) & kExponent) == kExponent);
  }
  return bad == 0;
}

void scale(float* values, std::int64_t elems, float factor) {
  for (std::int64_t i = 0; i < elems; ++i) values[i] *= factor;
}

LossScale next_loss_scale(LossScale now, bool finite, const RangeParams& params) {
  if (!params.dynamic_loss_scale) return now;
  if (!finite) return {std::max(params.loss_scale_floor, now.scale * params.loss_scale_backoff), 0.0f};
  now.good_steps += 1.0f;
  if (now.good_steps < static_cast<float>(params.loss_scale_interval)) return now;
  return {std::min(params.loss_scale_ceiling, now.scale * params.loss_scale_growth), 0.0f};
}

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFFu;
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

std::uint16_t to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return 0x7FFFu;
  constexpr std::uint32_t kOverflow = 0x477FF000u;  // 65520: half way between 65504 and what would follow
  if (magnitude >= kOverflow) return static_cast<std::uint16_t>(sign | 0x7C00u);
  constexpr std::uint32_t kLeastNormal = 0x38800000u;  // 2^-14
  if (magnitude < kLeastNormal) {
    // Adding 1/2 leaves the value in units of 2^-24 at the end of the mantissa, rounded by the addition.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000u));
  }
  const std::uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded >> 13) - (std::uint32_t{127 - 15} << 10)));
}

void sgd(const float* __restrict grad, float* __restrict weights, float* __restrict momentum, std::int64_t elems,
         const SgdStep& step) {
  const float lr = step.lr, mu = step.momentum, decay = step.weight_decay;
  if (step.nesterov) {
    for (std::int64_t i = 0; i < elems; ++i) {
      const float g = grad[i] + decay * weights[i];
      const float buf = mu * momentum[i] + g;
      momentum[i] = buf;
      weights[i] -= lr * (g + mu * buf);
    }
    return;
  }
  for (std::int64_t i = 0; i < elems; ++i) {
    const float g = grad[i] + decay * weights[i];
    const float buf = mu * momentum[i] + g;
    momentum[i] = buf;
    weights[i] -= lr * buf;
  }
}

void update_running(float* __restrict running, const float* __restrict batch_sum, std::int64_t elems, float momentum,
                    int shards) {
  const double share = double{momentum} / shards, keep = 1.0 - double{momentum};
  for (std::int64_t i = 0; i < elems; ++i) {
    running[i] = static_cast<float>(keep * double{running[i]} + share * double{batch_sum[i]});
  }
}

void average(const float* __restrict values, float* __restrict averages, std::int64_t elems, double decay) {
  // The difference is exact: both add up to 1.
  const auto keep = static_cast<float>(decay), share = 1.0f - keep;
  for (std::int64_t i = 0; i < elems; ++i) averages[i] = keep * averages[i] + share * values[i];
}

void fold_batch_norm(const FoldedNorm& norm) {
  for (std::int64_t i = 0; i < norm.channels; ++i) {
    const double factor = double{norm.scale[i]} / std::sqrt(double{norm.var[i]} + double{norm.eps});
    norm.folded_scale[i] = static_cast<float>(factor);
    norm.folded_bias[i] = static_cast<float>(double{norm.bias[i]} - double{norm.mean[i]} * factor);
  }
}

void tree_sum_entries(const double* entries, int count, double* total) {
  constexpr int kEntry = 4, kMaxLevels = 31;
  RENAI_CHECK(count >= 1 && std::has_single_bit(static_cast<unsigned>(count)),
              "the tree over shards needs a power of two of them, not " + std::to_string(count));
  std::array<std::array<double, kEntry>, kMaxLevels> levels;
  std::array<double, kEntry> carry{};
  // Entries merge like a binary counter, which is the balanced tree.
  for (int i = 0; i < count; ++i) {
    std::copy_n(entries + std::ptrdiff_t{kEntry} * i, kEntry, carry.begin());
    std::size_t level = 0;
    for (; (i >> level & 1) != 0; ++level) {
      for (std::size_t j = 0; j < kEntry; ++j) carry[j] = levels[level][j] + carry[j];
    }
    levels[level] = carry;
  }
  std::copy(carry.begin(), carry.end(), total);
}

}  // namespace renai::host_range
