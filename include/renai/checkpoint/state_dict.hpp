#pragma once
// StateDict: named states in logical layout, and their HDF5 file.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "renai/tensor/dtype.hpp"

namespace renai {

/// One tensor in logical layout: convolution weights K C R S, linear weights K x (C H W), as torchvision stores them.
struct StateTensor {
  std::string name;  ///< "layer1.0.conv1.weight"
  DType dtype = DType::f32;
  std::vector<std::int64_t> extents;
  std::vector<std::byte> data;
};

/// Groups `weights`, `optimizer`, `bn_running`, `ema`, `progress`; texts (recipe, versions ...) by key.
struct StateDict {
  std::map<std::string, std::vector<StateTensor>> groups;
  std::map<std::string, std::string> texts;
  const StateTensor* find(const std::string& group, const std::string& name) const;
  std::string digest() const;  ///< Over groups, names, extents and values. 32 hex digits.
};

/// Atomic: a reader sees the old file or the new one. Errors: ResourceError naming the file.
void save_checkpoint(const std::filesystem::path& path, const StateDict& state);
/// Checks the digest. A file without digest (written by h5py) is accepted when `require_digest` is false: its group
/// `weights`, or its datasets at the root; floating-point types become f32, "*.running_mean" and "*.running_var" become
/// `bn_running`, "*.num_batches_tracked" is dropped. Errors: DataError naming file and reason.
StateDict load_checkpoint(const std::filesystem::path& path, bool require_digest = true);

/// `checkpoints/` of a run directory: step-00001234.h5, `latest`, `best`.
class CheckpointStore {
 public:
  explicit CheckpointStore(std::filesystem::path run_directory) : directory_(std::move(run_directory)) {}
  /// Writes, points `latest` at it, keeps the newest `keep` (and `best`). Returns the path.
  std::filesystem::path save(std::int64_t step, const StateDict& state, int keep) const;
  /// Points `best` at it: save() keeps that one.
  void mark_best(const std::filesystem::path& checkpoint) const;
  /// What a run can go on from, newest first; `warnings` takes what is lost already. Errors: ResourceError where the
  /// system will not list them.
  std::vector<std::filesystem::path> candidates(std::vector<std::string>* warnings) const;

 private:
  std::filesystem::path directory_;
};

/// A checkpoint that all ranks could load.
struct LoadedCheckpoint {
  std::filesystem::path file;
  StateDict state;
};
/// Says whether all ranks could load a checkpoint: takes this rank's problem, empty for none, and returns that of the
/// first rank that has one.
using AgreeOnProblem = std::function<std::string(const std::string&)>;
/// The first of `candidates` that every rank can load; each one passed over is reported with the reason through
/// `warnings`. Nothing where there are no candidates. Errors: where none can be loaded, ResourceError if there is one
/// that the system will not give, otherwise DataError.
std::optional<LoadedCheckpoint> load_newest(std::span<const std::filesystem::path> candidates,
                                            const AgreeOnProblem& agree, std::vector<std::string>* warnings);

/// Consecutive features of a row that memory holds in the order H W C and files in the order C H W.
struct FeaturePart {
  std::int64_t h = 1, w = 1, c = 1;
  bool operator==(const FeaturePart&) const = default;
};

/// Rows of parts, stored order <-> logical order. A filter R x S x C of a convolution is one part; a linear layer's row
/// has a part for each feature map that was flattened into its input. Errors: InternalError unless the values are whole
/// rows.
std::vector<float> to_logical(std::span<const float> stored, std::span<const FeaturePart> parts);
/// The other way. Errors: the same.
std::vector<float> to_stored(std::span<const float> logical, std::span<const FeaturePart> parts);

}  // namespace renai
