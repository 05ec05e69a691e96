#include "renai/train/task.hpp"

#include <cmath>
#include <cstring>

#include "median.hpp"
#include "renai/base/check.hpp"
#include "renai/base/elapsed.hpp"
#include "renai/base/error.hpp"
#include "renai/data/read_ahead.hpp"
#include "renai/graph/region_name.hpp"
#include "renai/train/lr_schedule.hpp"
#include "renai/train/stop_question.hpp"

namespace renai {
namespace {

using Clock = std::chrono::steady_clock;

SamplerConfig sampler_config(const Recipe& recipe, const Dataset& dataset, bool training) {
  SamplerConfig config;
  config.samples = dataset.size();
  config.global_batch = training ? recipe.global_batch : validation_batch(recipe);
  config.logical_shards = recipe.logical_shards;
  config.micro_batches = training ? recipe.accumulate : 1;
  config.seed = recipe.seed;
  config.training = training;
  config.shuffle = parse_shuffle(recipe.shuffle);
  config.window = recipe.shuffle_window;
  if (!training || config.shuffle != Shuffle::block) return config;
  for (const ShardInfo& shard : dataset.manifest().find("train")->shards) config.blocks.push_back(shard.samples);
  return config;
}

}  // namespace

/// A span of steps between two log lines: what throughput and data wait are measured over.
struct Window {
  Clock::time_point start = Clock::now();
  std::int64_t steps = 0, images = 0;
  std::chrono::nanoseconds waited{0};
};

struct DeepLearningTask::Impl {
  Engine* engine;
  Options options;
  std::optional<Sampler> train_sampler, val_sampler;
  std::optional<ReadAhead> read_ahead;
  std::unique_ptr<StepSchedule> schedule;
  std::unique_ptr<Loader> loader;  // After the schedule: its threads wait for the schedule's events and end first.
  Audit audit;
  FaultPlan fault;
  std::optional<TraceWriter> trace;
  CheckpointStore store;
  Summary summary;
  Progress progress;
  std::int64_t total_steps = 0, batches = 0, drained = 0;
  Window window, measured;
  double measured_seconds = 0;
  std::vector<double> throughput;
  DeviceCounters steady{};
  StopQuestion stop;
  Clock::time_point step_mark = Clock::now();   ///< Since when the time belongs to steps that have not ended.
  bool told = false;                            ///< Whether a first summary of an interrupted run is out.
  int settling = 0;                             ///< Steps made after the ranks agreed to end.
  std::int64_t saved_step = -1, bad_steps = 0;  ///< Bad ones: in a row, up to the last step that was looked at.
  bool owes_checkpoint = false;                 ///< One was due after a bad step.
  std::string useless;                          ///< On rank 0: why the last state was not worth a checkpoint.

  Impl(Engine& e, const Options& o)
      : engine(&e), options(o), audit(e), store(o.log->directory()), stop(*e.run().control) {
    const Recipe& recipe = *options.recipe;
    if (options.data.train != nullptr) train_sampler.emplace(sampler_config(recipe, *options.data.train, true));
    // Direct reads would not find what is read ahead.
    if (train_sampler && recipe.shuffle == shuffle_name(Shuffle::block) && !options.data.train->reads_direct()) {
      read_ahead.emplace(*options.data.train, *train_sampler);
    }
    if (options.data.val != nullptr) val_sampler.emplace(sampler_config(recipe, *options.data.val, false));
    LoaderConfig config;
    config.layout = engine->blueprint().slot;
    config.staging = engine->staging();
    config.threads = recipe.loader_threads;
    config.augmentation = Augmentation::parse(recipe.augment);
    config.mixing = {recipe.mixup, recipe.cutmix};
    config.erasing = recipe.random_erasing;
    config.val_crop = recipe.val_crop;
    config.seed = recipe.seed;
    loader = std::make_unique<Loader>(config);
    schedule = std::make_unique<StepSchedule>(*engine, recipe, options.data, train_sampler ? &*train_sampler : nullptr,
                                              val_sampler ? &*val_sampler : nullptr, *loader);
    fault = parse_fault(recipe.inject_fault);
    batches = schedule->batches_per_epoch();
    total_steps = renai::total_steps(recipe, batches);
    if (fault.kind != FaultKind::none && fault.step >= total_steps) {
      throw UserError("--inject-fault " + recipe.inject_fault,
                      "the run has " + std::to_string(total_steps) + " steps, counted from 0", "name one of them");
    }
  }

  int rank() const { return engine->run().control->rank(); }
  bool traces() const { return !options.recipe->trace.empty(); }
  double epoch_of(std::int64_t step) const { return static_cast<double>(step) / static_cast<double>(batches); }

  /// Reads the metrics of finished steps; `all` waits for those in flight.
  void drain(bool all) {
    const std::int64_t before = drained;
    while (drained < progress.step && (all || schedule->step_done(drained))) {
      if (all) schedule->wait_step(drained);
      note_step(drained);
      ++drained;
    }
    stop.took(seconds_since(step_mark), drained - before);
    step_mark = Clock::now();
  }

  std::string loss_scale_text(const float* scalars) const {
    if (!engine->blueprint().graph.options().dynamic_loss_scale) return {};
    const auto scale = static_cast<std::int64_t>(scalars[region_name::kScalarLossScale]);
    return ", though the loss scale fell to " + std::to_string(scale);
  }

  void note_step(std::int64_t step) {
    const std::span<const float> values = engine->read_back(step);
    const float* metrics = values.data();
    const float* scalars = values.data() + region_name::kMetricCount;
    const double loss = metrics[0] / metrics[1];
    if (step % batches == 0) progress.epoch_loss_sum = progress.epoch_images = 0;
    if (scalars[region_name::kScalarSkip] == 0.0f) {
      progress.epoch_loss_sum += metrics[0];
      progress.epoch_images += metrics[1];
    }
    progress.skipped_steps = static_cast<std::int64_t>(scalars[region_name::kScalarSkippedSteps]);
    bad_steps = static_cast<std::int64_t>(scalars[region_name::kScalarBadSteps]);
    if (bad_steps >= options.recipe->max_bad_steps) {
      throw UserError("training diverged at step " + std::to_string(step),
                      "the gradients of " + std::to_string(options.recipe->max_bad_steps) +
                          " steps in a row were not finite (--max-bad-steps)" + loss_scale_text(scalars),
                      "lower --lr, lengthen --warmup-epochs or set --clip-norm");
    }
    ++window.steps;
    window.images += static_cast<std::int64_t>(metrics[1]);
    const bool due = (step + 1) % options.recipe->log_every == 0 || step + 1 == total_steps || step == 0;
    if (due) write_line(step, loss, scalars);
  }

  void write_line(std::int64_t step, double loss, const float* scalars) {
    const double seconds = seconds_since(window.start);
    TrainLine line;
    line.step = step + 1;
    line.epoch = epoch_of(step + 1);
    line.loss = loss;
    line.lr = learning_rate(*options.recipe, step, total_steps, batches);
    line.images_per_second = static_cast<double>(window.images) / seconds;
    line.step_ms = seconds * 1e3 / static_cast<double>(window.steps);
    line.data_wait_ms = std::chrono::duration<double, std::milli>(schedule->data_wait() - window.waited).count() /
                        static_cast<double>(window.steps);
    line.grad_norm = scalars[region_name::kScalarGradNorm];
    line.loss_scale = scalars[region_name::kScalarLossScale];
    options.log->train(line, total_steps);
    close_window();
  }

  /// Log lines may be close together; throughput is measured over five steps at least.
  void close_window() {
    measured.steps += window.steps;
    measured.images += window.images;
    measured_seconds += seconds_since(window.start);
    if (measured.steps >= 5) close_measured();
    window = Window{};
    window.waited = schedule->data_wait();
  }

  void close_measured() {
    throughput.push_back(static_cast<double>(measured.images) / measured_seconds);
    measured = Window{};
    measured_seconds = 0;
  }

  void write_trace(std::int64_t step, const StateDigest& digest) {
    const std::vector<std::int64_t>& own = schedule->ids();
    const auto all = engine->run().control->all_gather(
        {reinterpret_cast<const char*>(own.data()), own.size() * sizeof(std::int64_t)},
        "gathering sample ids of step " + std::to_string(step));
    if (!trace) return;
    TraceStep line;
    line.step = step;
    line.epoch = step / batches;
    line.loss = engine->read_back(step)[0] / engine->read_back(step)[1];
    line.digest = digest;
    for (const std::string& part : all) {
      std::vector<std::int64_t> ids(part.size() / sizeof(std::int64_t));
      std::memcpy(ids.data(), part.data(), part.size());
      line.sample_ids.insert(line.sample_ids.end(), ids.begin(), ids.end());
    }
    trace->write(line);
  }

  /// Flips the lowest bit of the first weight: the drill for the cross-rank check.
  void flip_bit() {
    const ComputationGraph& graph = engine->blueprint().graph;
    const std::int64_t offset = engine->blueprint().plans.front().tensor(graph.params().front().weight).offset_bytes;
    std::array<std::byte, 4> word{};
    engine->download(offset, word);
    word[0] ^= std::byte{1};
    engine->upload(offset, word);
  }

  /// Weights that cannot be trained any more must not push out the checkpoints before them: after a step that was not
  /// finite, or a validation without a number, a checkpoint waits. One at the end does not wait for a finite step where
  /// its validation was made.
  bool may_save(bool end, const ValidationResult* validation) const {
    return (end || bad_steps == 0) && (validation == nullptr || std::isfinite(validation->loss));
  }

  void save(std::int64_t step, const ValidationResult* validation) {
    const StateDigest digest = audit.measure();
    audit.compare(digest, step - 1);
    const bool best = validation != nullptr && validation->top1 > progress.best_top1;
    if (best) progress.best_top1 = validation->top1;
    saved_step = step;
    if (rank() != 0) return;
    StateDict state = gather_state(*engine, progress);
    useless = describe_useless(state);  // The step that makes such weights has gradients that are numbers.
    if (!useless.empty()) return warn_unsaved(step, useless);
    state.texts = options.checkpoint_texts;
    state.texts["weights_digest"] = digest.regions[0].hex();
    const std::filesystem::path path = store.save(step, state, options.recipe->keep);
    if (best) store.mark_best(path);
  }

  void warn_unsaved(std::int64_t step, const std::string& why) const {
    if (rank() == 0) options.console->warning("no checkpoint is saved at step " + std::to_string(step) + ": " + why);
  }

  /// Whether the run ends before the next step because a signal asks for it: the same answer on all ranks.
  /// Nothing comes after a validation that a signal ended.
  bool stops() { return hears_signal(stop) && (progress.validation_due || settled()); }

  bool hears_signal(StopQuestion& question) {
    const int own = options.interrupt != nullptr ? options.interrupt->load() : 0;
    if (own != 0 && !told) tell_interrupt(own);
    if (summary.signal == 0) summary.signal = question.ask(own);
    return summary.signal != 0;
  }

  void end_question(StopQuestion& question) {
    const int heard = question.close();
    if (summary.signal == 0) summary.signal = heard;
  }

  /// The checkpoint at the end waits for a step that is finite like any other, but not for long.
  bool settled() {
    constexpr int kMostSteps = 8;
    drain(true);
    return bad_steps == 0 || ++settling > kMostSteps;
  }

  void mark_interrupted(Summary& marked, int signal) const {
    marked.status = "interrupted";
    marked.error = "stopped by signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")";
  }

  /// At once, because a launcher that is told to end may end this process before it gets to its last step.
  void tell_interrupt(int signal) {
    told = true;
    fill_summary();
    Summary first = summary;
    mark_interrupted(first, signal);
    try {
      options.log->finish(first);
    } catch (const ResourceError& error) {  // The checkpoint may still find a place.
      options.console->warning(error.what());
    }
  }

  /// After the last step of an interrupted run.
  void finish_interrupted(std::int64_t first_step) {
    mark_interrupted(summary, summary.signal);
    if (progress.step == first_step) return;
    std::string why;
    if (saved_step == progress.step) {
      why = useless;
    } else if (may_save(false, nullptr)) {
      save(progress.step, nullptr);
      why = useless;
    } else {
      why = "the gradients of the last " + std::to_string(bad_steps) + " steps were not finite";
      warn_unsaved(progress.step, why);
    }
    if (!why.empty()) summary.error += "; no checkpoint was saved: " + why;
  }

  /// Of the weights; with --ema their averages are validated and logged as well.
  /// Nothing where a signal ends the run: it is made again when the run goes on.
  std::optional<ValidationResult> run_validation() {
    drain(true);
    close_window();
    end_question(stop);
    progress.validation_due = true;
    StopQuestion question(*engine->run().control);  // Of batches, which take another time than steps.
    const std::optional<ValidationResult> result = note_validation(false, question);
    if (!result) return std::nullopt;
    summary.val_top1 = result->top1;
    summary.val_top5 = result->top5;
    summary.val_loss = result->loss;
    summary.val_images = result->images;
    if (options.recipe->ema > 0.0) {
      const std::optional<ValidationResult> averages = note_validation(true, question);
      if (!averages) return std::nullopt;
      summary.val_top1_ema = averages->top1;
      summary.val_top5_ema = averages->top5;
      summary.val_loss_ema = averages->loss;
    }
    progress.validation_due = false;
    end_question(question);
    window = Window{};
    window.waited = schedule->data_wait();
    return result;
  }

  std::optional<ValidationResult> note_validation(bool ema, StopQuestion& question) {
    const Clock::time_point start = Clock::now();
    int asked = 0;
    const auto validated = schedule->validate(progress.step, ema, [&] {
      if (++asked == 2) question.took(seconds_since(start), 1);
      return hears_signal(question);
    });
    if (!validated) return std::nullopt;
    const ValidationResult& result = *validated;
    ValLine line;
    line.step = progress.step;
    line.epoch = epoch_of(progress.step);
    line.images = result.images;
    line.top1 = result.top1;
    line.top5 = result.top5;
    line.loss = result.loss;
    line.ema = ema;
    options.log->validation(line);
    if (trace)
      trace->write_validation(progress.step, result.loss, result.top1_hits, static_cast<double>(result.images), ema);
    return result;
  }

  void count_launch(std::int64_t step, std::int64_t first_step) {
    const DeviceCounters before = engine->run().device->counters();
    schedule->launch_step(step);
    if (step < first_step + 2) return;
    const DeviceCounters after = engine->run().device->counters();
    steady.allocations += after.allocations + after.pinned_allocations - before.allocations - before.pinned_allocations;
    steady.host_synchronizations += after.host_synchronizations - before.host_synchronizations;
  }

  void after_step(std::int64_t step) {
    const Recipe& recipe = *options.recipe;
    const bool flips = fault.kind == FaultKind::flip_bit && fault.due(step, rank());
    if (flips) flip_bit();
    const bool verify_due = recipe.verify_every > 0 && (step + 1) % recipe.verify_every == 0;
    if (traces() || verify_due) {
      schedule->wait_step(step);
      const StateDigest digest = audit.measure();
      if (verify_due) audit.compare(digest, step);
      if (traces()) write_trace(step, digest);
    }
    drain(false);
    while (step + 1 - drained >= stop.ahead()) {
      schedule->wait_step(drained);
      drain(false);
    }
    std::optional<ValidationResult> validation;
    const bool end = step + 1 == total_steps;
    if (val_sampler && ((step + 1) % batches == 0 || end)) validation = run_validation();
    owes_checkpoint = owes_checkpoint || (recipe.checkpoint_every > 0 && (step + 1) % recipe.checkpoint_every == 0);
    if (!owes_checkpoint && !end) return;
    drain(true);
    // A validation that a signal ended says nothing of the weights: the checkpoint is one between steps.
    if (may_save(end && !progress.validation_due, validation ? &*validation : nullptr)) {
      save(step + 1, validation ? &*validation : nullptr);
      owes_checkpoint = false;
    }
  }

  void loop() {
    const std::int64_t first_step = progress.step;
    schedule->keep_ids(traces());
    schedule->begin(first_step, total_steps, progress.validation_due);
    if (progress.validation_due || (first_step >= total_steps && val_sampler)) validate_first();
    step_mark = Clock::now();
    for (std::int64_t step = first_step; step < total_steps && !stops(); ++step) {
      engine->run().control->poll();
      if (read_ahead) read_ahead->at(step / batches, step % batches);
      if (fault.due(step, rank())) run_fault(fault);
      count_launch(step, first_step);
      progress.step = step + 1;
      if (step == first_step) {
        schedule->wait_step(step);
        summary.startup_seconds = seconds_since(options.process_start);
      }
      after_step(step);
      step_mark = Clock::now();
    }
    drain(true);
    close_window();
    if (throughput.empty() && measured.steps > 0) close_measured();
    stop.close();
    // It ended as it would have without a signal.
    if (progress.step >= total_steps && !progress.validation_due) summary.signal = 0;
    if (summary.signal != 0) finish_interrupted(first_step);
    if (summary.signal == 0) refuse_useless_weights();
  }

  /// What a signal left out, or a run that was complete is asked for again. The checkpoint may be the best one after
  /// all.
  void validate_first() {
    const bool due = progress.validation_due;
    const std::optional<ValidationResult> validation = run_validation();
    if (due && validation && may_save(true, &*validation) && validation->top1 > progress.best_top1)
      save(progress.step, &*validation);
  }

  /// A run too short for --max-bad-steps must not pass for a success either.
  void refuse_useless_weights() const {
    if (!useless.empty()) {
      throw UserError("training diverged at step " + std::to_string(progress.step), useless,
                      "lower --lr, lengthen --warmup-epochs or set --clip-norm");
    }
    if (!val_sampler || std::isfinite(summary.val_loss)) return;
    throw UserError("training diverged: validation after step " + std::to_string(progress.step),
                    "the loss is not finite, so the weights are too large to compute with",
                    "lower --lr, lengthen --warmup-epochs or set --clip-norm");
  }

  void fill_summary() {
    const Recipe& recipe = *options.recipe;
    const Blueprint& blueprint = engine->blueprint();
    summary.epochs = batches > 0 ? epoch_of(progress.step) : 0.0;
    summary.steps = progress.step;
    summary.world_size = engine->run().control->world_size();
    summary.logical_shards = recipe.logical_shards;
    summary.device = engine->run().backend->name();
    summary.precision = recipe.precision;
    summary.model = recipe.model;
    summary.library = engine->run().backend->library();
    summary.seed = recipe.seed;
    if (progress.epoch_images > 0) summary.train_loss = progress.epoch_loss_sum / progress.epoch_images;
    summary.images_per_second_median = median(throughput);
    summary.capture_seconds = engine->capture_seconds();
    summary.peak_device_bytes = engine->arena_bytes();
    summary.captured_graphs = static_cast<int>(blueprint.atlas.captures().size());
    summary.reused_slots = blueprint.atlas.reused_slots();
    summary.kernel_plan = Digest128{kernel_plan_hash(blueprint.book), 0}.hex().substr(16);
    summary.skipped_steps = progress.skipped_steps;
    summary.step_allocations = steady.allocations;
    summary.step_synchronizations = steady.host_synchronizations;
  }
};

DeepLearningTask::DeepLearningTask(Engine& engine, const Options& options)
    : impl_(std::make_unique<Impl>(engine, options)) {}
DeepLearningTask::~DeepLearningTask() = default;

Summary DeepLearningTask::train(Progress progress) {
  Impl& task = *impl_;
  task.progress = progress;
  task.drained = progress.step;
  try {
    const bool at_its_place = progress.step >= task.total_steps || progress.step % task.batches == 0;
    task.progress.validation_due = progress.validation_due && task.val_sampler && at_its_place;
    const bool validates_first =
        (progress.step >= task.total_steps || task.progress.validation_due) && task.val_sampler;
    if (progress.step > 0) task.options.log->rewind(progress.step, validates_first);
    if (task.traces() && task.rank() == 0) {
      task.trace.emplace(task.options.recipe->trace, task.options.trace_header, progress.step, validates_first);
    }
    task.loop();
    if (task.trace) task.trace->flush();
    task.fill_summary();
    task.summary.digest = task.audit.measure().regions[0].hex();
  } catch (const std::exception& error) {
    task.fill_summary();
    task.options.log->finish_failed(task.summary, error.what(), *task.options.console);
    throw;
  }
  task.options.log->finish(task.summary);
  return task.summary;
}

ValidationResult DeepLearningTask::validate() {
  impl_->schedule->begin(0, 0);
  return *impl_->schedule->validate(0);
}

}  // namespace renai
