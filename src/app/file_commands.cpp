#include <cstdio>
#include <fstream>

#include "commands.hpp"
#include "renai/base/error.hpp"
#include "renai/base/failures.hpp"
#include "renai/base/file_error.hpp"
#include "renai/base/text.hpp"
#include "renai/checkpoint/state_dict.hpp"
#include "renai/io/hdf5.hpp"
#include "renai/report/run_summary.hpp"
#include "renai/train/trace.hpp"

namespace renai {
namespace {

bool is_checkpoint(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path)) return false;
  const H5File file = H5File::open(path);
  return file.exists("weights");
}

std::string print_checkpoint(const std::filesystem::path& path) {
  const StateDict state = load_checkpoint(path, false);
  std::string text = "checkpoint " + path.string() + "\n";
  for (const auto& [group, tensors] : state.groups) {
    std::int64_t total_bytes = 0;
    for (const StateTensor& tensor : tensors) total_bytes += static_cast<std::int64_t>(tensor.data.size());
    text += group + ": " + std::to_string(tensors.size()) + " tensors, " + format_bytes(total_bytes) + "\n";
    for (const StateTensor& tensor : tensors) {
      text += "  " + tensor.name + " " + std::string(dtype_name(tensor.dtype)) + " [";
      for (std::size_t i = 0; i < tensor.extents.size(); ++i) {
        text += (i > 0 ? ", " : "") + std::to_string(tensor.extents[i]);
      }
      text += "]\n";
    }
  }
  for (const auto& [key, value] : state.texts) text += key + ":\n" + value + (value.ends_with('\n') ? "" : "\n");
  return text;
}

std::vector<std::filesystem::path> checkpoints_of(const std::filesystem::path& run) {
  std::vector<std::filesystem::path> paths;
  const std::filesystem::path directory = run / "checkpoints";
  if (!std::filesystem::is_directory(directory)) return paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".h5") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

int command_inspect(const std::filesystem::path& path, bool json) {
  require_named(path.string(), path, "check the path");
  std::string text;
  if (is_run_directory(path)) {
    text = summarize_run(path, json);
  } else if (is_checkpoint(path)) {
    text = print_checkpoint(path);
  } else {
    text = inspect_dataset(path, json);
  }
  std::fputs(text.c_str(), stdout);
  if (!text.ends_with('\n')) std::fputs("\n", stdout);
  return 0;
}

int command_verify(const std::filesystem::path& path, bool adopt) {
  require_named(path.string(), path, "check the path");
  if (is_run_directory(path) || is_checkpoint(path)) {
    const bool run = is_run_directory(path);
    const auto checkpoints = run ? checkpoints_of(path) : std::vector<std::filesystem::path>{path};
    if (checkpoints.empty()) {
      throw DataError("verifying run " + path.string(), "it holds no checkpoint, so there is nothing to check",
                      "train it with --checkpoint-every, or name another run");
    }
    Failures failures;
    for (const auto& checkpoint : checkpoints) {
      failures.collect([&] {
        load_checkpoint(checkpoint);
        std::printf("%s: digest right\n", checkpoint.c_str());
      });
    }
    failures.raise("verifying run " + path.string(), "checkpoints");
    return 0;
  }
  if (adopt) adopt_dataset(path);
  const std::string text = verify_dataset(path);
  std::fputs(text.c_str(), stdout);
  if (!text.ends_with('\n')) std::fputs("\n", stdout);
  return 0;
}

int command_trace_diff(const std::string& a, const std::string& b) {
  const TraceDifference difference = trace_diff(a, b);
  std::printf("%s\n", difference.text.c_str());
  return difference.identical ? 0 : 1;
}

}  // namespace renai
