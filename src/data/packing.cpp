#include "packing.hpp"

#include <sstream>

#include "divide_split.hpp"
#include "pack_run.hpp"
#include "renai/base/digest.hpp"
#include "renai/base/error.hpp"
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

std::string data_set_name(const fs::path& out) {
  const fs::path folder = fs::absolute(out).lexically_normal();
  return folder.filename().empty() ? folder.parent_path().filename().string() : folder.filename().string();
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
