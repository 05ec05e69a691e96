// Learning-rate schedules at exact points.
#include "renai/train/lr_schedule.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

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
  for (const char* name : {"constant", "step", "exponential", "polynomial", "cosine", "cosine-restarts", "wsd"}) {
    const Recipe recipe = schedule(name, 0.4);
    EXPECT_EQ(rate(recipe, 0), 0.125f) << name;
    EXPECT_EQ(rate(recipe, 1), 0.25f) << name;
    EXPECT_EQ(rate(recipe, 2), 0.375f) << name;
    EXPECT_EQ(rate(recipe, 3), 0.5f) << name;
    EXPECT_EQ(rate(recipe, 4), 0.5f) << name;  // The first step after warm-up is at the peak.
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

/// A rate is the definition in fp64, rounded to fp32.
void expect_rate(const Recipe& recipe, std::int64_t step, double expected) {
  EXPECT_NEAR(rate(recipe, step), expected, 1e-7 * expected + 1e-12) << recipe.lr_schedule << " at step " << step;
}

TEST(LearningRate, CosineWithoutAFloorKeepsItsBits) {
  for (const double warmup : {0.0, 0.7}) {
    const Recipe recipe = schedule("cosine", warmup);
    for (std::int64_t step = warmup_steps(recipe, kBatches); step < kTotal; ++step) {
      const auto first = static_cast<double>(warmup_steps(recipe, kBatches));
      const double t = (static_cast<double>(step) - first) / (100.0 - first);
      EXPECT_EQ(rate(recipe, step), static_cast<float>(0.5 * 0.5 * (1.0 + std::cos(std::numbers::pi * t)))) << step;
    }
  }
}

TEST(LearningRate, MultistepDecaysAtEachMilestone) {
  Recipe recipe = schedule("multistep", 1);
  recipe.lr_milestones = "3,4.5,9";
  recipe.lr_gamma = 0.2;
  for (std::int64_t step = 10; step < kTotal; ++step) {
    const int reached = (step >= 30 ? 1 : 0) + (step >= 45 ? 1 : 0) + (step >= 90 ? 1 : 0);
    expect_rate(recipe, step, 0.5 * std::pow(0.2, reached));
  }
}

TEST(LearningRate, ExponentialFallsByGammaAnEpochAfterWarmUp) {
  Recipe recipe = schedule("exponential", 2);
  recipe.lr_gamma = 0.8;
  for (std::int64_t step = 20; step < kTotal; ++step) {
    expect_rate(recipe, step, 0.5 * std::pow(0.8, (static_cast<double>(step) - 20) / 10));
  }
}

TEST(LearningRate, PolynomialAndCosineEndAtTheFloor) {
  Recipe recipe = schedule("polynomial", 2);
  recipe.lr_power = 1.5;
  recipe.lr_min = 0.1;
  for (std::int64_t step = 20; step < kTotal; ++step) {
    expect_rate(recipe, step, 0.1 + 0.4 * std::pow(1 - (static_cast<double>(step) - 20) / 80, 1.5));
  }
  expect_rate(recipe, 100, 0.1);
  expect_rate(recipe, 150, 0.1);
  recipe.lr_schedule = "cosine";
  for (std::int64_t step = 20; step < kTotal; ++step) {
    const double t = (static_cast<double>(step) - 20) / 80;
    expect_rate(recipe, step, 0.1 + 0.4 * (1 + std::cos(std::numbers::pi * t)) / 2);
  }
  expect_rate(recipe, 150, 0.1);
}

TEST(LearningRate, CosineRestartsInCyclesThatGrow) {
  Recipe recipe = schedule("cosine-restarts", 1);
  recipe.lr_cycle_epochs = 1.5;
  recipe.lr_cycle_mult = 2;
  recipe.lr_min = 0.05;
  const auto expected = [](std::int64_t first, std::int64_t length, std::int64_t step) {
    const double t = static_cast<double>(step - first) / static_cast<double>(length);
    return 0.05 + 0.45 * (1 + std::cos(std::numbers::pi * t)) / 2;
  };
  for (std::int64_t step = 10; step < 25; ++step) expect_rate(recipe, step, expected(10, 15, step));
  for (std::int64_t step = 25; step < 55; ++step) expect_rate(recipe, step, expected(25, 30, step));
  for (std::int64_t step = 55; step < kTotal; ++step) expect_rate(recipe, step, expected(55, 60, step));
  recipe.lr_cycle_mult = 1;
  for (std::int64_t step = 10; step < kTotal; ++step) {
    expect_rate(recipe, step, expected(10 + (step - 10) / 15 * 15, 15, step));
  }
  recipe.lr_cycle_epochs = 1e-6;  // A cycle is at least one step.
  EXPECT_EQ(rate(recipe, 50), 0.5f);
}

TEST(LearningRate, StableDecayIsFlatThenLinear) {
  Recipe recipe = schedule("wsd", 1);
  recipe.lr_decay_epochs = 2.5;
  recipe.lr_min = 0.02;
  for (std::int64_t step = 10; step < kTotal; ++step) {
    expect_rate(recipe, step, step < 75 ? 0.5 : 0.02 + 0.48 * (1 - (static_cast<double>(step) - 75) / 25));
  }
  expect_rate(recipe, 120, 0.02);
  recipe.lr_decay_epochs = 50;  // At most the steps after warm-up.
  expect_rate(recipe, 10, 0.5);
  expect_rate(recipe, 55, 0.02 + 0.48 * 0.5);
  recipe.lr_decay_epochs = 0;
  expect_rate(recipe, 99, 0.5);
}

TEST(LearningRate, OneCycleRisesToThePeakAndFallsFarBelowItsStart) {
  Recipe recipe = schedule("onecycle", 2);
  recipe.lr_pct_start = 0.4;
  recipe.lr_div_factor = 5;
  recipe.lr_final_div_factor = 50;
  const auto wave = [](double from, double to, double t) {
    return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * t));
  };
  for (std::int64_t step = 0; step < 20; ++step) expect_rate(recipe, step, 0.1 * (static_cast<double>(step) + 1) / 20);
  for (std::int64_t step = 20; step <= 51; ++step) {
    expect_rate(recipe, step, wave(0.1, 0.5, (static_cast<double>(step) - 20) / 31));
  }
  for (std::int64_t step = 52; step < kTotal; ++step) {
    expect_rate(recipe, step, wave(0.5, 0.002, (static_cast<double>(step) - 51) / 48));
  }
  expect_rate(recipe, 130, 0.002);
  for (const double share : {0.0, 0.0125, 1.0}) {  // No rise, a rise of one step, no fall.
    recipe.lr_pct_start = share;
    for (std::int64_t step = 0; step < 130; ++step) EXPECT_TRUE(std::isfinite(rate(recipe, step))) << share;
  }
  expect_rate(recipe, 99, 0.5);
}

TEST(LearningRate, PiecewiseIsLinearBetweenItsPoints) {
  Recipe recipe = schedule("piecewise", 0);
  recipe.lr_points = "0.2@1,1@3,0.5@3.5,0@9";
  for (std::int64_t step = 0; step < kTotal; ++step) {
    const double e = static_cast<double>(step) / 10;
    const double factor = e < 1     ? 0.2
                          : e < 3   ? 0.2 + 0.8 * (e - 1) / 2
                          : e < 3.5 ? 1 - 0.5 * (e - 3) / 0.5
                          : e < 9   ? 0.5 - 0.5 * (e - 3.5) / 5.5
                                    : 0;
    expect_rate(recipe, step, 0.5 * factor);
  }
  recipe.warmup_epochs = 2;  // Warm-up leads to where the line is when it ends.
  for (std::int64_t step = 0; step < 20; ++step) expect_rate(recipe, step, 0.3 * (static_cast<double>(step) + 1) / 20);
  expect_rate(recipe, 20, 0.3);
  recipe.lr_points = "0.5@4";
  expect_rate(recipe, 99, 0.25);
}

TEST(LearningRate, StaysFiniteWhereWarmUpIsLongerThanTheRun) {
  const Recipe recipe = schedule("cosine", 20);
  EXPECT_EQ(rate(recipe, 0), static_cast<float>(0.5 / 200));
  EXPECT_EQ(rate(recipe, 99), 0.25f);
  EXPECT_EQ(learning_rate(schedule("cosine", 0), 0, 0, kBatches), 0.5f);
  for (const std::string& name : lr_schedule_names()) {
    Recipe other = schedule(name, 20);
    other.lr_milestones = "3";
    other.lr_points = "0@0,1@5";
    for (const std::int64_t step : {0, 99, 199, 200, 1000}) {
      EXPECT_TRUE(std::isfinite(rate(other, step))) << name;
      EXPECT_LE(rate(other, step), 0.5f) << name;
    }
  }
}

TEST(LearningRate, ForgettingTheScheduleLeavesNothingThatOnlySchedulesRead) {
  Recipe recipe;
  recipe.lr = 0.25;
  Recipe::visit(recipe, [](const char* key, auto& value, const char*, bool) {
    if (!std::string(key).starts_with("lr-")) return;
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, std::string>) {
      value += "other";
    } else {
      value += 1;
    }
  });
  Recipe expected;
  expected.lr = 0.25;
  EXPECT_NE(to_toml(recipe), to_toml(expected));
  forget_schedule(recipe);
  EXPECT_EQ(to_toml(recipe), to_toml(expected));
}

}  // namespace
}  // namespace renai
