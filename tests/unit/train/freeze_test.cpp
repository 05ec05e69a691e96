// What --freeze-until and --freeze-after freeze in which epoch.
#include "renai/train/freeze.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "renai/base/error.hpp"
#include "renai/train/state.hpp"
#include "renai/train/task.hpp"
#include "train_case.hpp"

namespace renai {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<ParamInfo> resnet_like() {
  std::vector<ParamInfo> params;
  for (const char* name : {"conv1.weight", "bn1.weight", "layer1.0.conv1.weight", "layer1.0.bn1.bias",
                           "layer10.conv.weight", "fc.weight", "fc.bias"}) {
    ParamInfo param;
    param.name = name;
    param.first_layer = params.empty();
    params.push_back(param);
  }
  return params;
}

FreezePlan plan_of(const std::string& until, const std::string& after = "") {
  Recipe recipe;
  recipe.freeze_until = until;
  recipe.freeze_after = after;
  return make_freeze_plan(recipe, resnet_like());
}

TEST(Freeze, NothingIsFrozenWithoutTheOptions) {
  const FreezePlan plan = plan_of("");
  EXPECT_THAT(plan.groups, IsEmpty());
  EXPECT_THAT(plan.group_of_param, IsEmpty());
  EXPECT_FALSE(plan.frozen(0, 0));
  EXPECT_FALSE(plan.first_layer_frozen(0));
  EXPECT_EQ(print(plan), "");
}

TEST(Freeze, NamesStandForLayersAndStages) {
  const FreezePlan plan = plan_of("layer1@3,first@2", "fc@5,first@7");
  EXPECT_THAT(plan.group_of_param, ElementsAre(2, 0, 1, 1, 0, 3, 3)) << "layer10 is no part of layer1";
  for (const auto& [group, epoch, frozen] : {std::tuple{1, 2, true},
                                             {1, 3, false},
                                             {2, 1, true},
                                             {2, 2, false},
                                             {2, 6, false},
                                             {2, 7, true},
                                             {3, 4, false},
                                             {3, 5, true},
                                             {3, 100, true},
                                             {0, 0, false}}) {
    EXPECT_EQ(plan.frozen(group, epoch), frozen) << group << " in epoch " << epoch;
  }
  EXPECT_TRUE(plan.first_layer_frozen(0));
  EXPECT_FALSE(plan.first_layer_frozen(2));
  EXPECT_TRUE(plan.first_layer_frozen(9));
  EXPECT_EQ(print(plan), "layer1 before epoch 3, first before epoch 2, first from epoch 7 on, fc from epoch 5 on");
}

TEST(Freeze, StagesOfAModelFileHaveNumbers) {
  std::vector<ParamInfo> params = resnet_like();
  for (std::size_t i = 0; i < params.size(); ++i) params[i].stage = static_cast<int>(i) / 2;
  Recipe recipe;
  recipe.freeze_until = "stage1@3,stage3@1";
  EXPECT_THAT(make_freeze_plan(recipe, params).group_of_param, ElementsAre(0, 0, 1, 1, 0, 0, 2));
  params[4].name = "stage1.conv.weight";
  EXPECT_THAT(make_freeze_plan(recipe, params).group_of_param, ElementsAre(0, 0, 0, 0, 1, 0, 2)) << "names come first";
  for (const char* unknown : {"stage@1", "stage4@1", "stage-1@1", "stage1x@1"}) {
    recipe.freeze_until = unknown;
    EXPECT_THROW(make_freeze_plan(recipe, params), UserError) << unknown;
  }
}

TEST(Freeze, TheFirstLayersBackwardRunsWhileAnyOfItIsTrained) {
  std::vector<ParamInfo> params = resnet_like();
  params[1].first_layer = true;
  Recipe recipe;
  recipe.freeze_until = "conv1@2";
  EXPECT_FALSE(make_freeze_plan(recipe, params).first_layer_frozen(0));
  recipe.freeze_until = "conv1@2,bn1@1";
  EXPECT_TRUE(make_freeze_plan(recipe, params).first_layer_frozen(0));
  EXPECT_FALSE(make_freeze_plan(recipe, params).first_layer_frozen(1));
}

TEST(Freeze, EveryMistakeIsNamedWithARemedy) {
  struct Case {
    const char *until, *after, *why, *remedy;
  };
  for (const Case& c : {
           Case{"layer2@1", "", "no layer with parameters is called 'layer2'", "did you mean 'layer1'"},
           Case{"conv@1", "", "called 'conv'", "did you mean 'conv1'"},
           Case{"first", "", "'first' is not NAME@EPOCH", "first@2"},
           Case{"first@-1", "", "is not NAME@EPOCH", "first@2"},
           Case{"@1", "", "is not NAME@EPOCH", "first@2"},
           Case{"first@1,", "", "'' is not NAME@EPOCH", "first@2"},
           Case{"", "first@99999999999999999999", "is not NAME@EPOCH", "first@2"},
           Case{"first@1,first@2", "", "twice", "one epoch"},
           Case{"first@1", "conv1@3", "'conv1' and 'first' both stand for parameter 'conv1.weight'", "once"},
           Case{"layer1@1,layer1.0.bn1@1", "", "both stand for parameter 'layer1.0.bn1.bias'", "once"},
           Case{"first@9,bn1@9,layer1@9", "layer10@3,fc@2", "in epoch 3 every parameter", "at least one layer"},
       }) {
    try {
      plan_of(c.until, c.after);
      FAIL() << c.until << " " << c.after;
    } catch (const UserError& error) {
      EXPECT_NE(error.why().find(c.why), std::string::npos) << error.what();
      EXPECT_NE(error.remedy().find(c.remedy), std::string::npos) << error.what();
    }
  }
  EXPECT_NO_THROW(plan_of("first@9,bn1@9,layer1@9", "layer10@9,fc@9")) << "never all at once";
}

/// A frozen first layer's backward pass is not launched, its parameters' update neither.
TEST(Freeze, LeavesGraphsOut) {
  const testing::TrainSet set(16, 8, 3);
  testing::OneRank rank;
  Recipe recipe = testing::small_recipe("cnn-small", 8, 2);
  recipe.freeze_until = "first@1";
  const Blueprint blueprint = make_blueprint(recipe, set.shape(), *rank.run().backend, *rank.run().communicator);
  Engine engine(blueprint, rank.run());
  initialize_state(engine, 1);
  const Sampler sampler(SamplerConfig{set.dataset().size(), recipe.global_batch, recipe.logical_shards, 1, true});
  std::optional<StepSchedule> schedule;
  Loader loader(LoaderConfig{blueprint.slot, engine.staging(), 1, Augmentation::parse("none"), 1});
  schedule.emplace(engine, recipe, TaskData{&set.dataset(), nullptr}, &sampler, nullptr, loader);
  schedule->begin(0, 4);
  std::vector<std::vector<int>> counts;  // By step: backward of the first layer, clearing, optimizer.
  for (std::int64_t step = 0; step < 4; ++step) {
    engine.start_timeline();
    schedule->launch_step(step);
    counts.push_back({0, 0, 0});
    for (const Engine::TimedLaunch& launch : engine.stop_timeline()) {
      const bool backward = launch.id == GraphId::FIRST_LAYER_BWD_A || launch.id == GraphId::FIRST_LAYER_BWD_B;
      if (backward) ++counts.back()[0];
      if (launch.id == GraphId::ZERO_GRAD) ++counts.back()[1];
      if (launch.id == GraphId::OPTIMIZER) ++counts.back()[2];
    }
  }
  EXPECT_THAT(counts,
              ElementsAre(ElementsAre(0, 2, 1), ElementsAre(0, 2, 1), ElementsAre(2, 1, 2), ElementsAre(2, 1, 2)));
}

}  // namespace
}  // namespace renai
