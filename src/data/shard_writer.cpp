#include "shard_writer.hpp"

#include <algorithm>
#include <cstdio>

#include "pack_journal.hpp"
#include "renai/base/error.hpp"
#include "renai/io/atomic_file.hpp"
#include "shard_content.hpp"
#include "shard_file.hpp"

namespace renai {
namespace {

std::int64_t sample_bytes_of(const PackSource& source) { return source.height * source.width * source.channels; }

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

/// All labels of a shard come before its images in the digest.
std::vector<std::int32_t> labels_of(const PackSource& source, const ShardPlan& plan) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(plan.samples));
  source.splits[plan.split].read(plan.first, all, {});
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

void set_shard_attributes(H5File& file, const ShardPlan& plan, const std::string& split, std::string_view encoding,
                          const std::string& digest) {
  file.set_attribute("/", "renai_format", kShardFormat);
  file.set_attribute("/", "encoding", std::string(encoding));
  file.set_attribute("/", "split", split);
  file.set_attribute("/", "shard_index", plan.index);
  file.set_attribute("/", "shard_count", plan.count);
  file.set_attribute("/", kDigestAttribute, digest);
}

namespace {

/// Tells how far a shard is that is made in two passes, each half of the work.
class Passes {
 public:
  explicit Passes(const Advance& advance) : advance_(advance) {}
  void add(std::int64_t samples) {
    passed_ += samples;
    tell(passed_ / 2);
  }
  void tell(std::int64_t samples) {
    advance_(samples - told_);
    told_ = samples;
  }

 private:
  const Advance& advance_;
  std::int64_t passed_ = 0, told_ = 0;
};

/// One pass over the source. Errors: DataError naming a sample whose label has no class.
ShardSummary summarize_shard(const PackSource& source, const ShardPlan& plan, Passes& passes) {
  ShardSummary summary;
  const auto channels = static_cast<std::size_t>(source.channels);
  const std::vector<std::int32_t> labels = labels_of(source, plan);
  summary.label_digests = digest_labels(labels);
  ContentDigest digest(labels, sample_bytes_of(source));
  for_each_block(source, plan, [&](std::int64_t, const auto& block, const std::vector<std::byte>& images) {
    passes.add(static_cast<std::int64_t>(block.size()));
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
  summary.samples = plan.samples;
  summary.units = static_cast<std::uint64_t>(plan.samples * source.height * source.width);
  summary.sample_digests = digest.sample_digests();
  return summary;
}

/// Whether `path` already holds this content, complete and undamaged.
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
           shard.has_label_digests() && shard.read_label_digests() == summary.label_digests &&
           digest_content(shard, static_cast<std::int64_t>(source.classes.size())).hex() == summary.digest;
  } catch (const DataError&) {
    return false;  // Damaged: it is written again.
  } catch (const ResourceError&) {
    return false;  // What cannot be read can be replaced.
  }
}

/// Atomic. Errors: ResourceError naming the file.
void write_shard(const std::filesystem::path& path, const PackSource& source, const ShardPlan& plan,
                 const ShardSummary& summary, Passes& passes) {
  replace_file(path, [&](const std::filesystem::path& temporary) {
    H5File file = H5File::create(temporary);
    const std::array<std::int64_t, 1> rows{plan.samples};
    const std::array<std::int64_t, 4> extents{plan.samples, source.height, source.width, source.channels};
    set_shard_attributes(file, plan, source.splits[plan.split].name, kRawEncoding, summary.digest);
    file.create_dataset(kLabels, DType::i32, rows);
    file.create_dataset(kImages, DType::u8, extents);
    for_each_block(source, plan, [&](std::int64_t first, const auto& labels, const auto& images) {
      const auto count = static_cast<std::int64_t>(labels.size());
      file.write(kLabels, DType::i32, first, count, std::as_bytes(std::span(labels)));
      file.write(kImages, DType::u8, first, count, images);
      passes.add(count);
    });
    file.write_all(kSampleDigests, DType::u64, rows, std::as_bytes(std::span(summary.sample_digests)));
    file.write_all(kLabelDigests, DType::u64, rows, std::as_bytes(std::span(summary.label_digests)));
    file.close();
    make_way(path.parent_path());
  });
}

}  // namespace

ShardSummary make_raw_shard(const std::filesystem::path& out, const PackSource& source, const ShardPlan& plan,
                            const Advance& advance) {
  const std::filesystem::path path = out / plan.file;
  Passes passes(advance);
  ShardSummary summary = summarize_shard(source, plan, passes);
  if (!shard_is_complete(path, source, plan, summary)) write_shard(path, source, plan, summary, passes);
  passes.tell(plan.samples);
  return summary;
}

}  // namespace renai
