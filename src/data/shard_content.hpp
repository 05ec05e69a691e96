#pragma once
// Digests of a shard's logical content: labels (int32, little-endian), then images.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "renai/io/checksum.hpp"
#include "shard_file.hpp"

namespace renai {

/// Collects a shard's digests from blocks of images in order.
class ContentDigest {
 public:
  ContentDigest(std::span<const std::int32_t> labels, std::int64_t sample_bytes);
  void add_images(std::span<const std::byte> images);

  std::string hex() const { return checksum_.digest().hex(); }
  const std::vector<std::uint64_t>& sample_digests() const { return sample_digests_; }

 private:
  std::int64_t sample_bytes_;
  Checksum128 checksum_;
  std::vector<std::uint64_t> sample_digests_;
};

/// Reads the whole shard. `classes` bounds the labels. Errors: DataError naming the file.
ContentDigest digest_content(const ShardFile& shard, std::int64_t classes);

}  // namespace renai
