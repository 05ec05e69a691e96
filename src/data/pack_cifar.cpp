// CIFAR, binary version: records of one label byte (CIFAR-100: coarse, then fine) and 3072 pixels, planes R, G, B.
#include <algorithm>
#include <span>

#include "packing.hpp"
#include "positioned_file.hpp"
#include "renai/base/error.hpp"
#include "renai/base/file_error.hpp"

namespace renai {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kSide = 32, kChannels = 3, kPlaneBytes = kSide * kSide, kSampleBytes = kPlaneBytes * kChannels;

/// The files of one split, read as one list of records.
struct RecordFiles {
  std::vector<fs::path> paths;
  std::vector<std::int64_t> first;  ///< Record number at which each file starts; one more entry for the end.
  std::int64_t label_bytes = 1;

  std::int64_t record_bytes() const { return label_bytes + kSampleBytes; }
};

RecordFiles open_records(const std::vector<fs::path>& paths, std::int64_t label_bytes) {
  RecordFiles files{paths, {0}, label_bytes};
  for (const fs::path& path : paths) {
    std::error_code error;
    const auto size_bytes = static_cast<std::int64_t>(fs::file_size(path, error));
    if (error) fail_reading("reading " + path.string(), error.value());
    if (size_bytes == 0) throw DataError("reading " + path.string(), "it is empty", "fetch the file again");
    if (size_bytes % files.record_bytes() != 0) {
      throw DataError("reading " + path.string(),
                      "its " + std::to_string(size_bytes) + " bytes are no whole number of records of " +
                          std::to_string(files.record_bytes()) + " (truncated?)",
                      "fetch the file again");
    }
    files.first.push_back(files.first.back() + size_bytes / files.record_bytes());
  }
  return files;
}

void read_records(const RecordFiles& files, std::int64_t first, std::span<std::int32_t> labels,
                  std::span<std::byte> images) {
  std::vector<char> record(static_cast<std::size_t>(files.record_bytes()));
  PositionedFile in;
  std::size_t open = files.paths.size();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::int64_t number = first + static_cast<std::int64_t>(i);
    const auto after = std::upper_bound(files.first.begin(), files.first.end(), number);
    const auto file = static_cast<std::size_t>(std::distance(files.first.begin(), after) - 1);
    if (file != open) {
      in = PositionedFile(files.paths[file]);
      open = file;
    }
    if (!in.read((number - files.first[file]) * files.record_bytes(), std::as_writable_bytes(std::span(record)))) {
      throw DataError("reading " + files.paths[file].string(),
                      "record " + std::to_string(number - files.first[file]) + " cannot be read",
                      "fetch the file again");
    }
    labels[i] = static_cast<unsigned char>(record[static_cast<std::size_t>(files.label_bytes - 1)]);
    if (images.empty()) continue;
    const char* planes = record.data() + files.label_bytes;
    std::byte* pixels = images.data() + static_cast<std::int64_t>(i) * kSampleBytes;
    for (std::int64_t at = 0; at < kPlaneBytes; ++at) {
      for (std::int64_t c = 0; c < kChannels; ++c) pixels[at * kChannels + c] = std::byte(planes[c * kPlaneBytes + at]);
    }
  }
}

SplitSource make_split(const std::string& name, RecordFiles files) {
  SplitSource split{name, files.first.back(), nullptr};
  split.read = [files = std::move(files)](std::int64_t first, std::span<std::int32_t> labels,
                                          std::span<std::byte> images) { read_records(files, first, labels, images); };
  return split;
}

fs::path names_file(const PackOptions& options, const fs::path& in_set) {
  if (!options.classes.empty()) return options.classes;
  return fs::is_regular_file(in_set) ? in_set : fs::path{};
}

}  // namespace

Manifest pack_cifar(const fs::path& input, const PackOptions& options) {
  require_input_folder(input);
  PackSource source;
  source.height = source.width = kSide;
  source.channels = kChannels;
  std::vector<fs::path> train, val;
  std::int64_t label_bytes = 1;
  if (fs::exists(input / "train.bin")) {  // CIFAR-100
    train = {input / "train.bin"};
    val = {input / "test.bin"};
    label_bytes = 2;
    source.classes = class_names(100, names_file(options, input / "fine_label_names.txt"));
  } else {
    for (int i = 1; i <= 5; ++i) train.push_back(input / ("data_batch_" + std::to_string(i) + ".bin"));
    val = {input / "test_batch.bin"};
    source.classes = class_names(10, names_file(options, input / "batches.meta.txt"));
  }
  source.splits.push_back(make_split("train", open_records(train, label_bytes)));
  if (fs::exists(val.front())) source.splits.push_back(make_split("val", open_records(val, label_bytes)));
  source.settings = setting("kind", "cifar") + setting("input", input.string());
  return write_dataset(std::move(source), options);
}

}  // namespace renai
