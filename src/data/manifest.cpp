// manifest.json: strict reading, stable writing.
#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "renai/base/digest.hpp"
#include "renai/base/error.hpp"
#include "renai/base/text.hpp"
#include "renai/data/dataset.hpp"
#include "renai/io/atomic_file.hpp"
#include "shard_file.hpp"

namespace renai {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostPixels = 1 << 16;  // Of one side; with four channels a sample stays far below 2^63 bytes.

/// Reads the members of one object; finish() refuses those that nobody asked for.
class Reader {
 public:
  Reader(const Json& json, std::string file, std::string place)
      : json_(&json), file_(std::move(file)), place_(std::move(place)) {
    if (!json.is_object()) fail("", "an object is expected");
  }

  [[noreturn]] void fail(const std::string& key, const std::string& why) const {
    const std::string where = place_ + (place_.empty() || key.empty() ? "" : ".") + key;
    throw DataError("reading " + file_ + (where.empty() ? "" : ", key '" + where + "'"), why,
                    "pack the data set again, or correct the manifest");
  }
  bool has(const std::string& key) const { return json_->contains(key); }
  const Json& member(const std::string& key) {
    known_.push_back(key);
    if (!json_->contains(key)) fail(key, "it is missing");
    return (*json_)[key];
  }
  std::string text(const std::string& key) {
    const Json& value = member(key);
    if (!value.is_string()) fail(key, "a text is expected, not " + std::string(value.type_name()));
    return value.get<std::string>();
  }
  std::int64_t integer(const std::string& key, std::int64_t least, std::int64_t most) {
    const Json& value = member(key);
    if (!value.is_number_integer()) fail(key, "an integer is expected, not " + std::string(value.type_name()));
    const bool huge = value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
    if (huge || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most) {
      fail(key,
           "it is " + value.dump() + "; " + std::to_string(least) + " to " + std::to_string(most) + " is expected");
    }
    return value.get<std::int64_t>();
  }
  const Json& array(const std::string& key) {
    const Json& value = member(key);
    if (!value.is_array()) fail(key, "an array is expected, not " + std::string(value.type_name()));
    return value;
  }
  Reader child(const Json& json, const std::string& key, std::size_t index) const {
    return Reader(json, file_, place_ + (place_.empty() ? "" : ".") + key + "[" + std::to_string(index) + "]");
  }
  void finish() const {
    for (const auto& [key, value] : json_->items()) {
      if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
        fail(key, "it is not known; " + suggest_name(key, known_));
      }
    }
  }

 private:
  const Json* json_;
  std::string file_, place_;
  std::vector<std::string> known_;
};

bool is_digest(const std::string& text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

ShardInfo read_shard(Reader reader) {
  ShardInfo shard;
  shard.file = reader.text("file");
  if (shard.file.empty() || shard.file.find_first_of(std::string("/\0", 2)) != std::string::npos ||
      shard.file.front() == '.') {
    reader.fail("file", "the name of a file in the data set's folder is expected");
  }
  shard.samples = reader.integer("samples", 0, std::int64_t{1} << 40);
  // Sets made elsewhere may have none; `verify --adopt` adds it.
  if (reader.has("digest")) {
    shard.digest = reader.text("digest");
    if (!is_digest(shard.digest)) reader.fail("digest", "32 lower-case hexadecimal digits are expected");
  }
  reader.finish();
  return shard;
}

SplitInfo read_split(Reader reader, std::set<std::string>* files) {
  SplitInfo split;
  split.name = reader.text("name");
  if (split.name.empty()) reader.fail("name", "it is empty");
  std::size_t index = 0;
  for (const Json& item : reader.array("shards")) {
    Reader shard = reader.child(item, "shards", index++);
    split.shards.push_back(read_shard(shard));
    if (!files->insert(split.shards.back().file).second) shard.fail("file", "the shard is listed twice");
  }
  reader.finish();
  return split;
}

std::array<double, 4> read_channels(Reader& reader, const std::string& key, std::int64_t channels, bool positive) {
  std::array<double, 4> values{};
  const Json& array = reader.array(key);
  if (static_cast<std::int64_t>(array.size()) != channels) {
    reader.fail(key,
                "it has " + std::to_string(array.size()) + " values for " + std::to_string(channels) + " channels");
  }
  for (std::size_t i = 0; i < array.size(); ++i) {
    if (!array[i].is_number()) reader.fail(key, "numbers are expected");
    values[i] = array[i].get<double>();
    if (!std::isfinite(values[i]) || values[i] < 0.0 || values[i] > 255.0 || (positive && values[i] == 0.0)) {
      reader.fail(key, "values of the scale 0 to 255 are expected");
    }
  }
  return values;
}

std::vector<std::string> read_classes(Reader& reader) {
  std::vector<std::string> classes;
  for (const Json& item : reader.array("classes")) {
    if (!item.is_string()) reader.fail("classes", "an array of texts is expected");
    classes.push_back(item.get<std::string>());
  }
  if (classes.empty()) reader.fail("classes", "there is no class");
  return classes;
}

Manifest read_manifest(const Json& json, const std::string& file) {
  Reader reader(json, file, "");
  Manifest manifest;
  if (reader.text("format") != kDatasetFormat)
    reader.fail("format", "'" + std::string(kDatasetFormat) + "' is expected");
  manifest.format_version = static_cast<int>(reader.integer("format_version", 1, 1));
  manifest.name = reader.text("name");
  manifest.encoding = reader.text("encoding");
  if (manifest.encoding != kRawEncoding && manifest.encoding != kJpegEncoding) {
    reader.fail("encoding", "'" + manifest.encoding + "' is not known; 'raw' and 'jpeg' are what this version reads");
  }
  manifest.height = reader.integer("height", 1, kMostPixels);
  manifest.width = reader.integer("width", 1, kMostPixels);
  const bool jpeg = manifest.encoding == kJpegEncoding;
  manifest.channels = reader.integer("channels", jpeg ? 3 : 1, jpeg ? 3 : 4);
  manifest.classes = read_classes(reader);
  manifest.mean = read_channels(reader, "mean", manifest.channels, false);
  manifest.std = read_channels(reader, "std", manifest.channels, true);
  std::set<std::string> files;
  std::size_t index = 0;
  for (const Json& item : reader.array("splits")) {
    Reader split = reader.child(item, "splits", index++);
    manifest.splits.push_back(read_split(split, &files));
    for (std::size_t other = 0; other + 1 < manifest.splits.size(); ++other) {
      if (manifest.splits[other].name == manifest.splits.back().name) split.fail("name", "the split is listed twice");
    }
  }
  if (manifest.splits.empty()) reader.fail("splits", "there is no split");
  reader.finish();
  return manifest;
}

}  // namespace

std::int64_t SplitInfo::samples() const {
  std::int64_t total = 0;
  for (const ShardInfo& shard : shards) total += shard.samples;
  return total;
}

const SplitInfo* Manifest::find(const std::string& split) const {
  for (const SplitInfo& candidate : splits) {
    if (candidate.name == split) return &candidate;
  }
  return nullptr;
}

std::string Manifest::digest() const {
  // Every text is preceded by its length and every list by its count, so that no two manifests give the same input.
  std::string input;
  const auto add = [&input](std::uint64_t number) { input += std::to_string(number) + " "; };
  const auto add_count = [&add](std::int64_t number) { add(static_cast<std::uint64_t>(number)); };
  const auto add_text = [&](const std::string& text) {
    add(text.size());
    input += text + "\n";
  };
  add_text(encoding);
  for (const std::int64_t extent : {height, width, channels}) add_count(extent);
  for (std::size_t c = 0; c < mean.size() && c < static_cast<std::size_t>(channels); ++c) {
    // Bits, because decimal digits would need a rule of their own.
    add(std::bit_cast<std::uint64_t>(mean[c]));
    add(std::bit_cast<std::uint64_t>(std[c]));
  }
  add(classes.size());
  for (const std::string& label : classes) add_text(label);
  for (const SplitInfo& split : splits) {
    add_text(split.name);
    add(split.shards.size());
    for (const ShardInfo& shard : split.shards) {
      add_count(shard.samples);
      add_text(shard.digest);
    }
  }
  return hash128(input).hex();
}

Manifest load_manifest(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kManifestFile;
  std::string text;
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown) && !unknown) {
    throw DataError("reading " + path.string(), "the file is missing", "make the data set with `renai pack`");
  }
  text = read_text(path);
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    throw DataError("reading " + path.string(), error.what(), "pack the data set again, or correct the manifest");
  }
  return read_manifest(json, path.string());
}

void save_manifest(const Manifest& manifest, const std::filesystem::path& directory) {
  Json json;
  json["format"] = kDatasetFormat;
  json["format_version"] = manifest.format_version;
  json["name"] = manifest.name;
  json["encoding"] = manifest.encoding;
  json["height"] = manifest.height;
  json["width"] = manifest.width;
  json["channels"] = manifest.channels;
  json["classes"] = manifest.classes;
  for (std::int64_t c = 0; c < manifest.channels; ++c) {
    json["mean"].push_back(manifest.mean[static_cast<std::size_t>(c)]);
    json["std"].push_back(manifest.std[static_cast<std::size_t>(c)]);
  }
  json["splits"] = Json::array();
  for (const SplitInfo& split : manifest.splits) {
    Json shards = Json::array();
    for (const ShardInfo& shard : split.shards) {
      Json entry{{"file", shard.file}, {"samples", shard.samples}};
      if (!shard.digest.empty()) entry["digest"] = shard.digest;
      shards.push_back(std::move(entry));
    }
    json["splits"].push_back(Json{{"name", split.name}, {"shards", std::move(shards)}});
  }
  const auto invalid_text = Json::error_handler_t::replace;  // A name that is not UTF-8 must not stop the packing.
  replace_text(directory / kManifestFile, json.dump(2, ' ', false, invalid_text) + "\n");
}

}  // namespace renai
