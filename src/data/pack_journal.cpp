#include "pack_journal.hpp"

#include <cerrno>
#include <system_error>

#include "packing.hpp"
#include "renai/base/check.hpp"
#include "renai/base/error.hpp"
#include "renai/base/lines.hpp"
#include "renai/io/atomic_file.hpp"
#include "renai/io/directory_lock.hpp"
#include "shard_file.hpp"
#include "spool.hpp"

namespace renai {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kSummary = ".summary";
constexpr std::string_view kJournal = ".packing", kSkipped = "skipped.txt";

/// The first line in which two settings differ, as "a" and "b".
std::pair<std::string, std::string> differing_lines(const std::string& a, const std::string& b) {
  const std::vector<std::string> lines_a = lines_of(a), lines_b = lines_of(b);
  const std::size_t line = first_difference(lines_a, lines_b);
  const auto at = [line](const std::vector<std::string>& lines) {
    return line < lines.size() ? lines[line] : "(nothing)";
  };
  return {at(lines_a), at(lines_b)};
}

void compare_ranks(const PackOptions& options, const std::string& settings) {
  const std::vector<std::string> all = gather_texts(options, settings);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const auto [first, other] = differing_lines(all[0], all[rank]);
    throw UserError("packing on " + std::to_string(all.size()) + " ranks",
                    "rank 0 has '" + first + "', rank " + std::to_string(rank) + " has '" + other + "'",
                    "start all ranks with the same options and the same input");
  }
}

/// Of a shard or what belongs to one, whatever set it is of.
bool is_shard_name(const std::string& name) {
  return (name.starts_with("train-") || name.starts_with("val-")) && name.find("-of-") != std::string::npos &&
         name.find(".h5") != std::string::npos;
}

/// Half-written files and spools of an interrupted run. Rank 0 removes them before any rank writes.
void remove_partials(const fs::path& out) {
  remove_temporaries(out, [](const std::string& name) {
    return is_shard_name(name) || name == kManifestFile || name == kJournal || name == kSkipped;
  });
  for (const auto& entry : fs::directory_iterator(out)) {
    std::error_code ignored;
    if (entry.path().filename().string().starts_with(kSpoolName)) fs::remove(entry.path(), ignored);
  }
}

void remove_summaries(const fs::path& out) {
  for (const auto& entry : fs::directory_iterator(out)) {
    const std::string name = entry.path().filename().string();
    std::error_code ignored;
    if (is_shard_name(name) && name.ends_with(kSummary)) fs::remove(entry.path(), ignored);
  }
}

/// Shards of an earlier set in the same folder, cut otherwise, would be taken for part of this one.
void remove_strangers(const fs::path& out, const Manifest& manifest) {
  for (const auto& entry : fs::directory_iterator(out)) {
    const std::string name = entry.path().filename().string();
    bool listed = false;
    for (const SplitInfo& split : manifest.splits) {
      for (const ShardInfo& shard : split.shards) listed = listed || shard.file == name;
    }
    std::error_code ignored;
    if (is_shard_name(name) && name.ends_with(".h5") && !listed) fs::remove(entry.path(), ignored);
  }
}

/// Shards without a manifest and without a journal are not an interrupted pack's: someone made them, and the set that
/// is packed now would take their place.
void refuse_strangers(const fs::path& out) {
  for (const auto& entry : fs::directory_iterator(out)) {
    const std::string name = entry.path().filename().string();
    if (!is_shard_name(name) || !name.ends_with(".h5")) continue;
    throw UserError("packing into " + out.string(), "the folder holds shards of another set, such as " + name,
                    "choose another folder, or pass --overwrite to replace them");
  }
}

}  // namespace

std::vector<std::string> gather_texts(const PackOptions& options, const std::string& text) {
  if (!options.gather) return {text};
  std::vector<std::string> texts = options.gather(text);
  RENAI_CHECK(static_cast<int>(texts.size()) == options.world_size, "one text comes from every rank");
  return texts;
}

PackJournal::PackJournal(const PackOptions& options, const std::string& settings, const std::string& input)
    : out_(options.out) {
  RENAI_CHECK(options.world_size == 1 || options.gather, "ranks that pack together can talk");
  compare_ranks(options, settings + input);
  if (!options.overwrite && fs::exists(out_ / kManifestFile)) {
    throw UserError("packing into " + out_.string(), "the folder holds a complete data set",
                    "choose another folder or pass --overwrite");
  }
  require_writable_directory(out_);
  if (options.rank == 0) hold(options);
  const fs::path path = out_ / kJournal;
  const bool begun = fs::exists(path);
  const std::string before = begun ? read_text(path) : "";
  if (begun && before != settings && !options.overwrite) {
    const auto [first, other] = differing_lines(before, settings);
    throw UserError("packing into " + out_.string(),
                    "the folder holds the beginning of a pack with '" + first + "', not '" + other + "'",
                    "go on with the same options, or pass --overwrite to begin again");
  }
  if (!begun && !options.overwrite) refuse_strangers(out_);
  gather_texts(options, "");  // Every rank has looked at the folder before any rank changes it.
  if (options.rank == 0) {
    remove_partials(out_);
    if (begun && before != settings) remove_summaries(out_);
    replace_text(path, settings);  // First: whatever happens from here on, the folder says what it holds.
  }
  gather_texts(options, "");
}

void PackJournal::hold(const PackOptions& options) {
  DirectoryLock lock = lock_directory(out_);
  if (lock.error == EWOULDBLOCK) {
    throw UserError("packing into " + out_.string(), "another pack is at work there",
                    "wait until it has ended, or choose another folder");
  }
  if (lock.error != 0 && options.note) {
    options.note("the folder " + out_.string() + " cannot be locked (" + std::generic_category().message(lock.error) +
                 "): see to it that no other pack writes there");
  }
  held_ = std::move(lock.descriptor);
}

void PackJournal::complete(const Manifest& manifest, const std::string& refused) const {
  make_way(out_);
  remove_strangers(out_, manifest);
  if (!refused.empty()) replace_text(out_ / kSkipped, refused);
  save_manifest(manifest, out_);
  remove_summaries(out_);
  std::error_code ignored;
  fs::remove(out_ / kJournal, ignored);
}

void make_way(const fs::path& out) {
  std::error_code ignored;
  fs::remove(out / kManifestFile, ignored);
  fs::remove(out / kSkipped, ignored);
}

void save_summary(const fs::path& shard, const std::string& key, const ShardSummary& summary) {
  replace_text(shard.string() + std::string(kSummary), key + "\n" + print_summary(summary));
}

std::optional<ShardSummary> load_summary(const fs::path& shard, const std::string& key) {
  const fs::path path = shard.string() + std::string(kSummary);
  if (!fs::exists(path)) return std::nullopt;
  try {
    const std::string text = read_text(path);
    if (!text.starts_with(key + "\n")) return std::nullopt;
    return parse_summary(text.substr(key.size() + 1));
  } catch (const DataError&) {
    return std::nullopt;
  } catch (const ResourceError&) {
    return std::nullopt;  // What cannot be read can be replaced.
  }
}

}  // namespace renai
