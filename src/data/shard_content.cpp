#include "shard_content.hpp"

#include <algorithm>
#include <bit>

#include "renai/base/check.hpp"
#include "renai/base/error.hpp"

namespace renai {

static_assert(std::endian::native == std::endian::little, "digests are over little-endian labels");

ContentDigest::ContentDigest(std::span<const std::int32_t> labels, std::int64_t sample_bytes)
    : sample_bytes_(sample_bytes) {
  checksum_.update(std::as_bytes(labels));
  sample_digests_.reserve(labels.size());
}

ContentDigest::ContentDigest(std::span<const std::int32_t> labels, std::span<const std::uint64_t> offsets)
    : offsets_(offsets.begin(), offsets.end()) {
  RENAI_CHECK(offsets.size() == labels.size() + 1, "each encoded image has a begin and an end");
  checksum_.update(std::as_bytes(labels));
  checksum_.update(std::as_bytes(offsets));
  sample_digests_.reserve(labels.size());
}

std::size_t ContentDigest::bytes_of_next() const {
  if (offsets_.empty()) return static_cast<std::size_t>(sample_bytes_);
  const std::size_t next = sample_digests_.size();
  RENAI_CHECK(next + 1 < offsets_.size(), "a shard has no more images than offsets");
  return offsets_[next + 1] - offsets_[next];
}

void ContentDigest::add_images(std::span<const std::byte> images) {
  checksum_.update(images);
  while (!images.empty()) {
    const std::size_t bytes = bytes_of_next();
    RENAI_CHECK(bytes > 0 && bytes <= images.size(), "a block holds whole images");
    sample_digests_.push_back(hash64(images.first(bytes)));
    images = images.subspan(bytes);
  }
}

std::vector<std::uint64_t> digest_labels(std::span<const std::int32_t> labels) {
  std::vector<std::uint64_t> digests(labels.size());
  for (std::size_t i = 0; i < labels.size(); ++i) digests[i] = hash64(std::as_bytes(labels.subspan(i, 1)), i);
  return digests;
}

std::int64_t images_in_block(std::span<const std::uint64_t> offsets, std::int64_t first) {
  constexpr std::uint64_t kBlockBytes = std::uint64_t{4} << 20;
  const auto begin = static_cast<std::size_t>(first);
  std::size_t end = begin + 1;
  while (end + 1 < offsets.size() && offsets[end + 1] - offsets[begin] <= kBlockBytes) ++end;
  return static_cast<std::int64_t>(end - begin);
}

namespace {

/// Calls `read(first, count)` for a block of samples. Where that fails it asks for one sample after the other, so that
/// the error names the first that cannot be read.
template <typename Read>
void read_block(const ShardFile& shard, std::int64_t first, std::int64_t count, Read&& read) {
  try {
    return read(first, count);
  } catch (const DataError& whole) {
    for (std::int64_t i = first; i < first + count; ++i) {
      try {
        read(i, std::int64_t{1});
      } catch (const DataError& error) {
        throw DataError("reading sample " + std::to_string(i) + " of shard " + shard.path().string(),
                        error.failed() + ": " + error.why(), "copy or make the shard again");
      }
    }
    throw;
  }
}

ContentDigest digest_encoded(const ShardFile& shard, std::int64_t classes) {
  const std::vector<std::uint64_t> offsets = shard.read_offsets();
  ContentDigest digest(shard.read_labels(classes), offsets);
  std::vector<std::byte> block;
  for (std::int64_t first = 0; first < shard.samples();) {
    const std::int64_t end = first + images_in_block(offsets, first);
    read_block(shard, first, end - first, [&](std::int64_t begin, std::int64_t samples) {
      const std::uint64_t at = offsets[static_cast<std::size_t>(begin)];
      block.resize(offsets[static_cast<std::size_t>(begin + samples)] - at);
      shard.read_encoded(static_cast<std::int64_t>(at), block);
    });
    digest.add_images(block);
    first = end;
  }
  return digest;
}

}  // namespace

ContentDigest digest_content(const ShardFile& shard, std::int64_t classes) {
  if (shard.encoded()) return digest_encoded(shard, classes);
  constexpr std::int64_t kMostKept = std::int64_t{256} << 20;
  shard.file().keep_chunks(kImages, kMostKept);
  ContentDigest digest(shard.read_labels(classes), shard.sample_bytes());
  const std::int64_t rows = rows_per_block(shard.sample_bytes());
  std::vector<std::byte> block;
  for (std::int64_t first = 0; first < shard.samples(); first += rows) {
    const std::int64_t count = std::min(rows, shard.samples() - first);
    read_block(shard, first, count, [&](std::int64_t begin, std::int64_t samples) {
      block.resize(static_cast<std::size_t>(samples * shard.sample_bytes()));
      shard.read_images(begin, samples, block);
    });
    digest.add_images(block);
  }
  return digest;
}

}  // namespace renai
