#include "shard_file.hpp"

#include <algorithm>
#include <limits>

#include "renai/base/error.hpp"
#include "shape_text.hpp"

namespace renai {
namespace {

/// More than an encoded image can have whose pixels may be decoded.
constexpr std::uint64_t kMostImageBytes = std::uint64_t{1} << 30;

}  // namespace

std::int64_t rows_per_block(std::int64_t row_bytes) {
  constexpr std::int64_t kBlockBytes = std::int64_t{4} << 20;
  return std::max<std::int64_t>(1, kBlockBytes / std::max<std::int64_t>(1, row_bytes));
}

void ShardFile::fail(const std::string& why) const {
  throw DataError("shard " + path_.string(), why, "make the shard again or correct the manifest");
}

H5DatasetInfo ShardFile::require_integers(const std::string& name, std::size_t axes, const std::string& extents) const {
  if (!file_.exists(name)) {
    const std::string target = file_.broken_link(name);
    fail(target.empty() ? "it has no dataset '" + name + "'"
                        : "its dataset '" + name + "' is a link to " + target + ", which is not there");
  }
  H5DatasetInfo info = file_.info(name);
  const bool integers = info.convertible && (info.dtype == DType::u8 || info.dtype == DType::i32 ||
                                             info.dtype == DType::i64 || info.dtype == DType::u64);
  if (!integers) fail("dataset '" + name + "' does not hold integers");
  if (info.extents.size() != axes) {
    fail("dataset '" + name + "' has shape " + shape_text(info.extents) + "; " + extents + " is expected");
  }
  // The encoded bytes are looked at with their offsets, which tell the sample.
  if (name != kImageBytes) require_stored(name, info);
  return info;
}

void ShardFile::require_stored(const std::string& name, const H5DatasetInfo& info) const {
  double bytes = static_cast<double>(dtype_bytes(info.dtype));
  for (const std::int64_t extent : info.extents) bytes *= static_cast<double>(extent);
  if (bytes <= static_cast<double>(file_.most_bytes(name))) return;
  fail("dataset '" + name + "' claims to be of shape " + shape_text(info.extents) + ", of which the file stores " +
       "next to nothing; its extents are damaged");
}

ShardFile ShardFile::open(const std::filesystem::path& path) {
  ShardFile shard(path, H5File::open(path));
  shard.labels_ = shard.require_integers(kLabels, 1, "[n]");
  shard.encoded_ = !shard.file_.exists(kImages) && shard.file_.exists(kImageBytes);
  if (shard.encoded_) {
    shard.open_encoded();
  } else {
    shard.open_images();
  }
  shard.check_attributes();
  return shard;
}

void ShardFile::open_images() {
  images_ = require_integers(kImages, 4, "[n, h, w, c]");
  if (images_.extents[0] != samples()) {
    fail("it has " + std::to_string(samples()) + " labels for " + std::to_string(images_.extents[0]) + " images");
  }
  // Bounds every product of extents made later; a damaged file may hold any number.
  double total_bytes = 8.0;
  for (const std::int64_t extent : images_.extents) {
    if (extent < 0) fail("its extents are damaged");
    total_bytes *= static_cast<double>(std::max<std::int64_t>(extent, 1));
  }
  if (total_bytes >= 0x1p62) fail("its extents " + shape_text(images_.extents) + " are damaged");
}

void ShardFile::open_encoded() {
  images_ = require_integers(kImageBytes, 1, "[bytes]");
  if (images_.dtype != DType::u8) fail("dataset '" + kImageBytes + "' does not hold bytes");
  const H5DatasetInfo offsets = require_integers(kImageOffsets, 1, "[n + 1]");
  constexpr std::int64_t kMost = std::int64_t{1} << 60;
  if (samples() < 0 || samples() >= kMost || encoded_bytes() < 0 || encoded_bytes() >= kMost) {
    fail("its extents are damaged");
  }
  if (offsets.extents[0] != samples() + 1) {
    fail("it has " + std::to_string(samples()) + " labels and " + std::to_string(offsets.extents[0]) +
         " offsets; one more than the labels is expected");
  }
}

void ShardFile::check_attributes() const {
  if (const auto format = file_.int_attribute("/", "renai_format"); format && *format != kShardFormat) {
    fail("its format is " + std::to_string(*format) + "; this version reads " + std::to_string(kShardFormat));
  }
  const auto said = file_.string_attribute("/", "encoding");
  if (!said || *said == encoding()) return;
  if (*said != kRawEncoding && *said != kJpegEncoding) {
    fail("its encoding '" + *said + "' is not known; 'raw' and 'jpeg' are what this version reads");
  }
  fail("its encoding is '" + *said + "', but its datasets are those of '" + std::string(encoding()) + "'");
}

void ShardFile::check_against(const Manifest& manifest, const std::string& split, const ShardInfo& info) const {
  if (samples() != info.samples) {
    fail("it has " + std::to_string(samples()) + " samples, the manifest says " + std::to_string(info.samples));
  }
  if (encoding() != manifest.encoding) {
    fail("its encoding is '" + std::string(encoding()) + "', the manifest says '" + manifest.encoding + "'");
  }
  const std::array<std::int64_t, 3> expected{manifest.height, manifest.width, manifest.channels};
  if (!encoded_ && (height() != expected[0] || width() != expected[1] || channels() != expected[2])) {
    fail("its images are " + shape_text(std::span(images_.extents).subspan(1)) + ", the manifest says " +
         shape_text(expected));
  }
  const auto own_split = file_.string_attribute("/", "split");
  if (own_split && *own_split != split) {
    fail("it belongs to split '" + *own_split + "', the manifest says '" + split + "'");
  }
  const auto own_digest = file_.string_attribute("/", kDigestAttribute);
  if (own_digest && !info.digest.empty() && *own_digest != info.digest) {
    fail("it is another shard than the manifest means: its digest " + *own_digest + " is not the manifest's digest " +
         info.digest);
  }
}

std::vector<std::int32_t> ShardFile::read_labels(std::int64_t classes) const {
  std::vector<std::int64_t> wide(static_cast<std::size_t>(samples()));
  file_.read(kLabels, DType::i64, 0, samples(), std::as_writable_bytes(std::span(wide)));
  std::vector<std::int32_t> labels(wide.size());
  for (std::size_t i = 0; i < wide.size(); ++i) {
    if (wide[i] < 0 || wide[i] >= classes) {
      fail("sample " + std::to_string(i) + " has label " + std::to_string(wide[i]) + "; labels are 0 to " +
           std::to_string(classes - 1));
    }
    labels[i] = static_cast<std::int32_t>(wide[i]);
  }
  return labels;
}

void ShardFile::read_images(std::int64_t first, std::int64_t count, std::span<std::byte> out) const {
  if (images_.dtype == DType::u8) {
    file_.read(kImages, DType::u8, first, count, out);
    return;
  }
  // One per thread and kept, so that the steady state allocates nothing.
  thread_local std::vector<std::int64_t> wide;
  wide.resize(out.size());
  file_.read(kImages, DType::i64, first, count, std::as_writable_bytes(std::span(wide)));
  for (std::size_t i = 0; i < wide.size(); ++i) {
    if (wide[i] < 0 || wide[i] > 255) {
      const std::int64_t sample = first + static_cast<std::int64_t>(i) / sample_bytes();
      fail("sample " + std::to_string(sample) + " has a pixel of value " + std::to_string(wide[i]) +
           "; 0 to 255 is expected");
    }
    out[i] = static_cast<std::byte>(wide[i]);
  }
}

std::vector<std::uint64_t> ShardFile::read_offsets() const {
  std::vector<std::uint64_t> offsets(static_cast<std::size_t>(samples()) + 1);
  file_.read(kImageOffsets, DType::u64, 0, samples() + 1, std::as_writable_bytes(std::span(offsets)));
  const auto total = static_cast<std::uint64_t>(encoded_bytes());
  const auto most = static_cast<std::uint64_t>(file_.most_bytes(kImageBytes));
  if (offsets.front() != 0) fail("its first image does not begin at byte 0 of '" + kImageBytes + "'");
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    const bool rising = offsets[i + 1] > offsets[i] && offsets[i + 1] <= total;
    if (rising && offsets[i + 1] - offsets[i] <= std::min(most, kMostImageBytes)) continue;
    fail("sample " + std::to_string(i) + " has bytes " + std::to_string(offsets[i]) + " to " +
         std::to_string(offsets[i + 1]) + " of " + std::to_string(total) +
         (rising ? ", far more than an image can have" : "") + "; its offsets are damaged");
  }
  if (offsets.back() != total) {
    fail("its images end at byte " + std::to_string(offsets.back()) + " of " + std::to_string(total) +
         "; its offsets are damaged");
  }
  return offsets;
}

void ShardFile::read_encoded(std::int64_t first, std::span<std::byte> out) const {
  file_.read(kImageBytes, DType::u8, first, static_cast<std::int64_t>(out.size()), out);
}

std::vector<std::uint64_t> ShardFile::read_digests(const std::string& name) const {
  const H5DatasetInfo info = require_integers(name, 1, "[n]");
  if (info.dtype != DType::u64 || info.extents[0] != samples()) {
    fail("dataset '" + name + "' does not hold one 64-bit digest a sample");
  }
  std::vector<std::uint64_t> digests(static_cast<std::size_t>(samples()));
  file_.read(name, DType::u64, 0, samples(), std::as_writable_bytes(std::span(digests)));
  return digests;
}

}  // namespace renai
