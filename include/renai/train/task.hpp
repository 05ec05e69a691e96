#pragma once
// DeepLearningTask: training and validation over the atlas.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "renai/base/log.hpp"
#include "renai/data/loader.hpp"
#include "renai/train/audit.hpp"
#include "renai/train/engine.hpp"
#include "renai/train/fault.hpp"
#include "renai/train/freeze.hpp"
#include "renai/train/run_log.hpp"
#include "renai/train/state.hpp"
#include "renai/train/trace.hpp"

namespace renai {

/// Sums of an exact validation: every image once.
struct ValidationResult {
  double loss = 0, top1 = 0, top5 = 0;  ///< Means over images; top1 and top5 as fractions.
  double top1_hits = 0, top5_hits = 0;
  std::int64_t images = 0;
};

/// The splits that a task reads.
struct TaskData {
  const Dataset* train = nullptr;  ///< Null for evaluation only.
  const Dataset* val = nullptr;    ///< Null: no validation.
};

/// Orders the launches of steps and validations over the engine's streams. The event diagram stands in the source.
class StepSchedule {
 public:
  StepSchedule(Engine& engine, const Recipe& recipe, const TaskData& data, const Sampler* train_sampler,
               const Sampler* val_sampler, Loader& loader);

  /// Work items in the order in which they will run, so that the loader can stage ahead across epoch borders. With
  /// `validates_first` a validation comes before the first step.
  void begin(std::int64_t first_step, std::int64_t total_steps, bool validates_first = false);
  /// Launches one training step. Returns at once, except while a staging buffer is not ready.
  void launch_step(std::int64_t step);
  /// Launches a validation, with the weights or with their averages, and waits for its sums. With --ema each validation
  /// of the run is one with the weights, then one with the averages. `ends_early`, if given, is asked before each batch
  /// (the second time when the first batch is done) and says the same on all ranks; when it is true there is no result,
  /// and nothing more can be launched.
  std::optional<ValidationResult> validate(std::int64_t step, bool ema = false,
                                           const std::function<bool()>& ends_early = {});
  /// Whether step `step` has finished; or waits for it. Errors: the failure of the work.
  bool step_done(std::int64_t step) const;
  void wait_step(std::int64_t step) const;

  std::int64_t batches_per_epoch() const { return batches_; }
  void keep_ids(bool keep) { keep_ids_ = keep; }
  /// Sample ids of this rank's shards of the step just launched.
  const std::vector<std::int64_t>& ids() const { return ids_; }
  std::chrono::nanoseconds data_wait() const { return loader_->waited(); }

  static constexpr int kStepsInFlight = 16;

 private:
  struct Cursor {
    bool validation = false;
    bool ema = false;  ///< Which of the two passes of a validation.
    std::int64_t step = 0, batch = 0;
    int local_shard = 0, micro_batch = 0;
  };
  ShardJob make_job(const Cursor& cursor) const;
  bool advance(Cursor& cursor) const;
  void submit_ahead();
  int stage(std::int64_t* job);
  void transfer(int buffer, std::int64_t job, int variant);
  void launch_pass(std::int64_t step, int variant, bool first);
  void merge_and_reduce(int variant, bool last_pass);
  void launch_groups(std::int64_t step, int variant, GraphId id);
  void update_weights(std::int64_t step, int variant);
  void finish_step(std::int64_t step, int variant, bool last);
  int first_shard() const;

  Engine* engine_;
  const Recipe* recipe_;
  FaultPlan fault_;
  TaskData data_;
  const Sampler* train_sampler_;
  const Sampler* val_sampler_;
  Loader* loader_;
  std::vector<ResolutionPhase> phases_;
  FreezePlan freeze_;
  std::array<std::vector<int>, kGraphIdCount> part_groups_;  ///< Of graphs whose parts are freeze groups.
  std::int64_t batches_ = 0, total_steps_ = 0;
  int local_shards_ = 1, micro_batches_ = 1;
  bool keep_ids_ = false;
  std::vector<std::int64_t> ids_;

  std::optional<Cursor> next_;
  std::int64_t submitted_ = 0, consumed_ = 0;
  std::unique_ptr<Event> zero_done_, shard_done_, merged_, comm_done_, checked_, fc_updated_, inference_done_,
      accumulated_, result_done_;
  std::array<std::unique_ptr<Event>, 2> transferred_, slot_free_;
  std::vector<std::unique_ptr<Event>> bucket_merged_, step_done_;
  Buffer result_;
};

/// The whole of `renai train` after everything is set up.
class DeepLearningTask {
 public:
  struct Options {
    const Recipe* recipe = nullptr;
    TaskData data;
    RunLog* log = nullptr;
    const Log* console = nullptr;
    std::map<std::string, std::string> checkpoint_texts;  ///< Recipe and versions, stored in every checkpoint.
    std::vector<std::pair<std::string, std::string>> trace_header;
    std::chrono::steady_clock::time_point process_start;
    /// Becomes the number of a signal that asks the run to end early; null: nothing does.
    const std::atomic<int>* interrupt = nullptr;
  };
  DeepLearningTask(Engine& engine, const Options& options);
  ~DeepLearningTask();

  /// Trains from `progress` to the end and returns the summary, which is also written to the run directory (with status
  /// "failed" when an error ends the run). When a rank is interrupted, all ranks end at the same step (a rank alone at
  /// the next one, several as StopQuestion says; a few later where gradients are not finite); they save a checkpoint,
  /// unless gradients still are not finite, and the status is "interrupted".
  /// Errors: PeerError, DataError, UserError (diverged), ResourceError (checkpoint, trace).
  Summary train(Progress progress);
  /// Exact validation of the present weights, without training.
  ValidationResult validate();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace renai
