// Half precision as `train` sees it: the copy of the weights, the loss scale from step to step and over a restart. The
// reference backend computes in fp32 whatever the recipe says, so that scaling itself must not change a bit.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "renai/graph/region_name.hpp"
#include "renai/train/state.hpp"
#include "renai/train/task.hpp"
#include "train_case.hpp"

namespace renai {
namespace {

namespace names = region_name;
using testing::OneRank;
using testing::small_recipe;
using testing::TrainSet;

struct HalfRun {
  TrainSet set{16, 8, 3};
  OneRank rank;
  Recipe recipe;
  Blueprint blueprint;
  Engine engine;

  explicit HalfRun(const std::string& precision)
      : recipe(recipe_of(precision)),
        blueprint(make_blueprint(recipe, set.shape(), *rank.run().backend, *rank.run().communicator)),
        engine(blueprint, rank.run()) {
    initialize_state(engine, 3);
  }
  static Recipe recipe_of(const std::string& precision) {
    Recipe recipe = small_recipe("cnn-small", 8, 2);
    recipe.precision = precision;
    return recipe;
  }
  void train(std::int64_t steps) {
    const Sampler sampler(SamplerConfig{set.dataset().size(), recipe.global_batch, recipe.logical_shards, 1, true});
    std::optional<StepSchedule> schedule;
    Loader loader(LoaderConfig{blueprint.slot, engine.staging(), 1, Augmentation::parse("none"), 1});
    schedule.emplace(engine, recipe, TaskData{&set.dataset(), nullptr}, &sampler, nullptr, loader);
    schedule->begin(0, steps);
    for (std::int64_t step = 0; step < steps; ++step) schedule->launch_step(step);
    schedule->wait_step(steps - 1);
  }
  std::vector<float> region(std::string_view name) {
    const Region& place = blueprint.plans.front().region(name);
    std::vector<float> values(static_cast<std::size_t>(place.size_bytes / 4));
    engine.download(place.offset_bytes, std::as_writable_bytes(std::span(values)));
    return values;
  }
  void set_region(std::string_view name, std::span<const float> values) {
    engine.upload(blueprint.plans.front().region(name).offset_bytes, std::as_bytes(values));
  }
  float scalar(int index) { return region(names::kScalars)[static_cast<std::size_t>(index)]; }

  /// Largest deviation of the half copy (bf16) from the weights, relative to their size.
  double copy_deviation() {
    const std::vector<float> weights = region(names::kWeights), packed = region(names::kWeightsHalf);
    double worst = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      std::uint16_t half = 0;
      std::memcpy(&half, reinterpret_cast<const std::byte*>(packed.data()) + 2 * i, sizeof half);
      const double size = std::abs(double{weights[i]}) + 1e-30;
      worst = std::max(worst,
                       std::abs(double{std::bit_cast<float>(std::uint32_t{half} << 16)} - double{weights[i]}) / size);
    }
    return worst;
  }
};

TEST(LossScale, StartsByPrecision) {
  for (const auto& [precision, scale] :
       {std::pair{"fp32", 1.0f}, {"tf32", 1.0f}, {"bf16", 1.0f}, {"fp16", names::kInitialLossScale}}) {
    HalfRun run(precision);
    EXPECT_EQ(run.scalar(names::kScalarLossScale), scale) << precision;
    const bool half = std::string(precision) == "bf16" || std::string(precision) == "fp16";
    EXPECT_EQ(run.blueprint.plans.front().has_region(names::kWeightsHalf), half) << precision;
    EXPECT_EQ(run.blueprint.graph.empty(GraphId::CAST_MAIN), !half) << precision;
  }
}

/// A scale that is a power of two comes out of the gradient without a trace.
TEST(LossScale, DoesNotChangeTheTraining) {
  HalfRun plain("fp32"), scaled("fp16");
  plain.train(4);
  scaled.train(4);
  EXPECT_EQ(scaled.region(names::kWeights), plain.region(names::kWeights));
  EXPECT_EQ(scaled.region(names::kMomentum), plain.region(names::kMomentum));
  EXPECT_EQ(scaled.scalar(names::kScalarGradNorm), plain.scalar(names::kScalarGradNorm));
  EXPECT_EQ(scaled.scalar(names::kScalarGoodSteps), 4.0f);
  EXPECT_EQ(scaled.scalar(names::kScalarSkippedSteps), 0.0f);
}

TEST(HalfWeights, FollowInitialisationStepsAndRestore) {
  HalfRun run("bf16");
  EXPECT_LE(run.copy_deviation(), 0x1p-8) << "after initialisation";
  const std::vector<float> start = run.region(names::kWeights);
  const StateDict initial = gather_state(run.engine, {});
  run.train(3);
  EXPECT_NE(run.region(names::kWeights), start);
  EXPECT_LE(run.copy_deviation(), 0x1p-8) << "after steps";
  restore_state(run.engine, initial, "file", true);
  EXPECT_EQ(run.region(names::kWeights), start);
  EXPECT_LE(run.copy_deviation(), 0x1p-8) << "after restoring";
}

/// An overflow in the gradient: the step is skipped, the scale halves, and a checkpoint carries it on.
TEST(LossScale, AnOverflowShrinksItAndARestartKeepsIt) {
  HalfRun run("fp16");
  run.train(2);
  const std::vector<float> weights = run.region(names::kWeights), momentum = run.region(names::kMomentum);
  std::vector<float> grad = run.region(names::kGrad);
  grad[0] = std::numeric_limits<float>::infinity();
  run.set_region(names::kGrad, grad);
  run.engine.launch(0, GraphId::NAN_CHECK_AND_GRAD_SCALING);
  run.engine.launch(0, GraphId::OPTIMIZER);
  run.engine.launch(0, GraphId::CAST_MAIN);
  EXPECT_EQ(run.scalar(names::kScalarSkip), 1.0f);
  EXPECT_EQ(run.scalar(names::kScalarSkippedSteps), 1.0f);
  EXPECT_EQ(run.scalar(names::kScalarLossScale), names::kInitialLossScale / 2);
  EXPECT_EQ(run.scalar(names::kScalarGoodSteps), 0.0f);
  EXPECT_EQ(run.region(names::kWeights), weights);
  EXPECT_EQ(run.region(names::kMomentum), momentum);
  run.train(3);
  EXPECT_EQ(run.scalar(names::kScalarBadSteps), 0.0f);
  EXPECT_EQ(run.scalar(names::kScalarGoodSteps), 3.0f);

  const StateDict state = gather_state(run.engine, {.step = 5, .skipped_steps = 1});
  HalfRun continued("fp16");
  restore_state(continued.engine, state, "file", false);
  EXPECT_EQ(continued.scalar(names::kScalarLossScale), names::kInitialLossScale / 2);
  EXPECT_EQ(continued.scalar(names::kScalarGoodSteps), 3.0f);
  EXPECT_EQ(continued.scalar(names::kScalarSkippedSteps), 1.0f);
  HalfRun anew("fp16");
  restore_state(anew.engine, state, "file", true);
  EXPECT_EQ(anew.scalar(names::kScalarLossScale), names::kInitialLossScale) << "weights alone start anew";
}

TEST(LossScale, TooManyOverflowsInARowEndTheRunWithOneError) {
  HalfRun run("fp16");
  run.recipe.max_bad_steps = 3;
  run.recipe.steps = 10;
  run.recipe.verify_every = 0;
  std::vector<float> weights = run.region(names::kWeights);
  weights[0] = std::numeric_limits<float>::infinity();
  run.set_region(names::kWeights, weights);
  const testing::Folder folder;
  RunLog log(folder / "run", 0, false);
  const Log console;
  DeepLearningTask::Options options;
  options.recipe = &run.recipe;
  options.data.train = &run.set.dataset();
  options.log = &log;
  options.console = &console;
  DeepLearningTask task(run.engine, options);
  const std::string text = testing::message_of<UserError>([&] { task.train({}); });
  for (const char* word : {"diverged at step 2", "3 steps in a row", "the loss scale fell to 8192"}) {
    EXPECT_NE(text.find(word), std::string::npos) << text;
  }
  const std::string summary = testing::slurp(folder / "run" / "summary.json");
  for (const char* word : {"\"status\": \"failed\"", "\"precision\": \"fp16\"", "\"skipped_steps\": 3"}) {
    EXPECT_NE(summary.find(word), std::string::npos) << summary;
  }
}

}  // namespace
}  // namespace renai
