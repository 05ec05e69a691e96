// What a training step finds in its slot: partners, shares and boxes of its own step, in the resolution of its phase.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "renai/train/state.hpp"
#include "renai/train/task.hpp"
#include "train_case.hpp"

namespace renai {
namespace {

using testing::OneRank;
using testing::small_recipe;
using testing::TrainSet;

constexpr const char* kModel = R"(name = "pooled"
[[layers]]
name = "conv"
type = "conv2d"
out = 2
kernel = 3
[[layers]]
type = "global_avg_pool"
[[layers]]
type = "flatten"
[[layers]]
name = "fc"
type = "linear"
out = "classes"
)";

TEST(MixingStep, BoxesLieInTheResolutionOfTheStep) {
  const TrainSet set(24, 12, 1);  // Three steps of eight samples an epoch, in two shards.
  OneRank rank;
  Recipe recipe = small_recipe("pooled", 8, 2);
  recipe.resolution = "8@0,20@1,12@2";
  recipe.cutmix = 1.0;
  recipe.mixup = 0.5;
  const Blueprint blueprint = make_blueprint(recipe, set.shape(), *rank.run().backend, *rank.run().communicator,
                                             {.model = parse_model(kModel, "pooled")});
  Engine engine(blueprint, rank.run());
  initialize_state(engine, 1);
  const Sampler sampler(SamplerConfig{24, 8, 2, 1, true});
  const Mixing mixing{recipe.mixup, recipe.cutmix};
  std::optional<StepSchedule> schedule;
  Loader loader(LoaderConfig{blueprint.slot, engine.staging(), 1, {}, 1, mixing});
  schedule.emplace(engine, recipe, TaskData{&set.dataset(), nullptr}, &sampler, nullptr, loader);
  constexpr std::int64_t kSides[] = {8, 20, 12};
  schedule->begin(0, 9);
  int boxes = 0;
  for (std::int64_t step = 0; step < 9; ++step) {
    schedule->launch_step(step);
    schedule->wait_step(step);
    for (const int shard : {0, 1}) {  // They alternate between the slots.
      const ComputationGraph::Parts& parts = blueprint.graph.parts();
      const DTensor& slot = blueprint.plans.front().tensor(shard == 0 ? parts.slot_a : parts.slot_b);
      const ShardMix wanted = draw_mix(mixing, 4, kSides[step / 3], kSides[step / 3], 1, step, shard);
      boxes += wanted.box[2] > 0 ? 1 : 0;
      for (std::int64_t row = 0; row < 4; ++row) {
        SampleParams params;
        std::memcpy(&params, engine.arena() + slot.offset_bytes + blueprint.slot.params_offset + row * sizeof params,
                    sizeof params);
        EXPECT_EQ(params.mix_box, wanted.box) << "step " << step << " shard " << shard;
        EXPECT_EQ(params.mix_lambda, wanted.lambda);
        EXPECT_EQ(params.mix_partner, wanted.shift == 0 ? -1 : (row + wanted.shift) % 4);
      }
    }
  }
  EXPECT_GT(boxes, 3);
}

}  // namespace
}  // namespace renai
