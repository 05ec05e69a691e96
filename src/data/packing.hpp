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
  /// Labels and pixels (HWC) of samples [first, first + labels.size()); `images` empty: labels alone.
  std::function<void(std::int64_t first, std::span<std::int32_t> labels, std::span<std::byte> images)> read;
};

struct PackSource {
  std::int64_t height = 0, width = 0, channels = 0;
  std::vector<std::string> classes;
  std::vector<SplitSource> splits;  ///< The training split first; channel statistics are taken over it.
  std::string settings;             ///< Of the packer, see PackPlan.
};

/// Writes the shards of this rank and, on rank 0, the manifest; returns the manifest on every rank. Where options ask
/// for it, the training split is divided first. Determinism: shards and manifest do not depend on the number of ranks.
/// Errors: UserError when a complete set is there already, or one begun with other options; DataError for labels
/// without a class or an empty split; ResourceError for the disk.
Manifest write_dataset(PackSource source, const PackOptions& options);

/// "0", "1", ... or the lines of a text file. Errors: UserError when there is no such file, DataError when it names
/// fewer classes than there are.
std::vector<std::string> class_names(std::int64_t count, const std::filesystem::path& file);

/// A name as a manifest can hold it: bytes that are no UTF-8 become \xNN.
std::string utf8_name(const std::string& bytes);

/// The name of a set: its folder's.
std::string data_set_name(const std::filesystem::path& out);

/// Errors: UserError when `input` is no folder.
void require_input_folder(const std::filesystem::path& input);

/// "name = value" and a line's end, as settings are made of.
std::string setting(const std::string& name, const std::string& value);

}  // namespace renai
