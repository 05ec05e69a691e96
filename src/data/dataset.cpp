#include "renai/data/dataset.hpp"

#include <algorithm>
#include <optional>

#include "positioned_file.hpp"
#include "renai/base/check.hpp"
#include "renai/base/digest.hpp"
#include "renai/base/error.hpp"
#include "renai/base/file_error.hpp"
#include "renai/base/text.hpp"
#include "shard_content.hpp"
#include "shard_file.hpp"

namespace renai {
namespace fs = std::filesystem;
namespace {

/// Where a shard's samples come from: the file itself, or the library for chunked and converted data.
struct OpenShard {
  fs::path path;
  std::int64_t first = 0;  ///< Global index of sample 0.
  std::int64_t raw_offset = -1;
  PositionedFile raw;
  std::optional<ShardFile> converted;
  std::vector<std::uint64_t> offsets;  ///< Of encoded images.
  std::vector<std::uint64_t> digests;  ///< Of samples, where reads are checked.
};

void open_raw(OpenShard& shard, const ShardFile& file, bool direct) {
  shard.raw = PositionedFile(shard.path, direct);
  shard.raw_offset = file.raw_offset();
  const std::int64_t image_bytes = file.encoded() ? file.encoded_bytes() : file.samples() * file.sample_bytes();
  if (shard.raw.size_bytes() < shard.raw_offset + image_bytes) {
    throw DataError("shard " + shard.path.string(),
                    "it is truncated: " + std::to_string(shard.raw.size_bytes()) + " bytes are too few for its " +
                        std::to_string(file.samples()) + " images",
                    "copy or make it again");
  }
}

OpenShard open_shard(ShardFile file, std::int64_t first, bool direct) {
  OpenShard shard;
  shard.path = file.path();
  shard.first = first;
  if (file.encoded()) shard.offsets = file.read_offsets();
  if (file.raw_offset() >= 0) {
    open_raw(shard, file, direct);
  } else if (direct) {
    throw DirectReadRefused(
        "reading shard " + shard.path.string() + " past the page cache (--read-mode direct)",
        "its images are chunked, compressed, no bytes or in another file: the HDF5 library reads them",
        "use --read-mode cached, or pack the set again");
  } else {
    shard.converted.emplace(std::move(file));
  }
  return shard;
}

const SplitInfo& require_split(const Manifest& manifest, const fs::path& directory, const std::string& split) {
  if (const SplitInfo* info = manifest.find(split)) return *info;
  std::vector<std::string> names;
  for (const SplitInfo& candidate : manifest.splits) names.push_back(candidate.name);
  throw UserError("data set " + directory.string(), "it has no split '" + split + "'",
                  names.empty() ? "pack it again" : "it has: " + join(names, ", "));
}

}  // namespace

struct Dataset::Impl {
  fs::path directory;
  Manifest manifest;
  std::vector<OpenShard> shards;
  std::vector<std::int32_t> labels;
  std::int64_t sample_bytes = 0;
  bool encoded = false, direct = false;

  const OpenShard& shard_of(std::int64_t sample) const {
    const auto after = std::upper_bound(shards.begin(), shards.end(), sample,
                                        [](std::int64_t s, const OpenShard& shard) { return s < shard.first; });
    return *std::prev(after);
  }
  /// Of a sample's bytes among those of its shard.
  std::int64_t begin_of(const OpenShard& shard, std::int64_t index) const {
    return encoded ? static_cast<std::int64_t>(shard.offsets[static_cast<std::size_t>(index)]) : index * sample_bytes;
  }
};

Dataset::Dataset(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Dataset::Dataset(Dataset&&) noexcept = default;
Dataset& Dataset::operator=(Dataset&&) noexcept = default;
Dataset::~Dataset() = default;

Dataset Dataset::open(const fs::path& directory, const std::string& split, ReadMode mode) {
  require_named_folder("data set " + directory.string(), directory, "name the folder that `renai pack` wrote");
  auto impl = std::make_unique<Impl>();
  impl->directory = directory;
  impl->direct = mode == ReadMode::direct;
  impl->manifest = load_manifest(directory);
  const Manifest& manifest = impl->manifest;
  impl->encoded = manifest.encoding != kRawEncoding;
  impl->sample_bytes = impl->encoded ? 0 : manifest.height * manifest.width * manifest.channels;
  const SplitInfo& info = require_split(manifest, directory, split);
  allow_open_files(static_cast<std::int64_t>(info.shards.size()));
  for (const ShardInfo& entry : info.shards) {
    ShardFile file = ShardFile::open(directory / entry.file);
    file.check_against(manifest, split, entry);
    const auto labels = file.read_labels(static_cast<std::int64_t>(manifest.classes.size()));
    if (labels.empty()) continue;
    impl->shards.push_back(open_shard(std::move(file), static_cast<std::int64_t>(impl->labels.size()), impl->direct));
    impl->labels.insert(impl->labels.end(), labels.begin(), labels.end());
  }
  if (impl->labels.empty()) {
    throw DataError("split '" + split + "' of data set " + directory.string(), "it is empty",
                    "pack a set with at least one sample");
  }
  return Dataset(std::move(impl));
}

const Manifest& Dataset::manifest() const { return impl_->manifest; }
const fs::path& Dataset::directory() const { return impl_->directory; }
std::int64_t Dataset::size() const { return static_cast<std::int64_t>(impl_->labels.size()); }
bool Dataset::encoded() const { return impl_->encoded; }
bool Dataset::reads_direct() const { return impl_->direct; }
std::int64_t Dataset::sample_bytes() const { return impl_->sample_bytes; }

std::int32_t Dataset::label(std::int64_t sample) const {
  RENAI_CHECK(sample >= 0 && sample < size(), "a sample lies in the set");
  return impl_->labels[static_cast<std::size_t>(sample)];
}

std::int64_t Dataset::stored_bytes(std::int64_t sample) const {
  if (!impl_->encoded) return impl_->sample_bytes;
  RENAI_CHECK(sample >= 0 && sample < size(), "a sample lies in the set");
  const OpenShard& shard = impl_->shard_of(sample);
  const auto index = static_cast<std::size_t>(sample - shard.first);
  return static_cast<std::int64_t>(shard.offsets[index + 1] - shard.offsets[index]);
}

void Dataset::read(std::int64_t sample, std::span<std::byte> out) const {
  RENAI_CHECK(sample >= 0 && sample < size(), "a sample lies in the set");
  RENAI_CHECK(static_cast<std::int64_t>(out.size()) == stored_bytes(sample), "a sample fits its place exactly");
  const OpenShard& shard = impl_->shard_of(sample);
  const std::int64_t index = sample - shard.first, begin = impl_->begin_of(shard, index);
  if (shard.raw_offset >= 0) {
    if (!shard.raw.read(shard.raw_offset + begin, out)) {
      fail_sample(sample, "the file ends before it (truncated while open)");
    }
  } else {
    try {
      impl_->encoded ? shard.converted->read_encoded(begin, out) : shard.converted->read_images(index, 1, out);
    } catch (const DataError& error) {
      fail_sample(sample, error.failed() + ": " + error.why());
    }
  }
  check(sample, out);
}

Dataset::Place Dataset::place(std::int64_t sample) const {
  RENAI_CHECK(sample >= 0 && sample < size(), "a sample lies in the set");
  const OpenShard& shard = impl_->shard_of(sample);
  if (shard.raw_offset < 0) return {};
  const std::int64_t index = sample - shard.first;
  return {&shard - impl_->shards.data(), shard.raw_offset + impl_->begin_of(shard, index), stored_bytes(sample)};
}

bool Dataset::try_read(std::int64_t shard, std::int64_t at, std::span<std::byte> out) const noexcept {
  return impl_->shards[static_cast<std::size_t>(shard)].raw.try_read(at, out);
}

void Dataset::check(std::int64_t sample, std::span<const std::byte> bytes) const {
  const OpenShard& shard = impl_->shard_of(sample);
  if (shard.digests.empty() || hash64(bytes) == shard.digests[static_cast<std::size_t>(sample - shard.first)]) return;
  fail_sample(sample, "its bytes are not those that its digest was made of");
}

void Dataset::check_digests() {
  for (OpenShard& shard : impl_->shards) {
    const ShardFile file = ShardFile::open(shard.path);
    if (!file.has_sample_digests()) {
      throw DataError("shard " + shard.path.string(), "it has no sample digests to check its samples against",
                      "add them with `renai verify --adopt`, or leave --verify-data away");
    }
    if (!file.has_label_digests()) {
      throw DataError("shard " + shard.path.string(), "it has no digests to check its labels against",
                      "add them with `renai verify --adopt`, or leave --verify-data away");
    }
    shard.digests = file.read_sample_digests();
    const auto count = static_cast<std::size_t>(file.samples());
    const std::vector<std::uint64_t> expected = file.read_label_digests();
    const auto labels = std::span<const std::int32_t>(impl_->labels);
    const auto found = digest_labels(labels.subspan(static_cast<std::size_t>(shard.first), count));
    for (std::size_t i = 0; i < count; ++i) {
      if (found[i] == expected[i]) continue;
      fail_sample(shard.first + static_cast<std::int64_t>(i), "its label is not the one that its digest was made of");
    }
  }
}

void Dataset::fail_sample(std::int64_t sample, const std::string& why) const {
  const OpenShard& shard = impl_->shard_of(sample);
  throw DataError("reading sample " + std::to_string(sample - shard.first) + " of shard " + shard.path.string(), why,
                  "copy or make the shard again");
}

}  // namespace renai
