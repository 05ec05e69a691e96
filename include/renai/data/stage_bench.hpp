#pragma once
// What one loader thread can do: seconds of each stage over samples of an encoded set.

#include <cstdint>

#include "renai/data/augmentation.hpp"
#include "renai/data/dataset.hpp"

namespace renai {

/// Of all samples together, one thread. Computing in seconds of the thread, whatever else runs; reading in seconds
/// passed.
struct StageTimes {
  std::int64_t samples = 0, stored_bytes = 0, staged_pixels = 0;
  double read_seconds = 0;       ///< Stored bytes from the page cache or disk.
  double decode_seconds = 0;     ///< Header, drawing the box, decoding it at the scale chosen.
  double colour_seconds = 0;     ///< Mean grey and colour map, where the augmentation has colours.
  double whole_seconds = 0;      ///< Decoding all of each image at the scale that fits it.
  double bare_seconds = 0;       ///< The same by libjpeg-turbo alone: what `whole_seconds` is held against.
  double bare_full_seconds = 0;  ///< libjpeg-turbo alone at full size: what a loader without scales would need.
};

/// Samples 0 to `samples` - 1 of an encoded set (over and over, where it has fewer) for a network input of `size`.
/// Errors: UserError for a raw set; DataError naming shard and sample.
StageTimes time_stages(const Dataset& dataset, const Augmentation& augmentation, std::int64_t size,
                       std::int64_t samples);

}  // namespace renai
