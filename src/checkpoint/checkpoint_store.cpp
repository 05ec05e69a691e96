#include <algorithm>
#include <charconv>
#include <cstdio>

#include "renai/base/error.hpp"
#include "renai/checkpoint/state_dict.hpp"
#include "renai/io/atomic_file.hpp"

namespace renai {
namespace {

constexpr std::string_view kPrefix = "step-", kSuffix = ".h5";

std::string file_name(std::int64_t step) {
  char text[48];
  std::snprintf(text, sizeof text, "step-%08lld.h5", static_cast<long long>(step));
  return text;
}

/// The step of "step-00001234.h5"; nothing for other names.
std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  const char* first = name.data() + kPrefix.size();
  const char* last = name.data() + name.size() - kSuffix.size();
  std::int64_t step = 0;
  const auto [end, failure] = std::from_chars(first, last, step);
  if (failure != std::errc{} || end != last || step < 0) return std::nullopt;
  return step;
}

/// Steps of all checkpoints, newest first.
std::vector<std::int64_t> list_steps(const std::filesystem::path& folder) {
  std::vector<std::int64_t> steps;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failure)) {
    if (const auto step = step_of(entry.path().filename().string())) steps.push_back(*step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

/// The step that a pointer file (`latest`, `best`) names; nothing when it is missing or names no checkpoint.
std::optional<std::int64_t> read_pointer(const std::filesystem::path& path) {
  std::error_code failure;
  if (!std::filesystem::exists(path, failure)) return std::nullopt;
  std::string name = read_text(path);
  while (!name.empty() && (name.back() == '\n' || name.back() == '\r' || name.back() == ' ')) name.pop_back();
  return step_of(name);
}

/// Whether the checkpoint can be loaded; the reason why not goes to `warnings`.
bool is_sound(const std::filesystem::path& path, std::vector<std::string>* warnings) {
  try {
    static_cast<void>(load_checkpoint(path));
    return true;
  } catch (const DataError& error) {
    if (warnings != nullptr) {
      warnings->push_back("checkpoint " + path.string() + " is damaged and passed over: " + error.why());
    }
    return false;
  }
}

/// Whether the file is a checkpoint that was damaged. One that the system will not give now may be sound.
bool is_damaged(const std::filesystem::path& path) {
  try {
    return !is_sound(path, nullptr);
  } catch (const ResourceError&) {
    return false;
  }
}

/// A checkpoint that cannot be removed costs space, nothing else.
void remove_checkpoint(const std::filesystem::path& path) {
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
}

}  // namespace

std::filesystem::path CheckpointStore::save(std::int64_t step, const StateDict& state, int keep) const {
  const std::filesystem::path folder = directory_ / "checkpoints";
  require_writable_directory(folder);
  const std::filesystem::path path = folder / file_name(step);
  save_checkpoint(path, state);
  replace_text(folder / "latest", file_name(step) + "\n");
  const auto best_step = read_pointer(folder / "best");
  int kept = 1;  // The one just written.
  for (const std::int64_t other : list_steps(folder)) {
    if (other == step) continue;
    if (other > step) {
      // Left over from before the run went back to an earlier step: it must not push out one that the run went back
      // to. A damaged one goes now, because it would count once the run has passed its step.
      if (other != best_step && is_damaged(folder / file_name(other))) {
        remove_checkpoint(folder / file_name(other));
      }
    } else if (kept < keep) {
      ++kept;
    } else if (other != best_step) {
      remove_checkpoint(folder / file_name(other));
    }
  }
  return path;
}

void CheckpointStore::mark_best(const std::filesystem::path& checkpoint) const {
  replace_text(directory_ / "checkpoints" / "best", checkpoint.filename().string() + "\n");
}

std::optional<std::filesystem::path> CheckpointStore::latest(std::vector<std::string>* warnings) const {
  const std::filesystem::path folder = directory_ / "checkpoints";
  const auto named = read_pointer(folder / "latest");
  if (named && is_sound(folder / file_name(*named), warnings)) return folder / file_name(*named);
  for (const std::int64_t step : list_steps(folder)) {
    // Later steps than the named one are left over from an earlier run in the same directory.
    if (named && step >= *named) continue;
    if (is_sound(folder / file_name(step), warnings)) return folder / file_name(step);
  }
  return std::nullopt;
}

}  // namespace renai
