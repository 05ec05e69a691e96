#include "renai/train/step_bench.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "median.hpp"
#include "renai/data/loader.hpp"
#include "renai/graph/region_name.hpp"
#include "renai/train/state.hpp"
#include "renai/train/task.hpp"

namespace renai {
namespace {

using Clock = std::chrono::steady_clock;

/// An engine with the loader and schedule that drive it, without files.
struct Bench {
  Blueprint blueprint;
  Engine engine;
  Sampler sampler;
  std::unique_ptr<StepSchedule> schedule_owner;
  Loader loader;  // After the schedule: its threads wait for the schedule's events and end first.
  StepSchedule& schedule;

  Bench(const Recipe& recipe, const DataShape& shape, const Dataset& dataset, const Run& run)
      : blueprint(make_blueprint(recipe, shape, *run.backend, *run.communicator)),
        engine(blueprint, run),
        sampler(SamplerConfig{dataset.size(), recipe.global_batch, recipe.logical_shards, recipe.seed, true,
                              recipe.accumulate}),
        loader(LoaderConfig{blueprint.slot, engine.staging(), recipe.loader_threads,
                            Augmentation::parse(recipe.augment), recipe.seed, Mixing{recipe.mixup, recipe.cutmix},
                            recipe.random_erasing, recipe.val_crop}),
        schedule(*(schedule_owner = std::make_unique<StepSchedule>(engine, recipe, TaskData{&dataset, nullptr},
                                                                   &sampler, nullptr, loader))) {
    initialize_state(engine, recipe.seed);
  }
};

/// Share of the copies' time that passed while the work before their reader was still running: what no step waited for.
/// The first two copies find both slots free and nothing running, so they do not count.
double overlap(const std::vector<TimelineSpan>& spans) {
  double copied = 0;
  double hidden = 0;
  int seen = 0;
  double busy_until = 0;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const TimelineSpan& span = spans[i];
    if (span.stream != stream_name(StreamId::TRANSFER)) {
      if (span.stream != stream_name(StreamId::COMM)) busy_until = std::max(busy_until, span.end_us);
      continue;
    }
    if (++seen <= 2) continue;
    copied += span.end_us - span.start_us;
    hidden += std::clamp(busy_until - span.start_us, 0.0, span.end_us - span.start_us);
  }
  return copied > 0 ? hidden / copied : 0.0;
}

std::vector<std::vector<float>> weights_of(Engine& engine) {
  std::vector<std::vector<float>> all;
  StateDict state = gather_state(engine, {});  // Named: a range over a member of a temporary would outlive it.
  for (const StateTensor& tensor : state.groups["weights"]) {
    std::vector<float> values(tensor.data.size() / sizeof(float));
    std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
    all.push_back(std::move(values));
  }
  return all;
}

struct Update {
  std::vector<std::vector<float>> before, after;
};

/// Gives batch norms that start at 0, the last ones of residual blocks, a small scale.
void wake_blocks(Engine& engine) {
  constexpr float kScale = 0.1f;
  StateDict state = gather_state(engine, {});
  for (StateTensor& tensor : state.groups["weights"]) {
    const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
    if (!tensor.name.ends_with(".weight") || !std::ranges::all_of(tensor.data, is_zero)) continue;
    for (std::size_t at = 0; at < tensor.data.size(); at += sizeof kScale) {
      std::memcpy(tensor.data.data() + at, &kScale, sizeof kScale);
    }
  }
  restore_state(engine, state, "the benchmark's proof", true);
}

Update one_step(const Recipe& recipe, const DataShape& shape, const Dataset& dataset, const Run& run, bool wakes) {
  Bench bench(recipe, shape, dataset, run);
  Update update;
  if (recipe.precision == "fp16") {
    // A step from random weights must not be one that the first, high loss scale skips.
    constexpr float kProofLossScale = 256.0f;
    const Region& scalars = bench.blueprint.plans.front().region(region_name::kScalars);
    bench.engine.upload(scalars.offset_bytes + std::int64_t{region_name::kScalarLossScale} * 4,
                        std::as_bytes(std::span(&kProofLossScale, 1)));
  }
  // What less than fp32 makes of the blocks would be enlarged from one to the next: their scales stay at 0.
  if (wakes) wake_blocks(bench.engine);
  update.before = weights_of(bench.engine);
  bench.schedule.begin(0, 1);
  bench.schedule.launch_step(0);
  bench.schedule.wait_step(0);
  update.after = weights_of(bench.engine);
  return update;
}

}  // namespace

StepBenchResult bench_steps(const Recipe& recipe, const DataShape& shape, const Dataset& dataset, const Run& run,
                            std::int64_t warmup, std::int64_t steps) {
  Bench bench(recipe, shape, dataset, run);
  const std::int64_t total = warmup + steps;
  constexpr std::int64_t kTimelineSteps = 8;
  bench.schedule.begin(0, total + kTimelineSteps);
  StepBenchResult result;
  result.steps = steps;
  for (std::int64_t step = 0; step < warmup; ++step) bench.schedule.launch_step(step);
  if (warmup > 0) bench.schedule.wait_step(warmup - 1);

  // Windows of a few steps: inside one the host runs ahead as in training, and the median drops disturbed ones.
  const std::int64_t window =
      std::max<std::int64_t>(1, std::min<std::int64_t>(steps / 5, StepSchedule::kStepsInFlight / 2));
  std::vector<double> times;
  const DeviceCounters before = run.device->counters();
  for (std::int64_t step = warmup; step < total;) {
    const std::int64_t end = std::min(step + window, total);
    const Clock::time_point start = Clock::now();
    for (std::int64_t s = step; s < end; ++s) bench.schedule.launch_step(s);
    bench.schedule.wait_step(end - 1);
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(end - step));
    step = end;
  }
  const DeviceCounters after = run.device->counters();
  result.step_allocations =
      after.allocations + after.pinned_allocations - before.allocations - before.pinned_allocations;
  result.step_synchronizations = after.host_synchronizations - before.host_synchronizations;
  result.step_ms_median = median(times) * 1e3;
  result.images_per_second = static_cast<double>(recipe.global_batch) / median(times);
  result.arena_bytes = bench.engine.arena_bytes();

  bench.engine.start_timeline();
  for (std::int64_t step = total; step < total + kTimelineSteps; ++step) bench.schedule.launch_step(step);
  bench.schedule.wait_step(total + kTimelineSteps - 1);
  for (const Engine::TimedLaunch& launch : bench.engine.stop_timeline()) {
    result.timeline.push_back({std::string(graph_id_name(launch.id)), std::string(stream_name(launch.stream)),
                               launch.start_us, launch.end_us});
  }
  result.transfer_overlap = overlap(result.timeline);
  return result;
}

double compare_one_step(const Recipe& recipe, const DataShape& shape, const Dataset& dataset, const Run& reference,
                        const Run& run) {
  Recipe exact = recipe;
  exact.precision = "fp32";
  const bool wakes = recipe.zero_gamma && recipe.precision == "fp32";
  const Update expected = one_step(exact, shape, dataset, reference, wakes);
  const Update found = one_step(recipe, shape, dataset, run, wakes);
  double worst = 0;
  for (std::size_t i = 0; i < expected.after.size(); ++i) {
    double difference = 0;
    double size = 0;
    for (std::size_t j = 0; j < expected.after[i].size(); ++j) {
      const double want = static_cast<double>(expected.after[i][j]) - static_cast<double>(expected.before[i][j]);
      const double have = static_cast<double>(found.after[i][j]) - static_cast<double>(found.before[i][j]);
      difference += (want - have) * (want - have);
      size += want * want;
    }
    if (!std::isfinite(difference)) return difference;
    if (size > 0) worst = std::max(worst, std::sqrt(difference / size));
  }
  return worst;
}

}  // namespace renai
