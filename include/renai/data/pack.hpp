#pragma once
// Packers: make a data set directory. Parallel: rank r of w writes shards r, r + w, ...; the manifest is written last,
// by rank 0.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "renai/data/dataset.hpp"

namespace renai {

struct PackOptions {
  std::filesystem::path out;
  std::int64_t shard_samples = 8192;
  bool overwrite =
      false;  ///< Otherwise refuses a directory that holds a complete data set; an interrupted one is resumed.
  std::filesystem::path classes;  ///< Text file with one class name a line; empty: the set's own names or numbers.
  int rank = 0, world_size = 1;
  /// Gathers one text from every rank (digests and sums for the manifest); identity for one rank.
  std::function<std::vector<std::string>(const std::string&)> gather;
};

/// MNIST-style IDX files, plain or gzip; the four usual names in `input`, or train files only (no val split).
Manifest pack_idx(const std::filesystem::path& input, const PackOptions& options);
/// CIFAR-10 or CIFAR-100 binary version (data_batch_*.bin / test_batch.bin, train.bin / test.bin).
Manifest pack_cifar(const std::filesystem::path& input, const PackOptions& options);
struct SyntheticOptions {
  std::int64_t train = 1024, val = 256, height = 32, width = 32, channels = 3, classes = 10;
  std::uint64_t seed = 1;
};
/// Images with a class-dependent pattern plus noise: learnable, and a pure function of (seed, split, index).
Manifest pack_synthetic(const SyntheticOptions& synthetic, const PackOptions& options);

/// Text for `renai inspect` (JSON when asked for). Errors: as Dataset::open.
std::string inspect_dataset(const std::filesystem::path& path, bool json);
/// Recomputes every digest. Errors: DataError naming the damaged shard (and sample, where sample digests exist).
/// Returns a line for each file checked.
std::string verify_dataset(const std::filesystem::path& path);
/// Adds sample digests to shards made elsewhere, and a manifest's shard digests where missing.
void adopt_dataset(const std::filesystem::path& path);

}  // namespace renai
