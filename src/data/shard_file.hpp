#pragma once
// One shard on disk: names of its parts, opening with checks, reading as int32 labels and uint8 pixels or encoded
// bytes.

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "renai/data/dataset.hpp"
#include "renai/io/hdf5.hpp"

namespace renai {

inline constexpr std::string_view kDatasetFormat = "renai-dataset";
inline constexpr std::string_view kRawEncoding = "raw";
inline constexpr std::string_view kJpegEncoding = "jpeg";
inline constexpr std::string_view kManifestFile = "manifest.json";
inline constexpr std::int64_t kShardFormat = 1;

inline const std::string kLabels = "labels";
inline const std::string kImages = "images";
inline const std::string kImageBytes = "image_bytes";      ///< Encoded images, one after the other.
inline const std::string kImageOffsets = "image_offsets";  ///< Where each begins, and one more for the end.
inline const std::string kSampleDigests = "sample_digests";
inline const std::string kLabelDigests = "label_digests";
inline const std::string kDigestAttribute = "digest";

/// An open shard whose datasets exist and fit each other. Thread-safe (the library's lock).
class ShardFile {
 public:
  /// Errors: DataError naming the file and what is wrong with it.
  static ShardFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  bool encoded() const { return encoded_; }  ///< Encoding `jpeg`: images have sizes of their own.
  std::string_view encoding() const { return encoded_ ? kJpegEncoding : kRawEncoding; }
  std::int64_t samples() const { return labels_.extents[0]; }
  /// Shapes: of raw images; 0 for encoded ones.
  std::int64_t height() const { return encoded_ ? 0 : images_.extents[1]; }
  std::int64_t width() const { return encoded_ ? 0 : images_.extents[2]; }
  std::int64_t channels() const { return encoded_ ? 0 : images_.extents[3]; }
  std::int64_t sample_bytes() const { return height() * width() * channels(); }
  /// Of all encoded images together.
  std::int64_t encoded_bytes() const { return encoded_ ? images_.extents[0] : 0; }
  const H5File& file() const { return file_; }
  /// Byte offset of the first pixel or encoded byte when samples can be read from the file directly, else -1.
  std::int64_t raw_offset() const {
    return images_.dtype == DType::u8 && images_.contiguous ? images_.file_offset : -1;
  }
  bool has_sample_digests() const { return file_.exists(kSampleDigests); }
  bool has_label_digests() const { return file_.exists(kLabelDigests); }

  /// Errors: DataError when count, size, split, encoding or the digest that the shard has of itself are not as the
  /// manifest says.
  void check_against(const Manifest& manifest, const std::string& split, const ShardInfo& info) const;
  /// All labels. Errors: DataError naming the first sample whose label is not in [0, classes).
  std::vector<std::int32_t> read_labels(std::int64_t classes) const;
  /// Pixels of samples [first, first + count) into `out` (count * sample_bytes). Other integer types are converted.
  /// Errors: DataError naming the sample when a value is not in 0 to 255, or the file when it cannot be read.
  void read_images(std::int64_t first, std::int64_t count, std::span<std::byte> out) const;
  /// Of encoded images: samples() + 1 rising positions in their bytes, from 0 to encoded_bytes().
  /// Errors: DataError naming the first sample that has no bytes or lies outside.
  std::vector<std::uint64_t> read_offsets() const;
  /// Bytes [first, first + out.size()) of the encoded images. Errors: DataError naming the file.
  void read_encoded(std::int64_t first, std::span<std::byte> out) const;
  std::vector<std::uint64_t> read_sample_digests() const { return read_digests(kSampleDigests); }
  std::vector<std::uint64_t> read_label_digests() const { return read_digests(kLabelDigests); }

 private:
  ShardFile(std::filesystem::path path, H5File file) : path_(std::move(path)), file_(std::move(file)) {}
  [[noreturn]] void fail(const std::string& why) const;
  H5DatasetInfo require_integers(const std::string& name, std::size_t axes, const std::string& extents) const;
  void require_stored(const std::string& name, const H5DatasetInfo& info) const;
  std::vector<std::uint64_t> read_digests(const std::string& name) const;

  std::filesystem::path path_;
  H5File file_;
  bool encoded_ = false;
  H5DatasetInfo labels_, images_;  ///< images_: the pixels, or the encoded bytes.

  void open_images();
  void open_encoded();
  void check_attributes() const;
};

/// Rows that keep a block of `row_bytes` each near 4 MiB, at least 1.
std::int64_t rows_per_block(std::int64_t row_bytes);

}  // namespace renai
