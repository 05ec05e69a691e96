#include <algorithm>
#include <charconv>
#include <cstdio>

#include "renai/base/error.hpp"
#include "renai/base/file_error.hpp"
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

/// Steps of all checkpoints, newest first. Errors: ResourceError.
std::vector<std::int64_t> list_steps(const std::filesystem::path& folder) {
  std::vector<std::int64_t> steps;
  std::error_code failure;
  std::filesystem::directory_iterator entry(folder, failure);
  for (; !failure && entry != std::filesystem::directory_iterator{}; entry.increment(failure)) {
    if (const auto step = step_of(entry->path().filename().string())) steps.push_back(*step);
  }
  const bool absent = failure == std::errc::no_such_file_or_directory || failure == std::errc::not_a_directory;
  if (failure && !absent) fail_reading("looking for checkpoints in " + folder.string(), failure.value());
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

/// The step that a pointer file (`latest`, `best`) names; nothing when it is missing, names no checkpoint or cannot be
/// read, of which `warnings` is told.
std::optional<std::int64_t> read_pointer(const std::filesystem::path& path, std::vector<std::string>* warnings) {
  std::error_code failure;
  if (!std::filesystem::exists(path, failure) && !failure) return std::nullopt;
  std::string name;
  try {
    name = read_text(path);
  } catch (const ResourceError& error) {
    if (warnings != nullptr) warnings->push_back(path.string() + " cannot be read and is passed over: " + error.why());
    return std::nullopt;
  }
  while (!name.empty() && (name.back() == '\n' || name.back() == '\r' || name.back() == ' ')) name.pop_back();
  return step_of(name);
}

/// Whether the file is a checkpoint that was damaged. One that the system will not give now may be sound.
bool is_damaged(const std::filesystem::path& path) {
  try {
    static_cast<void>(load_checkpoint(path));
    return false;
  } catch (const DataError&) {
    return true;
  } catch (const ResourceError&) {
    return false;
  }
}

constexpr std::string_view kDamaged = "is damaged", kUnreadable = "cannot be read";

std::string problem_text(std::string_view kind, const Error& error) {
  return std::string(kind) + " and passed over: " + error.why();
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
  std::vector<std::string> unread;
  const auto best_step = read_pointer(folder / "best", &unread);
  if (!unread.empty()) return path;  // Any of them may be the best one.
  int kept = 1;                      // The one just written.
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

std::vector<std::filesystem::path> CheckpointStore::candidates(std::vector<std::string>* warnings) const {
  const std::filesystem::path folder = directory_ / "checkpoints";
  const std::vector<std::int64_t> steps = list_steps(folder);
  const auto named = read_pointer(folder / "latest", warnings);
  if (named && std::find(steps.begin(), steps.end(), *named) == steps.end() && warnings != nullptr) {
    warnings->push_back("checkpoint " + (folder / file_name(*named)).string() + " is the newest one and is missing");
  }
  std::vector<std::filesystem::path> found;
  for (const std::int64_t step : steps) {
    // Later steps than the named one are left over from an earlier run in the same directory.
    if (!named || step <= *named) found.push_back(folder / file_name(step));
  }
  return found;
}

std::optional<LoadedCheckpoint> load_newest(std::span<const std::filesystem::path> candidates,
                                            const AgreeOnProblem& agree, std::vector<std::string>* warnings) {
  bool unreadable = false;
  std::string first_problem;
  for (const std::filesystem::path& path : candidates) {
    LoadedCheckpoint loaded{path, {}};
    std::string problem;
    try {
      loaded.state = load_checkpoint(path);
    } catch (const DataError& error) {
      problem = problem_text(kDamaged, error);
    } catch (const ResourceError& error) {
      problem = problem_text(kUnreadable, error);
    }
    problem = agree(problem);
    if (problem.empty()) return loaded;
    unreadable = unreadable || problem.starts_with(kUnreadable);
    if (first_problem.empty()) first_problem = path.filename().string() + " " + problem;
    if (warnings != nullptr) warnings->push_back("checkpoint " + path.string() + " " + problem);
  }
  if (candidates.empty()) return std::nullopt;
  const std::string failed = "none of the checkpoints in " + candidates.front().parent_path().string() + " can be used";
  if (unreadable)
    throw ResourceError(failed, first_problem, "check the disk, the permissions or the network file system");
  throw DataError(failed, first_problem, "copy a good one there, or remove that folder to start from the beginning");
}

}  // namespace renai
