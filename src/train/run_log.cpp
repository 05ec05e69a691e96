#include "renai/train/run_log.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "renai/base/elapsed.hpp"
#include "renai/base/error.hpp"
#include "renai/io/atomic_file.hpp"

namespace renai {
namespace {

using nlohmann::ordered_json;

constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kSummary = "summary.json";
constexpr const char* kCheckpoints = "checkpoints";

/// JSON has no NaN or infinity: such a value becomes null.
ordered_json number(double value) { return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr); }

/// Moves a directory that already holds a run to the first free "<name>.<n>". False when it holds none.
bool move_aside(const std::filesystem::path& directory) {
  const bool holds_run = std::filesystem::exists(directory / kMetrics) ||
                         std::filesystem::exists(directory / kCheckpoints) ||
                         std::filesystem::exists(directory / kSummary);
  if (!holds_run) return false;
  for (int n = 1;; ++n) {
    std::filesystem::path old = directory;
    old += "." + std::to_string(n);
    if (std::filesystem::exists(old)) continue;
    std::error_code error;
    std::filesystem::rename(directory, old, error);
    if (error) {
      throw ResourceError("moving the earlier run " + directory.string() + " aside", error.message(),
                          "give another --run-dir, or continue it with --resume auto");
    }
    return true;
  }
}

/// Open MPI gives each rank a terminal of its own, also where it writes to a file or a pipe itself.
bool prints_to_terminal() {
  if (::isatty(STDOUT_FILENO) != 1) return false;
  if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) return true;
  std::error_code unknown;
  const std::string launcher = "/proc/" + std::to_string(::getppid()) + "/fd/1";
  const std::string shown = std::filesystem::read_symlink(launcher, unknown).string();
  return unknown || shown.starts_with("/dev/pts/") || shown.starts_with("/dev/tty") || shown == "/dev/console";
}

std::string duration_text(double seconds) {
  const auto total = static_cast<std::int64_t>(std::max(seconds, 0.0));
  char text[32];
  std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", static_cast<long long>(total / 3600),
                static_cast<long long>(total / 60 % 60), static_cast<long long>(total % 60));
  return text;
}

}  // namespace

std::string to_json(const Summary& s) {
  ordered_json object;
  object["status"] = s.status;
  object["epochs"] = s.epochs;
  object["steps"] = s.steps;
  object["world_size"] = s.world_size;
  object["logical_shards"] = s.logical_shards;
  object["device"] = s.device;
  object["precision"] = s.precision;
  object["seed"] = s.seed;
  object["model"] = s.model;
  object["library"] = s.library;
  object["train_loss"] = number(s.train_loss);
  object["val_top1"] = number(s.val_top1);
  object["val_top5"] = number(s.val_top5);
  object["val_loss"] = number(s.val_loss);
  if (!std::isnan(s.val_top1_ema)) {
    object["val_top1_ema"] = number(s.val_top1_ema);
    object["val_top5_ema"] = number(s.val_top5_ema);
    object["val_loss_ema"] = number(s.val_loss_ema);
  }
  object["val_images"] = s.val_images;
  object["images_per_second_median"] = number(s.images_per_second_median);
  object["startup_seconds"] = s.startup_seconds;
  object["capture_seconds"] = s.capture_seconds;
  object["peak_device_bytes"] = s.peak_device_bytes;
  object["captured_graphs"] = s.captured_graphs;
  object["reused_slots"] = s.reused_slots;
  object["digest"] = s.digest;
  object["kernel_plan"] = s.kernel_plan;
  object["skipped_steps"] = s.skipped_steps;
  object["step_allocations"] = s.step_allocations;
  object["step_synchronizations"] = s.step_synchronizations;
  object["reduce"] = s.reduce;
  if (!s.error.empty()) object["error"] = s.error;
  return object.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

RunLog::RunLog(const std::filesystem::path& directory, int rank, bool keep_existing, RunLock lock)
    : directory_(directory), active_(rank == 0) {
  if (!active_) return;
  if (!lock.held()) lock = RunLock(directory_);
  const bool moved = !keep_existing && move_aside(directory_);
  require_writable_directory(directory_);
  // What was moved aside took its lock along and keeps it until the new directory has one.
  lock_ = moved || !lock.held() ? RunLock(directory_) : std::move(lock);
  std::error_code ignored;
  std::filesystem::remove(directory_ / kSummary, ignored);
  if (lock_.held()) {  // Nobody else is writing here.
    for (const auto& folder : {directory_, directory_ / kCheckpoints}) {
      remove_temporaries(folder, [](const std::string&) { return true; });  // What a killed run left half-written.
    }
  }
  metrics_ = LineFile(directory_ / kMetrics, LineFile::read(directory_ / kMetrics));
  terminal_ = prints_to_terminal();
}

void RunLog::write_text(const std::string& name, const std::string& text) const {
  if (active_) replace_text(directory_ / name, text);
}

void RunLog::write_ranks(const HostTopology& topology) const {
  ordered_json list = ordered_json::array();
  for (const RankPlace& place : topology.places) {
    list.push_back({{"rank", place.rank},
                    {"host", place.host},
                    {"local_rank", place.local_rank},
                    {"device", place.device},
                    {"uuid", place.uuid},
                    {"numa_node", place.numa_node},
                    {"pid", place.pid}});
  }
  write_text("ranks.json", list.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
}

void RunLog::rewind(std::int64_t step, bool validates_first) {
  if (!active_) return;
  std::vector<std::string> lines;
  for (std::string& text : LineFile::read(directory_ / kMetrics)) {
    const ordered_json line = ordered_json::parse(text, nullptr, false);
    if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) continue;
    const auto at = line["step"].get<std::int64_t>();
    const bool again = at == step && validates_first && line.contains("kind") && line["kind"] == "val";
    if (at <= step && !again) lines.push_back(std::move(text));
  }
  metrics_ = LineFile(directory_ / kMetrics, lines);
}

void RunLog::train(const TrainLine& line, std::int64_t total_steps) {
  if (!active_) return;
  ordered_json object = {{"kind", "train"},
                         {"step", line.step},
                         {"epoch", line.epoch},
                         {"loss", number(line.loss)},
                         {"lr", line.lr},
                         {"images_per_second", number(line.images_per_second)},
                         {"data_wait_ms", line.data_wait_ms},
                         {"step_ms", line.step_ms},
                         {"grad_norm", number(line.grad_norm)},
                         {"loss_scale", line.loss_scale}};
  metrics_.put(object.dump());

  if (first_step_ < 0) {
    first_step_ = line.step;
    start_ = std::chrono::steady_clock::now();
  }
  const double elapsed = seconds_since(start_);
  const auto done = static_cast<double>(line.step - first_step_);
  const double eta = done > 0 ? elapsed / done * static_cast<double>(total_steps - line.step) : 0.0;
  char text[256];
  std::snprintf(text, sizeof text,
                "epoch %.2f  step %lld/%lld  loss %.4f  lr %.4g  %.0f img/s  data wait %.1f ms  ETA %s", line.epoch,
                static_cast<long long>(line.step), static_cast<long long>(total_steps), line.loss, line.lr,
                line.images_per_second, line.data_wait_ms, duration_text(eta).c_str());
  if (!terminal_) {
    std::printf("%s\n", text);
  } else {
    constexpr int kWidth = 20;
    const int filled = total_steps > 0 ? static_cast<int>(line.step * kWidth / total_steps) : 0;
    std::string bar(static_cast<std::size_t>(std::clamp(filled, 0, kWidth)), '#');
    bar.resize(kWidth, '.');
    std::printf("\r[%s] %s\033[K", bar.c_str(), text);
    bar_shown_ = true;
  }
  std::fflush(stdout);
}

void RunLog::end_progress() {
  if (bar_shown_) std::printf("\n");
  bar_shown_ = false;
}

void RunLog::validation(const ValLine& line) {
  if (!active_) return;
  ordered_json object = {{"kind", "val"},     {"step", line.step},         {"epoch", line.epoch},   {"top1", line.top1},
                         {"top5", line.top5}, {"loss", number(line.loss)}, {"images", line.images}, {"ema", line.ema}};
  metrics_.put(object.dump());
  end_progress();
  std::printf("validation after step %lld%s: top-1 %.4f  top-5 %.4f  loss %.4f  (%lld images)\n",
              static_cast<long long>(line.step), line.ema ? ", averaged weights" : "", line.top1, line.top5, line.loss,
              static_cast<long long>(line.images));
  std::fflush(stdout);
}

void RunLog::finish(const Summary& summary) {
  if (!active_) return;
  end_progress();
  try {
    metrics_.flush();
  } catch (const ResourceError& error) {
    Summary failed = summary;
    failed.status = "failed";
    failed.error = error.what();
    replace_text(directory_ / kSummary, to_json(failed));
    throw;
  }
  replace_text(directory_ / kSummary, to_json(summary));
}

void RunLog::finish_failed(Summary summary, const std::string& error, const Log& console) noexcept {
  try {
    summary.status = "failed";
    summary.error = error;
    if (!active_) return;
    end_progress();
    replace_text(directory_ / kSummary, to_json(summary));
    metrics_.flush();
  } catch (const std::exception& second) {
    console.warning(std::string("no summary could be written: ") + second.what());
  }
}

}  // namespace renai
