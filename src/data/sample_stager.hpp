#pragma once
// SampleStager: puts one sample into its row of a staging buffer: parameters and pixels.

#include <cstdint>
#include <span>
#include <vector>

#include "renai/data/jpeg.hpp"
#include "renai/data/loader.hpp"

namespace renai {

/// One a thread; what it holds is scratch. Determinism: parameters and pixels are a pure function of configuration, job
/// and sample.
class SampleStager {
 public:
  explicit SampleStager(const LoaderConfig& config) : config_(&config) {}

  /// Crop, flip and colours of a sample into `params`, its pixels into `image`, a row's place in the slot.
  /// Errors: DataError naming shard and sample.
  void stage(const ShardJob& job, std::int64_t sample, SampleParams& params, std::span<std::byte> image);

 private:
  void stage_raw(const ShardJob& job, std::int64_t sample, SampleParams& params, std::span<std::byte> image);
  void stage_encoded(const ShardJob& job, std::int64_t sample, SampleParams& params, std::span<std::byte> image);
  SampleParams draw(const ShardJob& job, std::int64_t sample, std::int64_t h, std::int64_t w) const;

  const LoaderConfig* config_;
  JpegDecoder decoder_;
  std::vector<std::byte> encoded_;
};

}  // namespace renai
