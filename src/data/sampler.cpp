#include "renai/data/sampler.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "renai/base/check.hpp"
#include "renai/base/error.hpp"
#include "renai/base/option_word.hpp"
#include "renai/base/philox.hpp"

namespace renai {
namespace {

/// Keep the orders of blocks and of windows apart from each other and from that of all samples.
constexpr std::uint64_t kBlockKey = 0xD1B54A32D192ED03, kWindowKey = 0x9E3779B97F4A7C15;

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

std::string shuffle_name(Shuffle shuffle) {
  switch (shuffle) {
    case Shuffle::global: return "global";
    case Shuffle::block: return "block";
    case Shuffle::none: return "none";
  }
  RENAI_CHECK(false, "an order without a name");
}

Shuffle parse_shuffle(const std::string& name) {
  return named_value("--shuffle", name, {Shuffle::global, Shuffle::block, Shuffle::none}, shuffle_name);
}

BlockOrder::BlockOrder(const std::vector<std::int64_t>& sizes, int window, std::uint64_t seed, std::uint64_t epoch)
    : window_(window), seed_(seed), epoch_(epoch), first_position_{0} {
  std::vector<std::int64_t> stored{0};
  for (const std::int64_t size : sizes) stored.push_back(stored.back() + size);
  for (std::uint64_t place = 0; place < sizes.size(); ++place) {
    const auto block = static_cast<std::size_t>(permute(place, sizes.size(), seed ^ kBlockKey, epoch));
    blocks_.push_back(block);
    first_sample_.push_back(stored[block]);
    first_position_.push_back(first_position_.back() + sizes[block]);
  }
}

std::size_t BlockOrder::place_at(std::int64_t position) const {
  const auto after = std::upper_bound(first_position_.begin(), first_position_.end(), position);
  return static_cast<std::size_t>(std::distance(first_position_.begin(), after)) - 1;
}

std::int64_t BlockOrder::windows() const { return (static_cast<std::int64_t>(blocks_.size()) + window_ - 1) / window_; }

std::int64_t BlockOrder::window_of(std::int64_t position) const {
  return static_cast<std::int64_t>(place_at(position)) / window_;
}

std::vector<std::size_t> BlockOrder::blocks_of(std::int64_t window) const {
  const std::int64_t begin = window * window_;
  const std::int64_t end = std::min(begin + window_, static_cast<std::int64_t>(blocks_.size()));
  return {blocks_.begin() + begin, blocks_.begin() + end};
}

std::int64_t BlockOrder::sample(std::int64_t position) const {
  const auto window = static_cast<std::size_t>(window_);
  const std::size_t number = place_at(position) / window;
  const std::int64_t begin = first_position_[number * window];
  const std::int64_t end = first_position_[std::min(first_sample_.size(), (number + 1) * window)];
  const std::uint64_t key = seed_ + (number + 1) * kWindowKey;
  const std::int64_t mixed =
      begin + static_cast<std::int64_t>(permute(static_cast<std::uint64_t>(position - begin),
                                                static_cast<std::uint64_t>(end - begin), key, epoch_));
  const std::size_t place = place_at(mixed);
  return first_sample_[place] + mixed - first_position_[place];
}

/// Orders of the last two epochs: at an epoch's end, batches of the next are being filled already.
struct Sampler::Cache {
  std::mutex mutex;
  std::array<std::int64_t, 2> epochs{-1, -1};
  std::array<std::shared_ptr<const BlockOrder>, 2> orders;
};

std::shared_ptr<const BlockOrder> Sampler::block_order(std::int64_t epoch) const {
  const auto slot = static_cast<std::size_t>(epoch % 2);
  const std::lock_guard<std::mutex> lock(cache_->mutex);
  if (cache_->epochs[slot] != epoch) {
    cache_->orders[slot] = std::make_shared<const BlockOrder>(config_.blocks, config_.window, config_.seed,
                                                              static_cast<std::uint64_t>(epoch));
    cache_->epochs[slot] = epoch;
  }
  return cache_->orders[slot];
}

Sampler::Sampler(const SamplerConfig& config)
    : config_(config),
      split_(split_batches(config.samples, config.global_batch, config.logical_shards, config.training,
                           config.micro_batches)),
      cache_(std::make_shared<Cache>()) {
  if (!config.training || config.shuffle != Shuffle::block) return;
  std::erase(config_.blocks, 0);  // Nothing is in them.
  const std::int64_t total = std::accumulate(config_.blocks.begin(), config_.blocks.end(), std::int64_t{0});
  RENAI_CHECK(total == config.samples, "blocks hold the samples");
  if (config.window < 1) {
    throw UserError("--shuffle-window " + std::to_string(config.window), "at least one shard is shuffled at a time",
                    "use for example 8");
  }
}

std::int64_t Sampler::rows(std::int64_t batch) const {
  RENAI_CHECK(batch >= 0 && batch < split_.batches(), "a batch lies in the epoch");
  return batch < split_.full_batches ? split_.shard_rows : split_.last_rows;
}

std::int64_t Sampler::position_of(std::int64_t batch, int shard, std::int64_t row) const {
  const std::int64_t n = rows(batch);
  RENAI_CHECK(shard >= 0 && shard < config_.logical_shards * config_.micro_batches && row >= 0 && row < n,
              "a place lies in the batch");
  return batch * config_.global_batch + shard * n + row;
}

std::int64_t Sampler::sample(std::int64_t epoch, std::int64_t batch, int shard, std::int64_t row) const {
  std::int64_t sample = -1;
  samples(epoch, batch, shard, row, {&sample, 1});
  return sample;
}

void Sampler::samples(std::int64_t epoch, std::int64_t batch, int shard, std::int64_t first_row,
                      std::span<std::int64_t> samples) const {
  const bool by_blocks = config_.training && config_.shuffle == Shuffle::block;
  const std::shared_ptr<const BlockOrder> blocks = by_blocks ? block_order(epoch) : nullptr;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::int64_t position = position_of(batch, shard, first_row + static_cast<std::int64_t>(i));
    if (config_.training) {
      // The last positions of an epoch's order, fewer than the shards, belong to no batch: other samples in each epoch.
      samples[i] = shuffled(epoch, position, blocks.get());
    } else {
      samples[i] = position < config_.samples ? position : -1;
    }
  }
}

std::int64_t Sampler::shuffled(std::int64_t epoch, std::int64_t position, const BlockOrder* blocks) const {
  switch (config_.shuffle) {
    case Shuffle::global:
      return static_cast<std::int64_t>(permute(static_cast<std::uint64_t>(position),
                                               static_cast<std::uint64_t>(config_.samples), config_.seed,
                                               static_cast<std::uint64_t>(epoch)));
    case Shuffle::block: return blocks->sample(position);
    case Shuffle::none: return position;
  }
  RENAI_CHECK(false, "an order without a rule");
}

}  // namespace renai
