#include "renai/data/sampler.hpp"

#include <bit>

#include "renai/base/check.hpp"
#include "renai/base/philox.hpp"

namespace renai {
namespace {

constexpr int kRounds = 8;
/// Bits of a half. At least 4: over fewer, rounds have so few values that small sets would not see all orders evenly.
constexpr int kSmallestHalf = 4;

std::uint64_t round_word(std::uint64_t half, int round, std::uint64_t seed, std::uint64_t epoch) {
  const auto place = static_cast<std::uint32_t>(static_cast<std::uint64_t>(round) ^ ((epoch >> 32) << 4));
  const PhiloxBlock block = random_block(seed, RandomPurpose::shuffle, half | (epoch << 32), place);
  return block[0];
}

}  // namespace

std::uint64_t permute(std::uint64_t position, std::uint64_t size, std::uint64_t seed, std::uint64_t epoch) {
  RENAI_CHECK(position < size && size <= (std::uint64_t{1} << 62), "a position lies in the set");
  const int bits = std::bit_width(size - 1);
  const int half_bits = bits <= 2 * kSmallestHalf ? kSmallestHalf : (bits + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t value = position;
  // The network permutes [0, 2^(2 half_bits)); walking its cycle until it re-enters [0, size) permutes that.
  do {
    std::uint64_t left = value >> half_bits, right = value & mask;
    for (int round = 0; round < kRounds; ++round) {
      const std::uint64_t mixed = left ^ (round_word(right, round, seed, epoch) & mask);
      left = right;
      right = mixed;
    }
    value = (left << half_bits) | right;
  } while (value >= size);
  return value;
}

Sampler::Sampler(const SamplerConfig& config)
    : config_(config),
      split_(split_batches(config.samples, config.global_batch, config.logical_shards, config.training,
                           config.micro_batches)) {}

std::int64_t Sampler::rows(std::int64_t batch) const {
  RENAI_CHECK(batch >= 0 && batch < split_.batches(), "a batch lies in the epoch");
  return batch < split_.full_batches ? split_.shard_rows : split_.last_rows;
}

std::int64_t Sampler::sample(std::int64_t epoch, std::int64_t batch, int shard, std::int64_t row) const {
  const std::int64_t n = rows(batch);
  RENAI_CHECK(shard >= 0 && shard < config_.logical_shards * config_.micro_batches && row >= 0 && row < n,
              "a place lies in the batch");
  const std::int64_t position = batch * config_.global_batch + shard * n + row;
  if (!config_.training) return position < config_.samples ? position : -1;
  // The last positions of an epoch's order, fewer than the shards, belong to no batch: other samples in each epoch.
  return static_cast<std::int64_t>(permute(static_cast<std::uint64_t>(position),
                                           static_cast<std::uint64_t>(config_.samples), config_.seed,
                                           static_cast<std::uint64_t>(epoch)));
}

}  // namespace renai
