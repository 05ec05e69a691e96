#include "renai/train/trace.hpp"

#include <bit>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "renai/base/error.hpp"
#include "renai/base/file_error.hpp"
#include "renai/base/text.hpp"

namespace renai {
namespace {

using nlohmann::ordered_json;

std::string float_bits(float value) { return hex64(std::bit_cast<std::uint32_t>(value)).substr(8); }
std::string double_bits(double value) { return hex64(std::bit_cast<std::uint64_t>(value)); }

/// Why a line cannot stand where it is in a trace; empty when it can.
std::string fault_of(const ordered_json& line, bool first) {
  if (!line.is_object()) return "this is not a line of a trace";
  const ordered_json kind = line.value("kind", ordered_json());
  if (kind == "header") return first ? "" : "a second header begins here";
  if (first) return "the trace has no header";
  if (kind != "step" && kind != "val") return "this is not a line of a trace";
  const ordered_json step = line.value("step", ordered_json());
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (step.is_number_unsigned() && step.get<std::uint64_t>() <= kMost) return "";
  return line.contains("step") ? "its step is " + step.dump() + ", which is the number of none" : "it names no step";
}

std::vector<ordered_json> parse_trace(const std::filesystem::path& path, const std::vector<std::string>& texts,
                                      const std::string& remedy) {
  if (texts.empty()) throw DataError(path.string(), "the trace has no header", remedy);
  std::vector<ordered_json> lines;
  for (std::size_t number = 1; number <= texts.size(); ++number) {
    ordered_json line = ordered_json::parse(texts[number - 1], nullptr, false);
    if (const std::string fault = fault_of(line, number == 1); !fault.empty()) {
      throw DataError(path.string() + ":" + std::to_string(number), fault, remedy);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<ordered_json> read_trace(const std::filesystem::path& path) {
  std::error_code unknown;
  if (!std::filesystem::is_fifo(path, unknown))
    require_named_file("the trace " + path.string(), path, "check the path");
  errno = 0;
  std::ifstream file(path);
  if (!file) fail_reading("reading " + path.string(), errno);
  std::vector<std::string> texts;
  for (std::string line; std::getline(file, line);) texts.push_back(std::move(line));
  return parse_trace(path, texts, "give a file written by renai train --trace");
}

std::string header_differences(const ordered_json& a, const ordered_json& b) {
  std::string text;
  for (const auto& [key, value] : a.items()) {
    const ordered_json other = b.contains(key) ? b[key] : ordered_json("(absent)");
    if (value != other) text += "header differs in '" + key + "': " + value.dump() + " against " + other.dump() + "\n";
  }
  for (const auto& [key, value] : b.items()) {
    if (!a.contains(key)) text += "header differs in '" + key + "': (absent) against " + value.dump() + "\n";
  }
  return text;
}

std::string place(const ordered_json& line) {
  const std::string step = line.contains("step") ? line["step"].dump() : "?";
  return line["kind"] == "val" ? "the validation after step " + step : "step " + step;
}

std::string first_difference(const ordered_json& a, const ordered_json& b) {
  for (const auto& [key, value] : a.items()) {
    if (!b.contains(key)) return "'" + key + "' is missing in the second trace";
    if (b[key] == value) continue;
    if (value.is_array() || value.is_object()) return "'" + key + "'";
    return "'" + key + "': " + value.dump() + " against " + b[key].dump();
  }
  return "a field that only the second trace has";
}

}  // namespace

TraceWriter::TraceWriter(const std::filesystem::path& path,
                         const std::vector<std::pair<std::string, std::string>>& header, std::int64_t first_step,
                         bool validates_first) {
  std::vector<std::string> lines;
  const std::vector<std::string> earlier = first_step > 0 ? LineFile::read(path) : std::vector<std::string>();
  if (!earlier.empty()) {
    for (const ordered_json& line : parse_trace(path, earlier, "move that file away, or give another --trace")) {
      // A validation belongs to the steps before it: the one after step n stands behind step n - 1.
      const std::int64_t step = line["kind"] == "header" ? 0 : line["step"].get<std::int64_t>();
      const bool validated = line["kind"] == "val" && step == first_step && !validates_first;
      if (step < first_step || validated) lines.push_back(line.dump());
    }
  }
  if (lines.empty()) {
    ordered_json line;
    line["kind"] = "header";
    for (const auto& [key, value] : header) line[key] = value;
    lines.push_back(line.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
  }
  file_ = LineFile(path, lines);
}

void TraceWriter::write(const TraceStep& step) {
  ordered_json line;
  line["kind"] = "step";
  line["step"] = step.step;
  line["epoch"] = step.epoch;
  line["ids_digest"] = hash128(std::as_bytes(std::span(step.sample_ids))).hex();
  line["loss"] = float_bits(step.loss);
  // Gradients first: where two runs part, the gradient names the step that did it.
  for (const std::size_t r : {std::size_t{3}, std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    line[kDigestRegions[r]] = step.digest.regions[r].hex();
  }
  if (step.digest.has_ema) line[kDigestRegions[4]] = step.digest.regions[4].hex();
  line["loss_value"] = step.loss;
  line["ids"] = step.sample_ids;
  file_.put(line.dump());
}

void TraceWriter::write_validation(std::int64_t step, double loss, double top1_hits, double images, bool ema) {
  ordered_json line;
  line["kind"] = "val";
  line["step"] = step;
  line["loss"] = double_bits(loss);
  line["top1_hits"] = double_bits(top1_hits);
  line["images"] = images;
  if (ema) line["ema"] = true;
  file_.put(line.dump());
}

TraceDifference trace_diff(const std::filesystem::path& a, const std::filesystem::path& b) {
  const std::vector<ordered_json> first = read_trace(a);
  const std::vector<ordered_json> second = read_trace(b);
  TraceDifference result;
  result.text = header_differences(first.front(), second.front());
  std::int64_t steps = 0;
  for (std::size_t i = 1; i < std::max(first.size(), second.size()); ++i) {
    if (i >= first.size() || i >= second.size()) {
      const ordered_json& more = i < first.size() ? first[i] : second[i];
      result.text +=
          "one trace ends before " + place(more) + "; identical over " + std::to_string(steps) + " steps until there";
      return result;
    }
    if (first[i] != second[i]) {
      result.text += "first difference at " + place(first[i]) + ": " + first_difference(first[i], second[i]);
      return result;
    }
    if (first[i]["kind"] == "step") ++steps;
  }
  if (steps == 0) {
    result.text += "the traces hold no steps";
    return result;
  }
  result.identical = true;
  result.text += "identical over " + std::to_string(steps) + " steps";
  return result;
}

void require_trace_place(const std::filesystem::path& path, const std::filesystem::path& run_directory) {
  namespace fs = std::filesystem;
  const std::string given = "--trace " + path.string();
  std::error_code ignored;
  const fs::path file = fs::weakly_canonical(fs::absolute(path, ignored), ignored);
  const fs::path run = fs::weakly_canonical(fs::absolute(run_directory, ignored), ignored);
  bool taken = file.parent_path() == run / "checkpoints";
  for (const char* name : {"metrics.jsonl", "summary.json", "recipe.toml", "atlas.json", "ranks.json", "checkpoints"})
    taken = taken || file == run / name;
  if (taken) throw UserError(given, "the run writes a file of its own there", "give the trace another name");
  if (!fs::is_regular_file(path, ignored)) return;
  constexpr std::string_view kStart = R"({"kind":"header")";
  std::string start(kStart.size(), '\0');
  std::ifstream stream(path, std::ios::binary);
  if (!stream.read(start.data(), static_cast<std::streamsize>(start.size()))) {
    start.resize(static_cast<std::size_t>(stream.gcount()));
  }
  // A run that was killed may have left less than a header.
  if (kStart.starts_with(start)) return;
  throw UserError(given, "that file is there and is no trace", "give the trace another name, or move that file away");
}

}  // namespace renai
