#pragma once
// What packers share: a source of samples, and writing it as shards with a manifest.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "renai/data/pack.hpp"

namespace renai {

/// One split's samples, readable in any order: the same bytes on every rank and at every call.
struct SplitSource {
  std::string name;
  std::int64_t samples = 0;
  /// Labels and pixels (HWC) of samples [first, first + labels.size()).
  std::function<void(std::int64_t first, std::span<std::int32_t> labels, std::span<std::byte> images)> read;
};

struct PackSource {
  std::int64_t height = 0, width = 0, channels = 0;
  std::vector<std::string> classes;
  std::vector<SplitSource> splits;  ///< The training split first; channel statistics are taken over it.
};

/// Writes the shards of this rank and, on rank 0, the manifest; returns the manifest on every rank.
/// Determinism: shards and manifest do not depend on the number of ranks.
/// Errors: UserError when a complete set is there already; DataError for labels without a class or an empty split;
/// ResourceError for the disk.
Manifest write_dataset(const PackSource& source, const PackOptions& options);

/// "0", "1", ... or the lines of a text file. Errors: DataError when the file names fewer classes than there are.
std::vector<std::string> class_names(std::int64_t count, const std::filesystem::path& file);

/// Errors: UserError when `input` is no folder.
void require_input_folder(const std::filesystem::path& input);

}  // namespace renai
