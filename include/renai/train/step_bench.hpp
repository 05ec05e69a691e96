#pragma once
// Step benchmark: the training step as a run executes it, proved against another backend first.

#include <cstdint>
#include <string>
#include <vector>

#include "renai/data/dataset.hpp"
#include "renai/train/engine.hpp"

namespace renai {

/// When one graph ran. Units: microseconds since the first span.
struct TimelineSpan {
  std::string graph, stream;
  double start_us = 0, end_us = 0;
};

/// What was measured of the steps after the warm-up.
struct StepBenchResult {
  std::int64_t steps = 0;
  double step_ms_median = 0, images_per_second = 0;  ///< Over all ranks; median of windows.
  double transfer_overlap = 0;                       ///< Share of the copies' time hidden behind earlier work.
  std::int64_t step_allocations = 0, step_synchronizations = 0, arena_bytes = 0;
  std::vector<TimelineSpan> timeline;  ///< A few steady steps.
};

/// Runs `warmup` + `steps` training steps.
StepBenchResult bench_steps(const Recipe& recipe, const DataShape& shape, const Dataset& dataset, const Run& run,
                            std::int64_t warmup, std::int64_t steps);

/// Trains one step from the same state on both, on the reference in fp32, and returns the largest relative L2 deviation
/// over the updates of all parameters. With `zero_gamma` in fp32 the scales that start at 0 start at 0.1, so that the
/// blocks' own gradients are compared too; in less than fp32 those are 0 and say nothing.
double compare_one_step(const Recipe& recipe, const DataShape& shape, const Dataset& dataset, const Run& reference,
                        const Run& run);

}  // namespace renai
