#pragma once
// RunLog: the files of a run directory and the progress line. Rank 0 writes; other ranks hold a silent one.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "renai/base/log.hpp"
#include "renai/comm/control_group.hpp"
#include "renai/io/line_file.hpp"
#include "renai/train/recipe.hpp"
#include "renai/train/run_lock.hpp"

namespace renai {

/// A line of metrics.jsonl about training: of the step itself, but for images/s and milliseconds a step, which are
/// means since the line before.
struct TrainLine {
  std::int64_t step = 0;
  double epoch = 0, loss = 0, lr = 0, images_per_second = 0, data_wait_ms = 0, step_ms = 0, grad_norm = 0,
         loss_scale = 1;
};
/// A line of metrics.jsonl about a validation; top1 and top5 as fractions.
struct ValLine {
  std::int64_t step = 0, images = 0;
  double epoch = 0, top1 = 0, top5 = 0, loss = 0;
  bool ema = false;
};

/// What summary.json says.
struct Summary {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  std::string status = "completed";
  double epochs = 0;
  std::int64_t steps = 0;
  int world_size = 1, logical_shards = 1;
  std::string device, precision = "fp32", reduce = "tree", model, library, kernel_plan;
  std::uint64_t seed = 0;
  double train_loss = kNone;  ///< Mean over the last epoch; null in JSON where no step counted.
  double val_top1 = kNone, val_top5 = kNone, val_loss = kNone;  ///< null in JSON where nothing was validated.
  double val_top1_ema = kNone, val_top5_ema = kNone, val_loss_ema = kNone;  ///< Of the averages; absent without --ema.
  std::int64_t val_images = 0;
  double images_per_second_median = 0, startup_seconds = 0, capture_seconds = 0;
  std::int64_t peak_device_bytes = 0;
  int captured_graphs = 0, reused_slots = 0;
  std::string digest;
  std::int64_t skipped_steps = 0, step_allocations = 0, step_synchronizations = 0;
  std::string error;
  int signal = 0;  ///< That interrupted the run; part of `error` in the file.
};
/// The text of summary.json.
std::string to_json(const Summary& summary);

/// Writes a run's files, and its progress on the terminal.
class RunLog {
 public:
  /// Effects: on rank 0 creates the directory; a finished or broken run already there is moved aside (".1", ".2" ...)
  /// unless `keep_existing`; then only its summary goes, which was about an earlier attempt. Before any of that it
  /// takes hold of the directory, unless `lock` already does, and keeps it. Errors: ResourceError when the directory
  /// cannot be written, UserError when another run holds it.
  RunLog(const std::filesystem::path& directory, int rank, bool keep_existing, RunLock lock = {});
  const std::filesystem::path& directory() const { return directory_; }
  const RunLock& lock() const { return lock_; }
  void write_text(const std::string& name, const std::string& text) const;
  void write_ranks(const HostTopology& topology) const;
  /// Of a run that goes on after `step` steps: removes from metrics.jsonl the lines of later ones, which come again, of
  /// the validation there when it `validates_first`, and what an interrupted write left.
  void rewind(std::int64_t step, bool validates_first);
  /// While a disk takes nothing, lines of metrics wait in memory. Errors: ResourceError when too many wait.
  void train(const TrainLine& line, std::int64_t total_steps);
  void validation(const ValLine& line);
  /// Errors: ResourceError when the summary or lines of metrics cannot be written.
  void finish(const Summary& summary);
  /// Writes `summary` with status "failed" and `error`. Where that fails too, `console` is told and nothing is thrown.
  void finish_failed(Summary summary, const std::string& error, const Log& console) noexcept;
  /// Moves to a new line where a progress bar is on screen.
  void end_progress();

 private:
  std::filesystem::path directory_;
  bool active_;
  RunLock lock_;
  bool terminal_ = false;
  bool bar_shown_ = false;
  LineFile metrics_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::int64_t first_step_ = -1;
};

}  // namespace renai
