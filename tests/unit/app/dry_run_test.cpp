// The schedule as `renai train --dry-run` tells it.
#include "../../../src/app/dry_run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace renai {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Recipe recipe_of(const std::string& schedule, double warmup_epochs) {
  Recipe recipe;
  recipe.lr_schedule = schedule;
  recipe.lr = 0.4;
  recipe.warmup_epochs = warmup_epochs;
  return recipe;
}

std::vector<std::string> plot(const Recipe& recipe, std::int64_t total) {
  std::istringstream text(plot_learning_rate(recipe, total, 8));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line.size() > 14 ? line.substr(14) : "");
  return lines;
}

TEST(DryRun, PlotsEachStepOfAShortRun) {
  Recipe recipe = recipe_of("step", 0);
  recipe.lr_step_epochs = 4;
  recipe.lr_gamma = 0.5;
  const std::vector<std::string> lines = plot(recipe, 64);
  ASSERT_EQ(lines.size(), 12u);
  EXPECT_EQ(lines[0], std::string(32, '*'));
  EXPECT_EQ(lines[5], std::string(32, ' ') + std::string(32, '*'));
  EXPECT_EQ(lines[10], std::string(64, '-'));
  EXPECT_EQ(lines[11], "0" + std::string(61, ' ') + "63");
  for (const int row : {1, 2, 3, 4, 6, 7, 8, 9}) EXPECT_EQ(lines[static_cast<std::size_t>(row)], "") << row;
  EXPECT_THAT(plot_learning_rate(recipe, 64, 8), HasSubstr("         0.2 |"));
}

TEST(DryRun, AColumnSpansTheRatesOfItsSteps) {
  Recipe recipe = recipe_of("cosine-restarts", 0);
  recipe.lr_cycle_epochs = 1;  // Eight steps; a column has a hundred.
  const std::vector<std::string> lines = plot(recipe, 6400);
  for (std::size_t row = 0; row <= 10; ++row) EXPECT_EQ(lines[row], std::string(64, '*')) << row;
}

TEST(DryRun, PlotsRunsOfAnyLengthAndRatesOfZero) {
  for (const std::int64_t total : {std::int64_t{1}, std::int64_t{3}, std::int64_t{1'000'000'000'000}}) {
    EXPECT_EQ(plot(recipe_of("cosine", 0), total).size(), 12u) << total;
  }
  Recipe recipe = recipe_of("cosine", 0);
  recipe.lr = 0;
  EXPECT_EQ(plot(recipe, 10)[10], std::string(64, '*'));
}

TEST(DryRun, TellsEpochsStepsWarmUpAndRates) {
  Recipe recipe = recipe_of("wsd", 0.5);
  recipe.epochs = 3;
  recipe.global_batch = 16;
  const std::vector<ResolutionPhase> phases{{24, 0}, {32, 2}};
  const BatchSplit split = split_batches(125, 16, 8, true);
  const std::string text = print_schedule(recipe, split, phases);
  EXPECT_THAT(text, HasSubstr("epoch          8 steps: 7 of 16 samples and one of 8, 5 samples left out\n"));
  EXPECT_THAT(text, HasSubstr("steps          24 (3 epochs)\n"));
  EXPECT_THAT(text, HasSubstr("warm-up        4 steps\n"));
  EXPECT_THAT(text, HasSubstr("resolution     24 from epoch 0, 32 from epoch 2\n"));
  EXPECT_THAT(text, HasSubstr("learning rate  wsd: first 0.1, highest 0.4, last 0.05\n"));
  recipe.epochs = 0;
  EXPECT_THAT(print_schedule(recipe, split, phases), Not(HasSubstr("learning rate")));
}

}  // namespace
}  // namespace renai
