#pragma once
// Learning-rate schedules: pure functions of the step.

#include <cstdint>

#include "renai/train/recipe.hpp"

namespace renai {

/// Optimizer steps of the whole run: --steps, or --epochs rounded up to whole steps.
std::int64_t total_steps(const Recipe& recipe, std::int64_t batches);

/// Learning rate of optimizer step `step` (from 0) of `total_steps`, with `batches` steps an epoch.
/// Warm-up rises linearly: (step + 1) / warm-up steps of the peak. Then constant, lr * gamma^floor(epoch /
/// lr_step_epochs), or lr * (1 + cos(pi * t)) / 2 with t running from 0 to 1 over the steps after warm-up.
float learning_rate(const Recipe& recipe, std::int64_t step, std::int64_t total_steps, std::int64_t batches);

}  // namespace renai
