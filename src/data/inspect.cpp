// What is in a data set folder or a shard, as a table or JSON.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "image_tree.hpp"
#include "renai/base/error.hpp"
#include "renai/base/file_error.hpp"
#include "renai/base/text.hpp"
#include "renai/data/pack.hpp"
#include "shard_file.hpp"

namespace renai {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

std::vector<std::int64_t> count_labels(const Dataset& dataset) {
  std::vector<std::int64_t> counts(dataset.manifest().classes.size(), 0);
  for (std::int64_t i = 0; i < dataset.size(); ++i) ++counts[static_cast<std::size_t>(dataset.label(i))];
  return counts;
}

Json describe_split(const fs::path& directory, const SplitInfo& split) {
  // Opening proves that the shards are as the manifest says.
  const Dataset dataset = Dataset::open(directory, split.name);
  Json shards = Json::array();
  for (const ShardInfo& shard : split.shards) {
    shards.push_back({{"file", shard.file},
                      {"samples", shard.samples},
                      {"digest", shard.digest},
                      {"bytes", fs::file_size(directory / shard.file)}});
  }
  return {{"name", split.name},
          {"samples", dataset.size()},
          {"samples_by_class", count_labels(dataset)},
          {"shards", std::move(shards)}};
}

Json describe_set(const fs::path& directory) {
  const Manifest manifest = load_manifest(directory);
  Json json{{"kind", "dataset"},
            {"path", directory.string()},
            {"name", manifest.name},
            {"format_version", manifest.format_version},
            {"encoding", manifest.encoding},
            {"height", manifest.height},
            {"width", manifest.width},
            {"channels", manifest.channels},
            {"classes", manifest.classes},
            {"mean", std::vector<double>(manifest.mean.begin(), manifest.mean.begin() + manifest.channels)},
            {"std", std::vector<double>(manifest.std.begin(), manifest.std.begin() + manifest.channels)},
            {"digest", manifest.digest()},
            {"splits", Json::array()}};
  for (const SplitInfo& split : manifest.splits) json["splits"].push_back(describe_split(directory, split));
  return json;
}

Json describe_shard(const fs::path& path) {
  const ShardFile shard = ShardFile::open(path);
  const H5File& file = shard.file();
  Json json{{"kind", "shard"},
            {"path", path.string()},
            {"samples", shard.samples()},
            {"bytes", fs::file_size(path)},
            {"label_type", dtype_name(file.info(kLabels).dtype)},
            {"read", shard.raw_offset() >= 0 ? "directly" : "through the HDF5 library"},
            {"sample_digests", shard.has_sample_digests()},
            {"label_digests", shard.has_label_digests()}};
  if (shard.encoded()) {
    shard.read_offsets();  // Checked as Dataset::open does.
    json["image_bytes"] = shard.encoded_bytes();
  } else {
    json["height"] = shard.height();
    json["width"] = shard.width();
    json["channels"] = shard.channels();
    json["image_type"] = dtype_name(file.info(kImages).dtype);
  }
  for (const char* name : {"encoding", "split", "digest"}) {
    if (const auto value = file.string_attribute("/", name)) json[name] = *value;
  }
  for (const char* name : {"renai_format", "shard_index", "shard_count"}) {
    if (const auto value = file.int_attribute("/", name)) json[name] = *value;
  }
  return json;
}

std::string list_numbers(const Json& numbers, int digits) {
  std::string text;
  for (const Json& number : numbers) {
    char one[32];
    std::snprintf(one, sizeof(one), "%.*f", digits, number.get<double>());
    text += (text.empty() ? "" : ", ") + std::string(one);
  }
  return text;
}

/// So many that a terminal still shows the rest; control characters stand as \xNN.
std::string list_names(const Json& names) {
  constexpr std::size_t kShown = 1000;
  std::vector<std::string> shown;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) {
    shown.push_back(printable(names[i].get<std::string>()));
  }
  const std::size_t left = names.size() - shown.size();
  return join(shown, ", ") + (left > 0 ? " and " + std::to_string(left) + " more" : "");
}

std::string print_set(const Json& set) {
  std::string text = "data set " + printable(set["name"].get<std::string>()) + " in " +
                     printable(set["path"].get<std::string>()) + "\n";
  text += "images   " + set["height"].dump() + "x" + set["width"].dump() + "x" + set["channels"].dump() +
          ", encoding " + set["encoding"].get<std::string>() + "\n";
  text += "classes  " + std::to_string(set["classes"].size()) + ": " + list_names(set["classes"]) + "\n";
  text += "mean     " + list_numbers(set["mean"], 3) + "   std " + list_numbers(set["std"], 3) + "\n";
  text += "digest   " + set["digest"].get<std::string>() + "\n";
  for (const Json& split : set["splits"]) {
    const auto counts = split["samples_by_class"].get<std::vector<std::int64_t>>();
    const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
    text += "split " + printable(split["name"].get<std::string>()) + ": " + split["samples"].dump() + " samples, " +
            std::to_string(*least) + " to " + std::to_string(*most) + " of a class\n";
    for (const Json& shard : split["shards"]) {
      char line[512];
      const auto digest = shard["digest"].get<std::string>();
      std::snprintf(
          line, sizeof(line), "  %-32s %9lld samples %12s  %s\n", printable(shard["file"].get<std::string>()).c_str(),
          static_cast<long long>(shard["samples"].get<std::int64_t>()),
          format_bytes(shard["bytes"].get<std::int64_t>()).c_str(), digest.empty() ? "(no digest)" : digest.c_str());
      text += line;
    }
  }
  return text;
}

std::string print_shard(const Json& shard) {
  std::string text;
  for (const auto& [key, value] : shard.items()) {
    char line[1024];
    std::snprintf(line, sizeof(line), "%-15s %s\n", key.c_str(),
                  value.is_string() ? printable(value.get<std::string>()).c_str() : value.dump().c_str());
    text += line;
  }
  return text;
}

}  // namespace

std::string inspect_dataset(const fs::path& path, bool json) {
  require_named("inspecting " + path.string(), path, "check the path");
  const bool set = fs::is_directory(path);
  const Json description = set ? describe_set(path) : describe_shard(path);
  if (json) return dump(description);
  return set ? print_set(description) : print_shard(description);
}

}  // namespace renai
