#include "renai/report/run_summary.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "renai/base/error.hpp"
#include "renai/io/atomic_file.hpp"

namespace renai {
namespace {

using nlohmann::ordered_json;

constexpr const char* kDamagedLine = "the file is damaged: take that line out of it";

ordered_json parse(const std::string& text, const std::string& where, const char* remedy) {
  ordered_json object = ordered_json::parse(text, nullptr, false);
  if (!object.is_object()) {
    throw DataError(where, object.is_discarded() ? "this is not JSON" : "this is not a JSON object", remedy);
  }
  return object;
}

/// The line of one validation.
std::string validation_text(const ordered_json& line, const std::string& where) {
  const auto number = [&](const char* key) {
    const ordered_json value = line.value(key, ordered_json());
    if (value.is_number()) return value;
    throw DataError(where, "key '" + std::string(key) + "' is " + value.dump() + ", not a number", kDamagedLine);
  };
  std::ostringstream out;
  out << "  step " << number("step").get<std::int64_t>() << "  top-1 " << number("top1").get<double>() << "  top-5 "
      << number("top5").get<double>() << "  images " << number("images").get<std::int64_t>()
      << (line.value("ema", ordered_json()) == true ? "  averaged weights" : "") << "\n";
  return out.str();
}

std::string validations(const std::filesystem::path& directory) {
  std::string text;
  std::istringstream lines(read_text(directory / "metrics.jsonl"));
  std::size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    if (lines.eof()) break;  // Not ended: a killed run leaves such a line, and a running one is still writing it.
    ++number;
    const std::string where = (directory / "metrics.jsonl").string() + ":" + std::to_string(number);
    const ordered_json object = parse(line, where, kDamagedLine);
    if (object.value("kind", ordered_json()) == "val") text += validation_text(object, where);
  }
  return text;
}

std::string checkpoints(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  if (std::filesystem::is_directory(directory / "checkpoints")) {
    for (const auto& entry : std::filesystem::directory_iterator(directory / "checkpoints")) {
      if (entry.path().extension() == ".h5") names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  std::string text;
  for (const std::string& name : names) text += "  " + name + "\n";
  return text;
}

}  // namespace

bool is_run_directory(const std::filesystem::path& directory) {
  return std::filesystem::exists(directory / "metrics.jsonl") && std::filesystem::exists(directory / "recipe.toml");
}

std::string summarize_run(const std::filesystem::path& directory, bool json) {
  const std::filesystem::path summary = directory / "summary.json";
  if (!std::filesystem::exists(summary)) {
    if (json) throw DataError(summary.string(), "the run has no summary", "it is still running or was killed");
    return "run " + directory.string() + ": no summary.json: it is still running or was killed\nvalidations\n" +
           validations(directory) + "checkpoints\n" + checkpoints(directory);
  }
  const std::string text = read_text(summary);
  if (json) return text;
  std::ostringstream out;
  out << "run " << directory.string() << "\n";
  const ordered_json object = parse(text, summary.string(), "the file is damaged: move it away");
  for (const auto& [key, value] : object.items()) {
    out << "  " << key << " " << (value.is_string() ? value.get<std::string>() : value.dump()) << "\n";
  }
  out << "validations\n" << validations(directory) << "checkpoints\n" << checkpoints(directory);
  return out.str();
}

}  // namespace renai
