#pragma once
// What the input of a training can do, stage by stage, on several threads.

#include <cstdint>
#include <string>
#include <vector>

#include "renai/data/augmentation.hpp"
#include "renai/data/dataset.hpp"
#include "renai/data/sampler.hpp"

namespace renai {

/// What is measured, for how long and on how many threads.
struct DataBenchConfig {
  Augmentation augmentation;
  std::int64_t size = 0;  ///< The network's input; 0: as the set says.
  /// Of each measurement, the same ones for any number of threads; `stage` rounds them up to whole batches. 0: until
  /// `seconds` have passed.
  std::int64_t samples = 0;
  double seconds = 2;  ///< Of each measurement, about.
  int threads = 1;
  std::int64_t rows = 64;              ///< Of a staging buffer.
  Shuffle shuffle = Shuffle::global;   ///< Order in which samples are staged.
  std::vector<std::int64_t> blocks{};  ///< Samples of each shard, for Shuffle::block.
};

/// One stage, all threads busy with it.
struct StageRate {
  std::string name;  ///< read, decode, augment, stage, copy
  std::int64_t images = 0;
  double seconds = 0;  ///< That it was measured.
  double images_per_second = 0;
  double bytes_per_second = 0;   ///< read: as stored; decode: of decoded pixels; stage: of the staging buffer.
  double busy = 0;               ///< Share of the threads' time in which they computed; the rest they waited.
  std::int64_t disk_bytes = 0;   ///< That came from a disk, not from memory, as the system counts for this process.
  std::int64_t reads = 0;        ///< Asked of the system; 0 where nothing is read.
  std::int64_t page_faults = 0;  ///< Pages that the process touched first, or again after giving them back.
  std::string limit;             ///< What bounds it: cores, disk, memory.
};

/// A set, and how fast each stage of its way to the device is.
struct DataBench {
  std::string encoding, digest;
  std::int64_t height = 0, width = 0, channels = 0;  ///< Staged, at most.
  std::int64_t mean_stored_bytes = 0;
  int threads = 1;
  bool same_pixels = false;  ///< One thread and `threads` threads staged the same bytes; their digest is `digest`.
  std::vector<StageRate> stages;
  /// Of staging, which is all that the threads do, or of copying beside it where that takes longer.
  double images_per_second() const;
};

/// First compares what one thread and several stage, then measures. Errors: UserError for an augmentation that the set
/// cannot have; DataError naming shard and sample.
DataBench bench_data(const Dataset& dataset, const DataBenchConfig& config);

/// What so many threads do at once.
struct ScalingPoint {
  int threads = 1;
  /// decode (read, of raw sets), stage, and what the machine itself gives to threads that share nothing: libjpeg,
  /// libjpeg-turbo alone on whole images (of encoded sets), and registers, a loop of integer operations.
  std::vector<StageRate> rates;
};

/// 1, 2, 4, ... and `config.threads` threads: the median of five rounds, each of which measures all of them, so that a
/// machine whose speed drifts treats them alike. Each takes about `config.seconds`. Errors: as bench_data.
std::vector<ScalingPoint> bench_scaling(const Dataset& dataset, const DataBenchConfig& config);

}  // namespace renai
