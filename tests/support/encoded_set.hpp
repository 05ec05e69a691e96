#pragma once
// Sets of encoded images, written as another program would: datasets and a manifest, no digests.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "renai/data/dataset.hpp"
#include "renai/io/hdf5.hpp"

namespace renai::testing {

/// The datasets of one shard.
struct EncodedShard {
  std::vector<std::int32_t> labels;
  std::vector<std::uint64_t> offsets{0};
  std::string bytes;

  void add(std::int32_t label, const std::string& image) {
    labels.push_back(label);
    bytes += image;
    offsets.push_back(bytes.size());
  }
  std::int64_t samples() const { return static_cast<std::int64_t>(labels.size()); }
};

inline void write_encoded(const std::filesystem::path& path, const EncodedShard& shard) {
  H5File file = H5File::create(path);
  const std::int64_t labels = shard.samples(), offsets = static_cast<std::int64_t>(shard.offsets.size()),
                     bytes = static_cast<std::int64_t>(shard.bytes.size());
  file.set_attribute("/", "encoding", std::string("jpeg"));
  file.write_all("labels", DType::i32, {&labels, 1}, std::as_bytes(std::span(shard.labels)));
  file.write_all("image_offsets", DType::u64, {&offsets, 1}, std::as_bytes(std::span(shard.offsets)));
  file.write_all("image_bytes", DType::u8, {&bytes, 1}, std::as_bytes(std::span(shard.bytes)));
  file.close();
}

/// A set of one training and one validation shard.
inline Manifest write_encoded_set(const std::filesystem::path& folder, const EncodedShard& train,
                                  const EncodedShard& val, std::int64_t size, std::int64_t classes) {
  std::filesystem::create_directories(folder);
  Manifest manifest;
  manifest.name = "encoded";
  manifest.encoding = "jpeg";
  manifest.height = manifest.width = size;
  manifest.channels = 3;
  for (std::int64_t c = 0; c < classes; ++c) manifest.classes.push_back("class " + std::to_string(c));
  manifest.mean = {120.0, 115.0, 105.0};
  manifest.std = {60.0, 58.0, 57.0};
  manifest.splits = {{"train", {{"train-00000-of-00001.h5", train.samples(), ""}}},
                     {"val", {{"val-00000-of-00001.h5", val.samples(), ""}}}};
  write_encoded(folder / "train-00000-of-00001.h5", train);
  write_encoded(folder / "val-00000-of-00001.h5", val);
  save_manifest(manifest, folder);
  return manifest;
}

}  // namespace renai::testing
