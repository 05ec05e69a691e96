// IDX files: big-endian header (two zero bytes, type 8 = uint8, number of axes, extents), then the bytes.
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "packing.hpp"
#include "renai/base/error.hpp"
#include "renai/base/file_error.hpp"
#include "renai/base/handle.hpp"

namespace renai {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kMostSide = 1 << 16;

struct CloseGzip {
  void operator()(gzFile file) const noexcept { gzclose(file); }
};

/// A whole IDX file in memory.
struct IdxFile {
  fs::path path;
  std::vector<std::int64_t> extents;
  std::vector<std::byte> bytes;
};

[[noreturn]] void fail(const fs::path& path, const std::string& why) {
  throw DataError("reading " + path.string(), why, "fetch the file again");
}

/// zlib reads plain files through the same calls, so one path serves both.
void read_exactly(gzFile file, const fs::path& path, std::byte* to, std::size_t size_bytes) {
  while (size_bytes > 0) {
    const auto part = static_cast<unsigned>(std::min<std::size_t>(size_bytes, 1u << 24));
    const int got = gzread(file, to, part);
    int code = Z_OK;
    const int system_error = errno;
    const char* message = gzerror(file, &code);
    if (code == Z_ERRNO && system_error != 0) fail_reading("reading " + path.string(), system_error);
    if (got < 0 || (code != Z_OK && code != Z_BUF_ERROR)) fail(path, std::string("it is damaged: ") + message);
    if (got == 0) fail(path, "it is truncated");
    to += got;
    size_bytes -= static_cast<std::size_t>(got);
  }
}

/// Only here is a compressed file's checksum read that comes after the last byte, or found to be missing.
void require_end(gzFile file, const fs::path& path) {
  std::byte more;
  const int got = gzread(file, &more, 1);
  if (got > 0) fail(path, "it is longer than its header says");
  int code = Z_OK;
  const std::string message = gzerror(file, &code);
  if (code == Z_BUF_ERROR) fail(path, "it is truncated");
  if (got < 0 || code != Z_OK) fail(path, "it is damaged: " + message);
}

IdxFile read_idx(const fs::path& path, bool images) {
  errno = 0;
  Handle<gzFile, CloseGzip, nullptr> file(gzopen(path.c_str(), "rb"));
  if (!file) fail_reading("opening " + path.string(), errno);
  gzbuffer(file.get(), 1u << 18);
  const auto word = [&] {
    std::byte raw[4];
    read_exactly(file.get(), path, raw, sizeof(raw));
    std::int64_t value = 0;
    for (const std::byte byte : raw) value = value << 8 | static_cast<std::int64_t>(byte);
    return value;
  };
  const std::int64_t magic = word();
  const std::int64_t axes = magic & 0xff;
  if (magic >> 8 != 8 || (images ? axes != 3 && axes != 4 : axes != 1)) {
    fail(path, images ? "it is no IDX file of uint8 images" : "it is no IDX file of uint8 labels");
  }
  IdxFile idx{path, {}, {}};
  std::int64_t size_bytes = 1;
  for (std::int64_t axis = 0; axis < axes; ++axis) {
    idx.extents.push_back(word());
    if (axis > 0 && (idx.extents.back() < 1 || idx.extents.back() > kMostSide)) fail(path, "its extents are damaged");
    if (idx.extents.back() > 0 && size_bytes > (std::int64_t{1} << 40) / idx.extents.back()) {
      fail(path, "its extents are damaged");
    }
    size_bytes *= idx.extents.back();
  }
  // Grown as the bytes arrive: a damaged header must not decide how much memory is taken.
  constexpr std::int64_t kStep = 1 << 24;
  for (std::int64_t at = 0; at < size_bytes; at += kStep) {
    const std::int64_t part = std::min(kStep, size_bytes - at);
    idx.bytes.resize(static_cast<std::size_t>(at + part));
    read_exactly(file.get(), path, idx.bytes.data() + at, static_cast<std::size_t>(part));
  }
  require_end(file.get(), path);
  return idx;
}

/// "train-images-idx3-ubyte", the same with ".gz", or with a dot for the second dash; empty when there is none.
fs::path find_idx(const fs::path& input, const std::string& stem) {
  for (const char* kind : {"-idx1-ubyte", "-idx3-ubyte", "-idx4-ubyte", ".idx1-ubyte", ".idx3-ubyte", ".idx4-ubyte"}) {
    for (const char* suffix : {"", ".gz"}) {
      const fs::path path = input / (stem + kind + suffix);
      if (fs::is_regular_file(path)) return path;
    }
  }
  return {};
}

struct IdxPair {
  IdxFile images, labels;
};

std::shared_ptr<const IdxPair> read_pair(const fs::path& input, const std::string& prefix, bool required) {
  const fs::path images = find_idx(input, prefix + "-images"), labels = find_idx(input, prefix + "-labels");
  if (images.empty() && labels.empty() && !required) return nullptr;
  if (images.empty() || labels.empty()) {
    const std::string missing = prefix + (images.empty() ? "-images-idx3-ubyte" : "-labels-idx1-ubyte");
    throw DataError("packing " + input.string(), missing + " (or " + missing + ".gz) is missing",
                    "put the four IDX files into one folder");
  }
  auto pair = std::make_shared<IdxPair>(IdxPair{read_idx(images, true), read_idx(labels, false)});
  if (pair->images.extents[0] != pair->labels.extents[0]) {
    throw DataError("packing " + input.string(),
                    images.filename().string() + " holds " + std::to_string(pair->images.extents[0]) + " images, " +
                        labels.filename().string() + " holds " + std::to_string(pair->labels.extents[0]) + " labels",
                    "fetch the files again");
  }
  return pair;
}

SplitSource make_split(const std::string& name, const std::shared_ptr<const IdxPair>& pair, std::int64_t sample_bytes) {
  SplitSource split{name, pair->images.extents[0], nullptr};
  split.read = [pair, sample_bytes](std::int64_t first, std::span<std::int32_t> labels, std::span<std::byte> images) {
    for (std::size_t i = 0; i < labels.size(); ++i) {
      labels[i] = static_cast<std::int32_t>(pair->labels.bytes[static_cast<std::size_t>(first) + i]);
    }
    std::memcpy(images.data(), pair->images.bytes.data() + first * sample_bytes, images.size());
  };
  return split;
}

std::int64_t classes_of(const IdxFile& labels) {
  std::int64_t most = 0;
  for (const std::byte label : labels.bytes) most = std::max(most, static_cast<std::int64_t>(label));
  return most + 1;
}

}  // namespace

Manifest pack_idx(const fs::path& input, const PackOptions& options) {
  require_input_folder(input);
  const auto train = read_pair(input, "train", true);
  const auto val = read_pair(input, "t10k", false);
  PackSource source;
  const std::vector<std::int64_t>& extents = train->images.extents;
  source.height = extents[1];
  source.width = extents[2];
  source.channels = extents.size() == 4 ? extents[3] : 1;
  if (source.channels > 4) fail(train->images.path, "it has more than four channels");
  if (val &&
      !std::equal(extents.begin() + 1, extents.end(), val->images.extents.begin() + 1, val->images.extents.end())) {
    fail(val->images.path, "its images have another size than the training images");
  }
  const std::int64_t classes = std::max(classes_of(train->labels), val ? classes_of(val->labels) : 0);
  source.classes = class_names(classes, options.classes);
  const std::int64_t sample_bytes = source.height * source.width * source.channels;
  source.splits.push_back(make_split("train", train, sample_bytes));
  if (val) source.splits.push_back(make_split("val", val, sample_bytes));
  source.settings = setting("kind", "idx") + setting("input", input.string());
  return write_dataset(std::move(source), options);
}

}  // namespace renai
