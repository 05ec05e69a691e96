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

ordered_json parse(const std::string& text, const std::string& where) {
  ordered_json object = ordered_json::parse(text, nullptr, false);
  if (object.is_discarded()) throw DataError(where, "this is not JSON", "the file is damaged");
  return object;
}

std::string validations(const std::filesystem::path& directory) {
  std::ostringstream out;
  std::istringstream lines(read_text(directory / "metrics.jsonl"));
  std::size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    if (lines.eof()) break;  // Not ended: a killed run leaves such a line, and a running one is still writing it.
    ++number;
    const ordered_json object = parse(line, (directory / "metrics.jsonl").string() + ":" + std::to_string(number));
    if (object.value("kind", "") != "val") continue;
    out << "  step " << object.value("step", 0) << "  top-1 " << object.value("top1", 0.0) << "  top-5 "
        << object.value("top5", 0.0) << "  images " << object.value("images", 0)
        << (object.value("ema", false) ? "  averaged weights" : "") << "\n";
  }
  return out.str();
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
  const ordered_json object = parse(text, summary.string());
  for (const auto& [key, value] : object.items()) {
    out << "  " << key << " " << (value.is_string() ? value.get<std::string>() : value.dump()) << "\n";
  }
  out << "validations\n" << validations(directory) << "checkpoints\n" << checkpoints(directory);
  return out.str();
}

}  // namespace renai
