#include "packing.hpp"

#include <algorithm>
#include <cstdio>
#include <set>
#include <sstream>

#include "divide_split.hpp"
#include "pack_run.hpp"
#include "renai/base/digest.hpp"
#include "renai/base/error.hpp"
#include "renai/base/file_error.hpp"
#include "renai/base/text.hpp"
#include "renai/io/atomic_file.hpp"
#include "shard_writer.hpp"

namespace renai {
namespace fs = std::filesystem;
namespace {

std::string common_settings(const PackSource& source, const PackOptions& options) {
  std::string text = source.settings + setting("shard-samples", std::to_string(options.shard_samples));
  return text + division_settings(options.division);
}

/// Length of the UTF-8 character at the start of a text, 0 where there is none.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [text](std::size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  for (std::size_t at = 1; at < length; ++at) {
    if ((byte(at) & 0xC0) != 0x80) return 0;
  }
  const bool too_long = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool no_character = (first == 0xED && second >= 0xA0) || (first == 0xF4 && second >= 0x90);
  return too_long || no_character ? 0 : length;
}

std::string describe_input(const PackSource& source) {
  std::string text = setting("image", std::to_string(source.height) + "x" + std::to_string(source.width) + "x" +
                                          std::to_string(source.channels));
  for (const SplitSource& split : source.splits) {
    text += setting(split.name + " samples", std::to_string(split.samples));
  }
  return text +
         setting("classes", std::to_string(source.classes.size()) + " " + hash128(join(source.classes, "\n")).hex());
}

}  // namespace

Manifest write_dataset(PackSource source, const PackOptions& options) {
  for (const SplitSource& split : source.splits) {
    if (split.samples < 1) {
      throw DataError("packing split '" + split.name + "'", "it is empty", "give input with at least one sample");
    }
  }
  divide_training_split(source, options.division);
  PackPlan plan;
  plan.settings = common_settings(source, options);
  plan.input = describe_input(source);
  plan.manifest.name = data_set_name(options.out);
  plan.manifest.height = source.height;
  plan.manifest.width = source.width;
  plan.manifest.channels = source.channels;
  plan.manifest.classes = source.classes;
  for (std::size_t split = 0; split < source.splits.size(); ++split) {
    plan.manifest.splits.push_back({source.splits[split].name, {}});
    plan_shards(split, source.splits[split].name, source.splits[split].samples, options.shard_samples, plan.shards);
  }
  plan.make = [&source, &options](const ShardPlan& shard, const Advance& advance) {
    return make_raw_shard(options.out, source, shard, advance);
  };
  return run_pack(plan, options);
}

std::string utf8_name(const std::string& bytes) {
  std::string name;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t length = character_bytes(std::string_view(bytes).substr(at));
    if (length > 0) {
      name += bytes.substr(at, length);
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(bytes[at])));
      name += escaped;
    }
    at += std::max<std::size_t>(length, 1);
  }
  return name;
}

std::string data_set_name(const fs::path& out) {
  const fs::path folder = fs::absolute(out).lexically_normal();
  return utf8_name((folder.filename().empty() ? folder.parent_path() : folder).filename().string());
}

std::string setting(const std::string& name, const std::string& value) {
  std::string text = name + " = ";
  for (const char c : value) text += c == '\n' ? ' ' : c;
  return text + "\n";
}

std::vector<std::string> class_names(std::int64_t count, const fs::path& file) {
  std::vector<std::string> names;
  if (file.empty()) {
    for (std::int64_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
    return names;
  }
  require_named_file("class names " + file.string(), file, "name a text file with one class a line");
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // That some editors begin UTF-8 files with.
  std::string text = read_text(file);
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  std::istringstream lines(text);
  std::set<std::string> seen;
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.empty()) continue;
    names.push_back(utf8_name(line));
    if (!seen.insert(names.back()).second) {
      throw DataError("class names in " + file.string(), "'" + names.back() + "' stands there twice",
                      "give every class a name of its own");
    }
  }
  if (static_cast<std::int64_t>(names.size()) < count) {
    throw DataError("class names in " + file.string(),
                    "it names " + std::to_string(names.size()) + " classes, the labels need " + std::to_string(count),
                    "give one name a line");
  }
  return names;
}

void require_input_folder(const fs::path& input) {
  require_named_folder("input " + input.string(), input, "name the folder that holds the files");
}

}  // namespace renai
