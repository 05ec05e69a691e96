#include "packing.hpp"

#include <cmath>
#include <sstream>

#include "renai/base/check.hpp"
#include "renai/base/error.hpp"
#include "renai/io/atomic_file.hpp"
#include "shard_file.hpp"
#include "shard_writer.hpp"

namespace renai {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPartial = ".partial";

std::string set_name(const fs::path& out) {
  const fs::path folder = fs::absolute(out).lexically_normal();
  return folder.filename().empty() ? folder.parent_path().filename().string() : folder.filename().string();
}

void check_options(const PackSource& source, const PackOptions& options) {
  if (options.shard_samples < 1) {
    throw UserError("--shard-samples " + std::to_string(options.shard_samples), "a shard has at least one sample",
                    "use a positive number");
  }
  RENAI_CHECK(options.world_size == 1 || options.gather, "ranks that pack together can talk");
  for (const SplitSource& split : source.splits) {
    if (split.samples < 1) {
      throw DataError("packing split '" + split.name + "'", "it is empty", "give input with at least one sample");
    }
  }
  if (!options.overwrite && fs::exists(options.out / kManifestFile)) {
    throw UserError("packing into " + options.out.string(), "the folder holds a complete data set",
                    "choose another folder or pass --overwrite");
  }
}

std::vector<std::string> gather(const PackOptions& options, const std::string& text) {
  if (!options.gather) return {text};
  std::vector<std::string> texts = options.gather(text);
  RENAI_CHECK(static_cast<int>(texts.size()) == options.world_size, "one text comes from every rank");
  return texts;
}

/// Files that an interrupted run left under this shard's name. Only the shard's own rank removes them.
void remove_partials(const fs::path& out, const std::string& file) {
  for (const auto& entry : fs::directory_iterator(out)) {
    const std::string name = entry.path().filename().string();
    std::error_code ignored;
    if (name.starts_with(file + ".") && name.ends_with(kPartial)) fs::remove(entry.path(), ignored);
  }
}

std::string encode(std::size_t plan, const ShardSummary& summary) {
  std::ostringstream text;
  text << plan << ' ' << summary.digest;
  for (std::size_t c = 0; c < summary.sum.size(); ++c) text << ' ' << summary.sum[c] << ' ' << summary.square_sum[c];
  return text.str();
}

/// Digest and sums of one shard, from the rank that wrote it. Empty texts come from ranks without a shard this round.
void decode(const std::string& text, std::vector<ShardSummary>& summaries) {
  if (text.empty()) return;
  std::istringstream in(text);
  std::size_t plan = 0;
  ShardSummary summary;
  in >> plan >> summary.digest;
  for (std::size_t c = 0; c < summary.sum.size(); ++c) in >> summary.sum[c] >> summary.square_sum[c];
  RENAI_CHECK(in && plan < summaries.size(), "a packing message is whole");
  summaries[plan] = std::move(summary);
}

/// Mean and standard deviation by channel from exact sums of the training split; a constant channel gets deviation 1.
void set_statistics(Manifest& manifest, const std::vector<ShardPlan>& plans,
                    const std::vector<ShardSummary>& summaries) {
  // 128 bits: the square of a sum over 2^40 images passes 64.
  __extension__ using Wide = unsigned __int128;
  const Wide pixels =
      static_cast<Wide>(manifest.splits.front().samples()) * static_cast<Wide>(manifest.height * manifest.width);
  for (std::size_t c = 0; c < static_cast<std::size_t>(manifest.channels); ++c) {
    Wide sum = 0, square_sum = 0;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (plans[i].split != 0) continue;
      sum += summaries[i].sum[c];
      square_sum += summaries[i].square_sum[c];
    }
    const double count = static_cast<double>(pixels);
    const double variance = static_cast<double>(square_sum * pixels - sum * sum) / (count * count);
    manifest.mean[c] = static_cast<double>(sum) / count;
    manifest.std[c] = variance > 0.0 ? std::sqrt(variance) : 1.0;
  }
}

Manifest make_manifest(const PackSource& source, const PackOptions& options, const std::vector<ShardPlan>& plans,
                       const std::vector<ShardSummary>& summaries) {
  Manifest manifest;
  manifest.name = set_name(options.out);
  manifest.height = source.height;
  manifest.width = source.width;
  manifest.channels = source.channels;
  manifest.classes = source.classes;
  for (const SplitSource& split : source.splits) manifest.splits.push_back({split.name, {}});
  for (std::size_t i = 0; i < plans.size(); ++i) {
    RENAI_CHECK(!summaries[i].digest.empty(), "every shard was written by one rank");
    manifest.splits[plans[i].split].shards.push_back({plans[i].file, plans[i].samples, summaries[i].digest});
  }
  set_statistics(manifest, plans, summaries);
  return manifest;
}

/// Shards of an earlier set in the same folder, cut otherwise, would be taken for part of this one.
void remove_strangers(const fs::path& out, const Manifest& manifest) {
  for (const auto& entry : fs::directory_iterator(out)) {
    const std::string name = entry.path().filename().string();
    bool listed = false;
    for (const SplitInfo& split : manifest.splits) {
      for (const ShardInfo& shard : split.shards) listed = listed || shard.file == name;
    }
    const bool shard = (name.starts_with("train-") || name.starts_with("val-")) && name.ends_with(".h5") &&
                       name.find("-of-") != std::string::npos;
    std::error_code ignored;
    if (shard && !listed) fs::remove(entry.path(), ignored);
  }
}

}  // namespace

Manifest write_dataset(const PackSource& source, const PackOptions& options) {
  check_options(source, options);
  require_writable_directory(options.out);
  gather(options, "");  // Every rank has looked at the folder before any rank changes it.
  std::error_code ignored;
  if (options.overwrite && options.rank == 0) fs::remove(options.out / kManifestFile, ignored);

  const std::vector<ShardPlan> plans = plan_shards(source, options.shard_samples);
  std::vector<ShardSummary> summaries(plans.size());
  const auto ranks = static_cast<std::size_t>(options.world_size);
  // A round a shard: the ranks hear from each other often, so that no deadline passes while they work.
  for (std::size_t round = 0; round < plans.size(); round += ranks) {
    const std::size_t own = round + static_cast<std::size_t>(options.rank);
    std::string message;
    if (own < plans.size()) {
      const fs::path path = options.out / plans[own].file;
      const ShardSummary summary = summarize_shard(source, plans[own]);
      remove_partials(options.out, plans[own].file);
      if (!shard_is_complete(path, source, plans[own], summary)) write_shard(path, source, plans[own], summary);
      message = encode(own, summary);
    }
    for (const std::string& text : gather(options, message)) decode(text, summaries);
  }
  const Manifest manifest = make_manifest(source, options, plans, summaries);
  if (options.rank == 0) {
    remove_strangers(options.out, manifest);
    save_manifest(manifest, options.out);
  }
  gather(options, "");  // The set is complete when any rank returns.
  return manifest;
}

std::vector<std::string> class_names(std::int64_t count, const fs::path& file) {
  std::vector<std::string> names;
  if (file.empty()) {
    for (std::int64_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
    return names;
  }
  std::istringstream lines(read_text(file));
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  if (static_cast<std::int64_t>(names.size()) < count) {
    throw DataError("class names in " + file.string(),
                    "it names " + std::to_string(names.size()) + " classes, the labels need " + std::to_string(count),
                    "give one name a line");
  }
  return names;
}

void require_input_folder(const fs::path& input) {
  if (!fs::is_directory(input)) {
    throw UserError("input " + input.string(), "there is no such folder", "name the folder that holds the files");
  }
}

}  // namespace renai
