#include "renai/data/dataset.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>

#include "renai/base/check.hpp"
#include "renai/base/descriptor.hpp"
#include "renai/base/error.hpp"
#include "renai/base/text.hpp"
#include "shard_file.hpp"

namespace renai {
namespace fs = std::filesystem;
namespace {

/// Where a shard's samples come from: the file itself, or the library for chunked and converted data.
struct OpenShard {
  fs::path path;
  std::int64_t first = 0;  ///< Global index of sample 0.
  std::int64_t raw_offset = -1;
  Descriptor raw;
  std::optional<ShardFile> converted;
};

[[noreturn]] void fail_sample(const OpenShard& shard, std::int64_t index, const std::string& why) {
  throw DataError("reading sample " + std::to_string(index) + " of shard " + shard.path.string(), why,
                  "make the shard again");
}

void open_raw(OpenShard& shard, const ShardFile& file) {
  shard.raw = Descriptor(::open(shard.path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!shard.raw || ::fstat(shard.raw.get(), &status) != 0) {
    throw ResourceError("opening " + shard.path.string(), std::generic_category().message(errno),
                        "check permissions and the limit of open files");
  }
  shard.raw_offset = file.raw_offset();
  if (status.st_size < shard.raw_offset + file.samples() * file.sample_bytes()) {
    throw DataError("shard " + shard.path.string(),
                    "it is truncated: " + std::to_string(status.st_size) + " bytes are too few for its " +
                        std::to_string(file.samples()) + " images",
                    "copy or make it again");
  }
}

void read_raw(const OpenShard& shard, std::int64_t index, std::span<std::byte> out) {
  std::int64_t at = shard.raw_offset + index * static_cast<std::int64_t>(out.size());
  while (!out.empty()) {
    const ssize_t got = ::pread(shard.raw.get(), out.data(), out.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_sample(shard, index, std::generic_category().message(errno));
    if (got == 0) fail_sample(shard, index, "the file ends before it (truncated while open)");
    out = out.subspan(static_cast<std::size_t>(got));
    at += got;
  }
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

  const OpenShard& shard_of(std::int64_t sample) const {
    const auto after = std::upper_bound(shards.begin(), shards.end(), sample,
                                        [](std::int64_t s, const OpenShard& shard) { return s < shard.first; });
    return *std::prev(after);
  }
};

Dataset::Dataset(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Dataset::Dataset(Dataset&&) noexcept = default;
Dataset& Dataset::operator=(Dataset&&) noexcept = default;
Dataset::~Dataset() = default;

Dataset Dataset::open(const fs::path& directory, const std::string& split) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    throw UserError("data set " + directory.string(), "there is no such folder",
                    "name the folder that `renai pack` wrote");
  }
  auto impl = std::make_unique<Impl>();
  impl->directory = directory;
  impl->manifest = load_manifest(directory);
  const Manifest& manifest = impl->manifest;
  impl->sample_bytes = manifest.height * manifest.width * manifest.channels;
  if (manifest.encoding != kRawEncoding) {
    throw DataError("data set " + directory.string(), "its images are encoded; this version trains on raw images",
                    "pack it with --encoding raw");
  }
  const SplitInfo& info = require_split(manifest, directory, split);
  for (const ShardInfo& entry : info.shards) {
    ShardFile file = ShardFile::open(directory / entry.file);
    file.check_against(manifest, split, entry);
    const auto labels = file.read_labels(static_cast<std::int64_t>(manifest.classes.size()));
    if (labels.empty()) continue;
    OpenShard shard;
    shard.path = file.path();
    shard.first = static_cast<std::int64_t>(impl->labels.size());
    if (file.raw_offset() >= 0) {
      open_raw(shard, file);
    } else {
      shard.converted.emplace(std::move(file));
    }
    impl->labels.insert(impl->labels.end(), labels.begin(), labels.end());
    impl->shards.push_back(std::move(shard));
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
std::int64_t Dataset::sample_bytes() const { return impl_->sample_bytes; }

std::int32_t Dataset::label(std::int64_t sample) const {
  RENAI_CHECK(sample >= 0 && sample < size(), "a sample lies in the set");
  return impl_->labels[static_cast<std::size_t>(sample)];
}

void Dataset::read(std::int64_t sample, std::span<std::byte> out) const {
  RENAI_CHECK(sample >= 0 && sample < size(), "a sample lies in the set");
  RENAI_CHECK(static_cast<std::int64_t>(out.size()) == impl_->sample_bytes, "a sample fits its place exactly");
  const OpenShard& shard = impl_->shard_of(sample);
  const std::int64_t index = sample - shard.first;
  if (shard.raw_offset >= 0) {
    read_raw(shard, index, out);
  } else {
    shard.converted->read_images(index, 1, out);
  }
}

}  // namespace renai
