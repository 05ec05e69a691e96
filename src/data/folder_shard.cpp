#include "folder_shard.hpp"

#include <sys/stat.h>

#include <array>

#include "ordered_work.hpp"
#include "pack_journal.hpp"
#include "renai/base/digest.hpp"
#include "renai/base/error.hpp"
#include "renai/io/atomic_file.hpp"
#include "shard_content.hpp"
#include "shard_writer.hpp"
#include "spool.hpp"

namespace renai {
namespace fs = std::filesystem;
namespace {

std::string print_time(const timespec& time) {
  return std::to_string(time.tv_sec) + "." + std::to_string(time.tv_nsec);
}

/// Says what a shard is made of: settings, and label, path, size and times of change of each file. The second of these
/// times is the inode's: copies that keep times (cp -p, rsync, archives) put other bytes under an old first one.
std::string content_key(const FolderPack& pack, const ShardPlan& plan) {
  Checksum128 key;
  const auto add = [&key](const std::string& text) { key.update(std::as_bytes(std::span(text))); };
  add(pack.settings);
  for (std::int64_t i = plan.first; i < plan.first + plan.samples; ++i) {
    const std::string path = pack.splits[plan.split].path(i);
    struct stat status {};
    const bool there = ::stat((pack.input / path).c_str(), &status) == 0;
    add(std::to_string(pack.splits[plan.split].label(i)) + " " + path + '\0' +
        std::to_string(there ? status.st_size : -1) + " " + print_time(status.st_mtim) + " " +
        print_time(status.st_ctim) + "\n");
  }
  return key.digest().hex();
}

/// Whether the classes are the pack's and hold all samples; a damaged summary may say anything.
bool counts_fit(const FolderPack& pack, const ShardSummary& summary) {
  std::int64_t samples = 0;
  for (const auto& [label, count] : summary.samples_by_class) {
    if (label < 0 || label >= pack.classes || count < 1) return false;
    samples += count;
  }
  return samples == summary.samples;
}

/// The summary of a shard that an interrupted run finished, when the shard still holds what it says. One that left
/// files out is of no use to a run that leaves none out.
std::optional<ShardSummary> find_complete(const FolderPack& pack, const ShardPlan& plan, const std::string& key) {
  const fs::path path = pack.out / plan.file;
  std::optional<ShardSummary> summary = load_summary(path, key);
  if (!summary || !counts_fit(pack, *summary)) return std::nullopt;
  if (!pack.skip_bad && !summary->refused.empty()) return std::nullopt;
  if (summary->samples == 0) return summary;
  try {
    const ShardFile shard = ShardFile::open(path);
    if (shard.samples() == summary->samples && shard.has_label_digests() &&
        shard.read_label_digests() == digest_labels(shard.read_labels(pack.classes)) &&
        digest_content(shard, pack.classes).hex() == summary->digest) {
      return summary;
    }
  } catch (const DataError&) {
    // Damaged: it is made again.
  } catch (const ResourceError&) {
    // What cannot be read can be replaced.
  }
  return std::nullopt;
}

/// A shard's content while it comes in.
struct Content {
  Spool spool;
  std::vector<std::int32_t> labels;
  std::vector<std::uint64_t> offsets{0};
  std::string first;  ///< Path of the first image.
};

void add_measures(const StoredImage& image, ShardSummary& summary) {
  if (!image.measured) return;
  summary.units += std::uint64_t{1} << 16;
  for (std::size_t c = 0; c < 3; ++c) {
    summary.sum[c] += image.mean[c];
    summary.square_sum[c] += image.square_mean[c];
  }
}

void take_image(const FolderPack& pack, const std::string& path, std::int32_t label, const StoredImage& image,
                Content& content, ShardSummary& summary) {
  if (!image.refusal.empty()) {
    if (!pack.skip_bad) {
      throw DataError("image " + printable((pack.input / path).string()), image.refusal,
                      "repair or remove the file, or leave out all such files with --skip-bad");
    }
    summary.refused.push_back(printable(path) + "\t" + printable(image.refusal));
    return;
  }
  if (content.labels.empty()) content.first = path;
  content.spool.append(image.bytes);
  content.labels.push_back(label);
  content.offsets.push_back(static_cast<std::uint64_t>(content.spool.size()));
  ++summary.samples;
  ++summary.samples_by_class[label];
  summary.encoded_here += image.encoded_here ? 1 : 0;
  add_measures(image, summary);
}

void read_images(const FolderPack& pack, const ShardPlan& plan, const Advance& advance, Content& content,
                 ShardSummary& summary) {
  const ImageList& list = pack.splits[plan.split];
  std::vector<std::unique_ptr<ImageFileReader>> readers;
  for (int t = 0; t < pack.threads; ++t) readers.push_back(std::make_unique<ImageFileReader>(pack.goal, *pack.rooms));
  OrderedLimits limits;
  limits.threads = pack.threads;
  limits.items = 8 * pack.threads;
  OrderedWork<StoredImage> work(plan.samples, limits, [&](std::int64_t i, int thread) {
    const std::int64_t place = plan.first + i;
    const bool measure = plan.split == 0 && place % pack.measured_every == 0;
    return readers[static_cast<std::size_t>(thread)]->read(pack.input / list.path(place), measure);
  });
  work.run([&](std::int64_t i, StoredImage&& image) {
    advance(1);
    take_image(pack, list.path(plan.first + i), list.label(plan.first + i), image, content, summary);
  });
  // Where all images chosen for the statistics were left out, another one stands for them.
  if (plan.split != 0 || summary.units > 0 || summary.samples == 0 || summary.refused.empty()) return;
  add_measures(readers[0]->read(pack.input / content.first, true), summary);
}

ContentDigest begin_digest(const FolderPack& pack, const Content& content) {
  if (pack.goal.jpeg) return ContentDigest(content.labels, content.offsets);
  return ContentDigest(content.labels, 3 * pack.goal.size * pack.goal.size);
}

void write_folder_shard(const FolderPack& pack, const ShardPlan& plan, const Advance& advance, Content& content,
                        ShardSummary& summary) {
  replace_file(pack.out / plan.file, [&](const fs::path& temporary) {
    const std::int64_t samples = summary.samples, size = pack.goal.size;
    H5File file = H5File::create(temporary);
    file.write_all(kLabels, DType::i32, std::array{samples}, std::as_bytes(std::span(content.labels)));
    if (pack.goal.jpeg) {
      file.write_all(kImageOffsets, DType::u64, std::array{samples + 1}, std::as_bytes(std::span(content.offsets)));
      file.create_dataset(kImageBytes, DType::u8, std::array{content.spool.size()});
    } else {
      file.create_dataset(kImages, DType::u8, std::array{samples, size, size, std::int64_t{3}});
    }
    ContentDigest digest = begin_digest(pack, content);
    std::vector<std::byte> block;
    for (std::int64_t first = 0; first < samples;) {
      const std::int64_t end = first + images_in_block(content.offsets, first);
      const auto begin_at = static_cast<std::int64_t>(content.offsets[static_cast<std::size_t>(first)]);
      block.resize(content.offsets[static_cast<std::size_t>(end)] - static_cast<std::uint64_t>(begin_at));
      content.spool.read(begin_at, block);
      if (pack.goal.jpeg) {
        file.write(kImageBytes, DType::u8, begin_at, static_cast<std::int64_t>(block.size()), block);
      } else {
        file.write(kImages, DType::u8, first, end - first, block);
      }
      digest.add_images(block);
      advance(0);
      first = end;
    }
    file.write_all(kSampleDigests, DType::u64, std::array{samples}, std::as_bytes(std::span(digest.sample_digests())));
    const std::vector<std::uint64_t> label_digests = digest_labels(content.labels);
    file.write_all(kLabelDigests, DType::u64, std::array{samples}, std::as_bytes(std::span(label_digests)));
    summary.digest = digest.hex();
    set_shard_attributes(file, plan, pack.split_names[plan.split], pack.goal.jpeg ? kJpegEncoding : kRawEncoding,
                         summary.digest);
    file.close();
    make_way(pack.out);
  });
}

}  // namespace

ShardSummary make_folder_shard(const FolderPack& pack, const ShardPlan& plan, const Advance& advance) {
  const std::string key = content_key(pack, plan);
  if (std::optional<ShardSummary> complete = find_complete(pack, plan, key)) {
    advance(plan.samples);
    return *complete;
  }
  ShardSummary summary;
  summary.digest = "none";
  Content content{Spool(pack.out), {}, {0}, {}};
  read_images(pack, plan, advance, content, summary);
  if (summary.samples > 0) write_folder_shard(pack, plan, advance, content, summary);
  save_summary(pack.out / plan.file, key, summary);
  return summary;
}

}  // namespace renai
