#include "shard_content.hpp"

#include <algorithm>
#include <bit>

namespace renai {

static_assert(std::endian::native == std::endian::little, "digests are over little-endian labels");

ContentDigest::ContentDigest(std::span<const std::int32_t> labels, std::int64_t sample_bytes)
    : sample_bytes_(sample_bytes) {
  checksum_.update(std::as_bytes(labels));
  sample_digests_.reserve(labels.size());
}

void ContentDigest::add_images(std::span<const std::byte> images) {
  checksum_.update(images);
  const auto sample_bytes = static_cast<std::size_t>(sample_bytes_);
  for (; !images.empty(); images = images.subspan(sample_bytes)) {
    sample_digests_.push_back(hash64(images.first(sample_bytes)));
  }
}

ContentDigest digest_content(const ShardFile& shard, std::int64_t classes) {
  ContentDigest digest(shard.read_labels(classes), shard.sample_bytes());
  const std::int64_t rows = rows_per_block(shard.sample_bytes());
  std::vector<std::byte> block;
  for (std::int64_t first = 0; first < shard.samples(); first += rows) {
    const std::int64_t count = std::min(rows, shard.samples() - first);
    block.resize(static_cast<std::size_t>(count * shard.sample_bytes()));
    shard.read_images(first, count, block);
    digest.add_images(block);
  }
  return digest;
}

}  // namespace renai
