#pragma once
// SampleStager: puts one sample into its row of a staging buffer: parameters and pixels.

#include <cstdint>
#include <span>

#include "batch_reader.hpp"
#include "renai/data/jpeg.hpp"
#include "renai/data/loader.hpp"

namespace renai {

/// One a thread, in cache lines of its own; what it holds is scratch. Determinism: parameters and pixels are a pure
/// function of configuration, job and sample.
class alignas(64) SampleStager {
 public:
  static constexpr std::int64_t kMostRows = 16;  ///< Of one begin().
  explicit SampleStager(const LoaderConfig& config) : config_(&config), reader_(kMostRows) {}

  /// Reads ahead what is worth it of the samples of some rows, -1: none. `images`: their places in the slot, one after
  /// the other. Never fails.
  void begin(const ShardJob& job, std::span<const std::int64_t> samples, std::span<std::byte> images) {
    reader_.begin(*job.dataset, samples, images);
  }
  /// Crop, flip and colours of the sample of row `row` of begin() into `params`, its pixels into `image`, the row's
  /// place in the slot. Errors: DataError naming shard and sample.
  void stage(const ShardJob& job, std::size_t row, std::int64_t sample, SampleParams& params,
             std::span<std::byte> image);
  ReadCounts counts() const { return reader_.counts(); }

 private:
  void stage_encoded(const ShardJob& job, std::size_t row, std::int64_t sample, SampleParams& params,
                     std::span<std::byte> image);
  SampleParams draw(const ShardJob& job, std::int64_t sample, std::int64_t h, std::int64_t w) const;

  const LoaderConfig* config_;
  JpegDecoder decoder_;
  BatchReader reader_;
};

}  // namespace renai
