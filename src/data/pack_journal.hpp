#pragma once
// What the folder of a set holds besides the set while it is packed: settings and summaries, for going on later.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "renai/base/descriptor.hpp"
#include "renai/data/pack.hpp"
#include "shard_summary.hpp"

namespace renai {

/// One text from every rank.
std::vector<std::string> gather_texts(const PackOptions& options, const std::string& text);

/// The folder of one pack, from its first look to the manifest.
class PackJournal {
 public:
  /// Compares settings and input between ranks, settings with those that an interrupted pack left. Effects: creates the
  /// folder and holds it, on rank 0, as long as this lives; takes half-written files away; an earlier set stays whole.
  /// Errors: UserError naming what differs, another pack at work, a complete set, or shards
  /// that no pack left here.
  PackJournal(const PackOptions& options, const std::string& settings, const std::string& input);

  /// On rank 0: takes away what is not of this set and writes the manifest, last. `refused` are lines for skipped.txt.
  void complete(const Manifest& manifest, const std::string& refused) const;

 private:
  void hold(const PackOptions& options);

  std::filesystem::path out_;
  Descriptor held_;
};

/// Takes the manifest of an earlier set away, before the first shard of the new one takes the place of one of its own.
/// Any rank and thread may, again and again; a pack that fails before that has changed nothing of the earlier set.
void make_way(const std::filesystem::path& out);

/// A shard's summary beside it while the set is not complete; `key` says from what it was made.
void save_summary(const std::filesystem::path& shard, const std::string& key, const ShardSummary& summary);
/// None when there is none, it was made from something else, or it is damaged.
std::optional<ShardSummary> load_summary(const std::filesystem::path& shard, const std::string& key);

}  // namespace renai
