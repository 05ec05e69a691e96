#include "renai/train/lr_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace renai {

std::int64_t total_steps(const Recipe& recipe, std::int64_t batches) {
  if (recipe.steps > 0) return recipe.steps;
  return static_cast<std::int64_t>(std::ceil(recipe.epochs * static_cast<double>(batches)));
}

float learning_rate(const Recipe& recipe, std::int64_t step, std::int64_t total_steps, std::int64_t batches) {
  const auto warmup = static_cast<std::int64_t>(std::llround(recipe.warmup_epochs * static_cast<double>(batches)));
  if (step < warmup) return static_cast<float>(recipe.lr * static_cast<double>(step + 1) / static_cast<double>(warmup));
  if (recipe.lr_schedule == "step") {
    const double epoch = static_cast<double>(step) / static_cast<double>(batches);
    return static_cast<float>(recipe.lr * std::pow(recipe.lr_gamma, std::floor(epoch / recipe.lr_step_epochs)));
  }
  if (recipe.lr_schedule == "cosine") {
    const auto span = static_cast<double>(std::max<std::int64_t>(total_steps - warmup, 1));
    const double t = std::clamp(static_cast<double>(step - warmup) / span, 0.0, 1.0);
    return static_cast<float>(recipe.lr * 0.5 * (1.0 + std::cos(std::numbers::pi * t)));
  }
  return static_cast<float>(recipe.lr);
}

}  // namespace renai
