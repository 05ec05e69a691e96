// Learning-rate schedules at exact points.
#include "renai/train/lr_schedule.hpp"

#include <gtest/gtest.h>

namespace renai {
namespace {

constexpr std::int64_t kBatches = 10, kTotal = 100;

Recipe schedule(const std::string& name, double warmup_epochs) {
  Recipe recipe;
  recipe.lr_schedule = name;
  recipe.lr = 0.5;
  recipe.warmup_epochs = warmup_epochs;
  return recipe;
}

float rate(const Recipe& recipe, std::int64_t step) { return learning_rate(recipe, step, kTotal, kBatches); }

TEST(LearningRate, ConstantStaysAtThePeak) {
  const Recipe recipe = schedule("constant", 0);
  for (const std::int64_t step : {0, 1, 50, 99}) EXPECT_EQ(rate(recipe, step), 0.5f) << step;
}

TEST(LearningRate, WarmUpRisesToThePeak) {
  for (const char* name : {"constant", "step", "cosine"}) {
    const Recipe recipe = schedule(name, 0.4);
    EXPECT_EQ(rate(recipe, 0), 0.125f) << name;
    EXPECT_EQ(rate(recipe, 1), 0.25f) << name;
    EXPECT_EQ(rate(recipe, 2), 0.375f) << name;
    EXPECT_EQ(rate(recipe, 3), 0.5f) << name;
    EXPECT_EQ(rate(recipe, 4), 0.5f) << name;
  }
}

TEST(LearningRate, StepDecaysAtEpochBorders) {
  Recipe recipe = schedule("step", 0);
  recipe.lr_step_epochs = 3;
  recipe.lr_gamma = 0.5;
  EXPECT_EQ(rate(recipe, 0), 0.5f);
  EXPECT_EQ(rate(recipe, 29), 0.5f);
  EXPECT_EQ(rate(recipe, 30), 0.25f);
  EXPECT_EQ(rate(recipe, 59), 0.25f);
  EXPECT_EQ(rate(recipe, 60), 0.125f);
  EXPECT_EQ(rate(recipe, 99), 0.0625f);
}

TEST(LearningRate, StepCountsEpochsFromTheStartNotFromTheEndOfWarmUp) {
  Recipe recipe = schedule("step", 1);
  recipe.lr_step_epochs = 2;
  recipe.lr_gamma = 0.5;
  EXPECT_EQ(rate(recipe, 10), 0.5f);
  EXPECT_EQ(rate(recipe, 19), 0.5f);
  EXPECT_EQ(rate(recipe, 20), 0.25f);
}

TEST(LearningRate, CosineFallsFromThePeakOverTheStepsAfterWarmUp) {
  const Recipe whole = schedule("cosine", 0);
  EXPECT_EQ(rate(whole, 0), 0.5f);
  EXPECT_FLOAT_EQ(rate(whole, 50), 0.25f);
  EXPECT_FLOAT_EQ(rate(whole, 25), 0.42677670f);  // 0.25 (1 + cos(pi / 4))
  EXPECT_FLOAT_EQ(rate(whole, 99), 0.00012335995f);
  EXPECT_NEAR(rate(whole, 100), 0.0f, 1e-9f);

  const Recipe warm = schedule("cosine", 2);
  EXPECT_EQ(rate(warm, 19), 0.5f);
  EXPECT_EQ(rate(warm, 20), 0.5f);
  EXPECT_FLOAT_EQ(rate(warm, 60), 0.25f);
  EXPECT_FLOAT_EQ(rate(warm, 80), 0.07322330f);  // 0.25 (1 + cos(3 pi / 4))
}

TEST(LearningRate, StaysFiniteWhereWarmUpIsLongerThanTheRun) {
  const Recipe recipe = schedule("cosine", 20);
  EXPECT_EQ(rate(recipe, 0), static_cast<float>(0.5 / 200));
  EXPECT_EQ(rate(recipe, 99), 0.25f);
  EXPECT_EQ(learning_rate(schedule("cosine", 0), 0, 0, kBatches), 0.5f);
}

}  // namespace
}  // namespace renai
