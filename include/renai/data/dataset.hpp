#pragma once
// Dataset: one split of a directory of HDF5 shards with a manifest.

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "renai/data/read_mode.hpp"

namespace renai {

/// What the manifest says of a shard.
struct ShardInfo {
  std::string file;
  std::int64_t samples = 0;
  /// XXH3-128 of the shard's logical content (labels, then offsets of encoded images, then images), 32 hex digits.
  std::string digest;
};
/// A split: its shards in the order in which their samples are counted.
struct SplitInfo {
  std::string name;  ///< "train", "val"
  std::vector<ShardInfo> shards;
  std::int64_t samples() const;
};
/// manifest.json: what a data set holds.
struct Manifest {
  int format_version = 1;
  std::string name, encoding = "raw";                ///< Or "jpeg".
  std::int64_t height = 0, width = 0, channels = 0;  ///< jpeg: the network input meant, as images differ in size; 3.
  std::vector<std::string> classes;
  std::array<double, 4> mean{}, std{};  ///< By channel, uint8 scale, of the training split.
  std::vector<SplitInfo> splits;
  const SplitInfo* find(const std::string& split) const;
  std::string digest() const;  ///< Over all but file names and `name`, for trace headers. 32 hex digits.
};
/// Errors: DataError naming file and key.
Manifest load_manifest(const std::filesystem::path& directory);
/// Errors: ResourceError.
void save_manifest(const Manifest& manifest, const std::filesystem::path& directory);

/// A split, opened and checked (shards present, complete, counts and shapes as the manifest says, every label in
/// range). Reads are thread-safe and take no library lock for contiguous shards. A read that a disk or network fails is
/// tried again for some seconds.
class Dataset {
 public:
  /// `mode`: direct or cached; automatic is the same as cached here.
  /// Errors: DataError naming shard and reason; UserError when the directory or split does not exist;
  /// DirectReadRefused naming the shard that cannot be read past the page cache.
  static Dataset open(const std::filesystem::path& directory, const std::string& split,
                      ReadMode mode = ReadMode::cached);
  Dataset(Dataset&&) noexcept;
  Dataset& operator=(Dataset&&) noexcept;
  ~Dataset();

  const Manifest& manifest() const;
  const std::filesystem::path& directory() const;
  std::int64_t size() const;
  bool encoded() const;               ///< Whether samples are JPEG images rather than pixels.
  std::int64_t sample_bytes() const;  ///< h * w * c; 0 for an encoded set
  std::int64_t stored_bytes(std::int64_t sample) const;
  std::int32_t label(std::int64_t sample) const;
  /// Pixels HWC of one sample, or its encoded image, into `out` (stored_bytes). Errors: DataError naming shard and
  /// sample; ResourceError naming file, offset and the system's reason.
  void read(std::int64_t sample, std::span<std::byte> out) const;
  /// Where the bytes of a sample lie, for who reads several at once. shard < 0: only read() can get them.
  struct Place {
    std::int64_t shard = -1, at = 0, size_bytes = 0;
  };
  Place place(std::int64_t sample) const;
  /// Bytes of a shard's file from `at` on, asked for without patience: false where they are not to be had at once,
  /// and read() will say why, or get them after all.
  bool try_read(std::int64_t shard, std::int64_t at, std::span<std::byte> out) const noexcept;
  /// What read() does with the bytes it got. Errors: DataError where they are not those of the sample's digest.
  void check(std::int64_t sample, std::span<const std::byte> bytes) const;
  bool reads_direct() const;  ///< Past the page cache.
  /// Compares all labels with their digests, and from now on every read with the shard's sample digests. Errors:
  /// DataError naming a shard without digests, or shard and sample of a label that is not the one that was packed.
  void check_digests();
  /// Throws DataError naming shard and sample.
  [[noreturn]] void fail_sample(std::int64_t sample, const std::string& why) const;

 private:
  struct Impl;
  explicit Dataset(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace renai
