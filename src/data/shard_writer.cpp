#include "shard_writer.hpp"

#include <algorithm>
#include <cstdio>

#include "renai/base/error.hpp"
#include "renai/io/atomic_file.hpp"
#include "shard_content.hpp"
#include "shard_file.hpp"

namespace renai {
namespace {

std::int64_t sample_bytes_of(const PackSource& source) { return source.height * source.width * source.channels; }

std::string shard_name(const std::string& split, std::int64_t index, std::int64_t count) {
  char numbers[64];
  std::snprintf(numbers, sizeof(numbers), "-%05lld-of-%05lld.h5", static_cast<long long>(index),
                static_cast<long long>(count));
  return split + numbers;
}

/// Calls `use(first, labels, images)` for blocks of the shard's samples; `first` counts from the shard's start.
template <typename Use>
void for_each_block(const PackSource& source, const ShardPlan& plan, Use&& use) {
  const std::int64_t sample_bytes = sample_bytes_of(source);
  const std::int64_t rows = rows_per_block(sample_bytes);
  std::vector<std::int32_t> labels;
  std::vector<std::byte> images;
  for (std::int64_t first = 0; first < plan.samples; first += rows) {
    const std::int64_t count = std::min(rows, plan.samples - first);
    labels.resize(static_cast<std::size_t>(count));
    images.resize(static_cast<std::size_t>(count * sample_bytes));
    source.splits[plan.split].read(plan.first + first, labels, images);
    use(first, labels, images);
  }
}

/// All labels of a shard come before its images in the digest; they are small, so they are read first on their own.
std::vector<std::int32_t> labels_of(const PackSource& source, const ShardPlan& plan) {
  std::vector<std::int32_t> all;
  all.reserve(static_cast<std::size_t>(plan.samples));
  for_each_block(source, plan, [&](std::int64_t, const std::vector<std::int32_t>& labels, const auto&) {
    all.insert(all.end(), labels.begin(), labels.end());
  });
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] < 0 || static_cast<std::size_t>(all[i]) >= source.classes.size()) {
      throw DataError("packing split '" + source.splits[plan.split].name + "'",
                      "sample " + std::to_string(plan.first + static_cast<std::int64_t>(i)) + " has label " +
                          std::to_string(all[i]) + "; labels are 0 to " + std::to_string(source.classes.size() - 1),
                      "check the input files");
    }
  }
  return all;
}

}  // namespace

std::vector<ShardPlan> plan_shards(const PackSource& source, std::int64_t shard_samples) {
  std::vector<ShardPlan> plans;
  for (std::size_t split = 0; split < source.splits.size(); ++split) {
    const SplitSource& samples = source.splits[split];
    const std::int64_t count = (samples.samples + shard_samples - 1) / shard_samples;
    for (std::int64_t index = 0; index < count; ++index) {
      ShardPlan plan;
      plan.split = split;
      plan.index = index;
      plan.count = count;
      plan.first = index * shard_samples;
      plan.samples = std::min(shard_samples, samples.samples - plan.first);
      plan.file = shard_name(samples.name, index, count);
      plans.push_back(plan);
    }
  }
  return plans;
}

ShardSummary summarize_shard(const PackSource& source, const ShardPlan& plan) {
  ShardSummary summary;
  const auto channels = static_cast<std::size_t>(source.channels);
  ContentDigest digest(labels_of(source, plan), sample_bytes_of(source));
  for_each_block(source, plan, [&](std::int64_t, const auto&, const std::vector<std::byte>& images) {
    digest.add_images(images);
    for (std::size_t pixel = 0; pixel < images.size(); pixel += channels) {
      for (std::size_t c = 0; c < channels; ++c) {
        const auto value = static_cast<std::uint64_t>(images[pixel + c]);
        summary.sum[c] += value;
        summary.square_sum[c] += value * value;
      }
    }
  });
  summary.digest = digest.hex();
  summary.sample_digests = digest.sample_digests();
  return summary;
}

bool shard_is_complete(const std::filesystem::path& path, const PackSource& source, const ShardPlan& plan,
                       const ShardSummary& summary) {
  if (!std::filesystem::exists(path)) return false;
  try {
    const ShardFile shard = ShardFile::open(path);
    const H5File& file = shard.file();
    const bool as_planned =
        shard.samples() == plan.samples && shard.height() == source.height && shard.width() == source.width &&
        shard.channels() == source.channels && file.int_attribute("/", "renai_format") == kShardFormat &&
        file.string_attribute("/", "split") == source.splits[plan.split].name &&
        file.int_attribute("/", "shard_index") == plan.index && file.int_attribute("/", "shard_count") == plan.count &&
        file.string_attribute("/", kDigestAttribute) == summary.digest && shard.raw_offset() >= 0;
    return as_planned && shard.has_sample_digests() && shard.read_sample_digests() == summary.sample_digests &&
           digest_content(shard, static_cast<std::int64_t>(source.classes.size())).hex() == summary.digest;
  } catch (const DataError&) {
    return false;  // Damaged: it is written again.
  }
}

void write_shard(const std::filesystem::path& path, const PackSource& source, const ShardPlan& plan,
                 const ShardSummary& summary) {
  replace_file(path, [&](const std::filesystem::path& temporary) {
    H5File file = H5File::create(temporary);
    const std::array<std::int64_t, 1> rows{plan.samples};
    const std::array<std::int64_t, 4> extents{plan.samples, source.height, source.width, source.channels};
    file.set_attribute("/", "renai_format", kShardFormat);
    file.set_attribute("/", "encoding", std::string(kRawEncoding));
    file.set_attribute("/", "split", source.splits[plan.split].name);
    file.set_attribute("/", "shard_index", plan.index);
    file.set_attribute("/", "shard_count", plan.count);
    file.set_attribute("/", kDigestAttribute, summary.digest);
    file.create_dataset(kLabels, DType::i32, rows);
    file.create_dataset(kImages, DType::u8, extents);
    for_each_block(source, plan, [&](std::int64_t first, const auto& labels, const auto& images) {
      const auto count = static_cast<std::int64_t>(labels.size());
      file.write(kLabels, DType::i32, first, count, std::as_bytes(std::span(labels)));
      file.write(kImages, DType::u8, first, count, images);
    });
    file.write_all(kSampleDigests, DType::u64, rows, std::as_bytes(std::span(summary.sample_digests)));
    file.close();
  });
}

}  // namespace renai
