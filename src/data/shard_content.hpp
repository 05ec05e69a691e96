#pragma once
// Digests of a shard's logical content: labels (int32, little-endian), then images; between them, where images are
// encoded, their offsets (uint64, little-endian).

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "renai/io/checksum.hpp"
#include "shard_file.hpp"

namespace renai {

/// Collects a shard's digests from blocks of whole images in order: pixels, or encoded bytes.
class ContentDigest {
 public:
  ContentDigest(std::span<const std::int32_t> labels, std::int64_t sample_bytes);
  /// Of encoded images. `offsets`: one more than the labels, rising from 0.
  ContentDigest(std::span<const std::int32_t> labels, std::span<const std::uint64_t> offsets);
  void add_images(std::span<const std::byte> images);

  std::string hex() const { return checksum_.digest().hex(); }
  const std::vector<std::uint64_t>& sample_digests() const { return sample_digests_; }

 private:
  std::size_t bytes_of_next() const;

  std::int64_t sample_bytes_ = 0;
  std::vector<std::uint64_t> offsets_;  ///< Of encoded images.
  Checksum128 checksum_;
  std::vector<std::uint64_t> sample_digests_;
};

/// One for each label: XXH3-64 of its four bytes, seeded by its place in the shard.
std::vector<std::uint64_t> digest_labels(std::span<const std::int32_t> labels);

/// How many encoded images from `first` on to handle at once: some MiB, at least one image.
std::int64_t images_in_block(std::span<const std::uint64_t> offsets, std::int64_t first);

/// Reads the whole shard. `classes` bounds the labels. Errors: DataError naming the file.
ContentDigest digest_content(const ShardFile& shard, std::int64_t classes);

}  // namespace renai
