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

/// Which training samples become validation samples, where a set has none of its own. At most one of the first two.
struct SplitDivision {
  double fraction = 0;     ///< This share, by a hash of each sample's name or number.
  std::int64_t every = 0;  ///< Every so many-th sample (of a class, for folders).
  std::uint64_t seed = 1;  ///< Of the hash.
};

/// How far a pack is, over all ranks.
struct PackProgress {
  std::int64_t samples = 0, all_samples = 0, shards = 0, all_shards = 0;
  std::int64_t refused = 0;  ///< Input files left out.
  double seconds = 0;
  bool ended = false;
};

/// What every kind of pack is told.
struct PackOptions {
  std::filesystem::path out;
  std::int64_t shard_samples = 8192;
  bool overwrite =
      false;  ///< Otherwise refuses a directory that holds a complete data set; an interrupted one is resumed.
  std::filesystem::path classes;  ///< Text file with one class name a line; empty: the set's own names or numbers.
  SplitDivision division;
  int threads = 1;  ///< That read and decode, on each rank; of packers that decode.
  int rank = 0, world_size = 1;
  /// Hear what is worth knowing (rank 0 only) and how far the pack is (several times a second).
  std::function<void(const std::string&)> note;
  std::function<void(const PackProgress&)> progress;
  /// Gathers one text from every rank (digests and sums for the manifest); identity for one rank.
  std::function<std::vector<std::string>(const std::string&)> gather;
};

/// MNIST-style IDX files, plain or gzip; the four usual names in `input`, or train files only (no val split).
Manifest pack_idx(const std::filesystem::path& input, const PackOptions& options);
/// CIFAR-10 or CIFAR-100 binary version (data_batch_*.bin / test_batch.bin, train.bin / test.bin).
Manifest pack_cifar(const std::filesystem::path& input, const PackOptions& options);
/// What pack_synthetic() makes.
struct SyntheticOptions {
  std::int64_t train = 1024, val = 256, height = 32, width = 32, channels = 3, classes = 10;
  std::uint64_t seed = 1;
};
/// Images with a class-dependent pattern plus noise: learnable, and a pure function of (seed, split, index).
Manifest pack_synthetic(const SyntheticOptions& synthetic, const PackOptions& options);

/// How pack_folder() reads images.
struct FolderOptions {
  bool jpeg = true;  ///< Encoding `jpeg`: the files' own bytes, other kinds encoded; else pixels, size x size x 3.
  std::int64_t size = 224;  ///< The network input meant.
  bool skip_bad = false;    ///< Files that cannot be used are left out and listed, not an error.
  bool sorted = false;      ///< Training samples in the order of their paths; else in a fixed random order.
};
/// A folder with one sub-folder a class, or with train/ and val/ that hold those. Determinism: the set is the same for
/// any number of ranks and threads. Errors: DataError naming the first file that cannot be used, and a class without
/// images.
Manifest pack_folder(const std::filesystem::path& input, const FolderOptions& folder, const PackOptions& options);

/// What pack_hdf5() reads of its file, and how.
struct Hdf5Options {
  std::string images = "images", labels = "labels";  ///< Names of the arrays.
  std::filesystem::path val_file;                    ///< Of validation samples; empty: the same file.
  std::string val_images, val_labels;                ///< Empty: the names of the training arrays (of val_file).
  std::string layout = "auto";                       ///< auto, nhwc, nchw, flat, flat-chw.
  std::string scale = "auto";  ///< Of floating-point values: auto, unit (0 to 1), byte (0 to 255).
  std::int64_t height = 0, width = 0, channels = 0;  ///< Of flat images.
};
/// Any HDF5 file with an array of images and one of labels (numbers, or one-hot rows). Errors: UserError where layout
/// or scale are not clear; DataError naming the first sample with a value or label that cannot be.
Manifest pack_hdf5(const std::filesystem::path& input, const Hdf5Options& hdf5, const PackOptions& options);

/// Text for `renai inspect` (JSON when asked for). Errors: as Dataset::open.
std::string inspect_dataset(const std::filesystem::path& path, bool json);
/// Recomputes every digest. Errors: DataError naming the damaged shard (and sample, where sample digests exist), or a
/// split without samples.
/// Returns a line for each file checked.
std::string verify_dataset(const std::filesystem::path& path);
/// Adds digests of samples and labels to shards made elsewhere, and a manifest's shard digests where missing.
/// Errors: UserError while another program packs or adopts in the folder.
void adopt_dataset(const std::filesystem::path& path);

}  // namespace renai
