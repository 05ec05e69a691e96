// State: initial values, and the way from the arena to a StateDict and back.
#include "renai/train/state.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "model_builder.hpp"
#include "renai/graph/region_name.hpp"
#include "renai/graph/segments.hpp"
#include "train_case.hpp"

namespace renai {
namespace {

using testing::message_of;
using testing::OneRank;
using testing::small_recipe;

/// An engine for a model on 16 x 16 x 2 images: what lenet5 flattens is 2 x 2 x 16.
struct Trained {
  OneRank rank;
  Blueprint blueprint;
  Engine engine;

  explicit Trained(const std::string& model, std::uint64_t seed = 1) : Trained(load_model(model), seed) {}
  explicit Trained(const ModelSpec& model, std::uint64_t seed = 1, const std::string& optimizer = "sgd")
      : Trained(recipe_of(model.name, optimizer), model, seed) {}
  Trained(const Recipe& recipe, const ModelSpec& model, std::uint64_t seed = 1)
      : blueprint(make_blueprint(recipe, shape(), *rank.run().backend, *rank.run().communicator, {.model = model})),
        engine(blueprint, rank.run()) {
    initialize_state(engine, seed);
  }
  static Recipe recipe_of(const std::string& model, const std::string& optimizer) {
    Recipe recipe = small_recipe(model, 4, 2);
    recipe.optimizer = optimizer;
    return recipe;
  }
  static DataShape shape() {
    DataShape data;
    data.train_samples = 8;
    data.h = data.w = 16;
    data.c = 2;
    data.classes = 3;
    data.normalization.mean.fill(100.0f);
    data.normalization.std.fill(50.0f);
    return data;
  }
  const ParamInfo& param(const std::string& name) const {
    for (const ParamInfo& one : blueprint.graph.params()) {
      if (one.name == name) return one;
    }
    throw std::runtime_error("no parameter " + name);
  }
  const DTensor& place(TensorId id) const { return blueprint.plans.front().tensor(id); }
  std::vector<float> stored(const DTensor& tensor) {
    std::vector<float> values(static_cast<std::size_t>(tensor.size_bytes / 4));
    engine.download(tensor.offset_bytes, std::as_writable_bytes(std::span(values)));
    return values;
  }
};

std::vector<float> floats(const StateTensor* tensor) {
  if (tensor == nullptr) throw std::runtime_error("the tensor is missing");
  std::vector<float> values(tensor->data.size() / 4);
  std::memcpy(values.data(), tensor->data.data(), tensor->data.size());
  return values;
}

/// Other values for every number, distinct within a tensor.
StateDict counted(StateDict state) {
  float next = 1;
  for (auto& [group, tensors] : state.groups) {
    if (group == "progress") continue;
    for (StateTensor& tensor : tensors) {
      for (std::size_t i = 0; i < tensor.data.size() / 4; ++i, next += 1) {
        const float value = next / 1024;
        std::memcpy(tensor.data.data() + 4 * i, &value, 4);
      }
    }
  }
  return state;
}

bool equal(const StateDict& a, const StateDict& b) { return a.digest() == b.digest(); }

TEST(State, RestoreGivesBackWhatGatherTook) {
  for (const char* model : {"lenet5", "cnn-small"}) {
    Trained one(model);
    const StateDict initial = gather_state(one.engine, {});
    const StateDict other = counted(gather_state(one.engine, {.step = 7, .best_top1 = 0.5, .skipped_steps = 2}));
    ASSERT_FALSE(equal(initial, other));
    const Progress progress = restore_state(one.engine, other, "file", false);
    EXPECT_EQ(progress.step, 7);
    EXPECT_EQ(progress.best_top1, 0.5);
    EXPECT_EQ(progress.skipped_steps, 2);
    EXPECT_TRUE(equal(gather_state(one.engine, progress), other)) << model;
    restore_state(one.engine, initial, "file", false);
    EXPECT_TRUE(equal(gather_state(one.engine, {}), initial)) << model;
  }
}

/// Under the names that the optimizer's state has in PyTorch; a state of another optimizer is none.
TEST(State, EveryOptimizerKeepsItsState) {
  Trained with_sgd("lenet5");
  const StateDict of_sgd = gather_state(with_sgd.engine, {});
  for (const char* optimizer : {"adam", "adamw", "lars"}) {
    Trained one(load_model("lenet5"), 1, optimizer);
    const bool adam = std::string(optimizer) != "lars";
    const StateDict state = counted(gather_state(one.engine, {}));
    const std::size_t params = one.blueprint.graph.params().size();
    EXPECT_EQ(state.groups.at("optimizer").size(), adam ? 2 * params : params);
    for (const char* suffix : {".exp_avg", ".exp_avg_sq", ".momentum"}) {
      const bool wanted = adam == (std::string(suffix) != ".momentum");
      EXPECT_EQ(state.find("optimizer", std::string("fc1.weight") + suffix) != nullptr, wanted) << suffix;
    }
    restore_state(one.engine, state, "file", false);
    EXPECT_TRUE(equal(counted(gather_state(one.engine, {})), state));
    const StateDict again = gather_state(one.engine, {});
    for (const StateTensor& tensor : state.groups.at("optimizer")) {
      EXPECT_EQ(again.find("optimizer", tensor.name)->data, tensor.data) << tensor.name;
    }
    if (!adam) continue;
    const std::string message = message_of<DataError>([&] { restore_state(one.engine, of_sgd, "some.h5", false); });
    EXPECT_NE(message.find("exp_avg'"), std::string::npos) << message;
  }
}

/// A checkpoint without the counts of Adam's freeze groups is of a run in which they were the run's.
TEST(State, FreezeGroupsKeepTheirUpdates) {
  Recipe recipe = Trained::recipe_of("lenet5", "adam");
  recipe.freeze_until = "conv1@2,fc1@3";
  Trained one(recipe, load_model("lenet5"));
  const Region& place = one.blueprint.plans.front().region(region_name::kScalars);
  const auto scalars = [&] {
    std::vector<float> values(static_cast<std::size_t>(scalar_count(one.blueprint.graph)));
    one.engine.download(place.offset_bytes, std::as_writable_bytes(std::span(values)));
    return values;
  };
  std::vector<float> set = scalars();
  ASSERT_EQ(set.size(), 22u);
  EXPECT_EQ(set[16], 0.0f);
  set[region_name::kScalarUpdates] = 9.0f;
  set[16] = 5.0f;
  set[19] = 2.0f;
  one.engine.upload(place.offset_bytes, std::as_bytes(std::span(set)));
  StateDict state = gather_state(one.engine, {});
  EXPECT_EQ(floats(state.find("progress", "group_updates")), (std::vector{5.0f, 2.0f}));
  initialize_state(one.engine, 1);
  restore_state(one.engine, state, "file", false);
  EXPECT_EQ(scalars(), set);
  std::vector<StateTensor>& progress = state.groups.at("progress");
  const auto counts = std::find_if(progress.begin(), progress.end(),
                                   [](const StateTensor& tensor) { return tensor.name == "group_updates"; });
  counts->extents = {1};
  counts->data.resize(sizeof(float));
  const std::string message = message_of<DataError>([&] { restore_state(one.engine, state, "some.h5", false); });
  EXPECT_NE(message.find("'progress/group_updates' is float32 [1]"), std::string::npos) << message;
  progress.erase(counts);
  restore_state(one.engine, state, "file", false);
  set[16] = set[19] = 9.0f;
  EXPECT_EQ(scalars(), set);
}

TEST(State, ConvolutionsAreStoredKrscAndSavedKcrs) {
  Trained one("lenet5");
  const StateDict state = counted(gather_state(one.engine, {}));
  restore_state(one.engine, state, "file", false);
  for (const bool momentum : {false, true}) {
    const ParamInfo& param = one.param("conv1.weight");
    const DTensor& place = one.place(momentum ? param.momentum : param.weight);
    const StateTensor* tensor =
        momentum ? state.find("optimizer", "conv1.weight.momentum") : state.find("weights", "conv1.weight");
    const std::vector<float> logical = floats(tensor);
    EXPECT_EQ(tensor->extents, (std::vector<std::int64_t>{6, 2, 5, 5}));
    const std::vector<float> stored = one.stored(place);
    const std::int64_t stride = place.padded_c > 0 ? place.padded_c : 2;
    for (std::int64_t k = 0; k < 6; ++k) {
      for (std::int64_t c = 0; c < 2; ++c) {
        for (std::int64_t rs = 0; rs < 25; ++rs) {
          ASSERT_EQ(stored[static_cast<std::size_t>((k * 25 + rs) * stride + c)],
                    logical[static_cast<std::size_t>((k * 2 + c) * 25 + rs)])
              << k << " " << c << " " << rs;
        }
      }
    }
  }
}

TEST(State, LinearAfterFlattenIsSavedInTheOrderOfChannelsHeightWidth) {
  Trained one("lenet5");
  const StateDict state = counted(gather_state(one.engine, {}));
  restore_state(one.engine, state, "file", false);
  const std::vector<float> logical = floats(state.find("weights", "fc1.weight"));
  EXPECT_EQ(state.find("weights", "fc1.weight")->extents, (std::vector<std::int64_t>{120, 64}));
  const DTensor& place = one.place(one.param("fc1.weight").weight);
  const std::vector<float> stored = one.stored(place);
  const std::int64_t stride = place.padded_c > 0 ? place.padded_c : 64;
  for (std::int64_t k = 0; k < 120; ++k) {
    for (std::int64_t c = 0; c < 16; ++c) {
      for (std::int64_t hw = 0; hw < 4; ++hw) {
        ASSERT_EQ(stored[static_cast<std::size_t>(k * stride + hw * 16 + c)],
                  logical[static_cast<std::size_t>(k * 64 + c * 4 + hw)])
            << k << " " << c << " " << hw;
      }
    }
  }
  // Behind another linear layer there is nothing to turn around.
  const std::vector<float> second = floats(state.find("weights", "fc2.weight"));
  const DTensor& plain = one.place(one.param("fc2.weight").weight);
  const std::vector<float> plain_stored = one.stored(plain);
  const std::int64_t plain_stride = plain.padded_c > 0 ? plain.padded_c : 120;
  for (std::int64_t i = 0; i < 84 * 120; ++i) {
    ASSERT_EQ(plain_stored[static_cast<std::size_t>(i / 120 * plain_stride + i % 120)],
              second[static_cast<std::size_t>(i)]);
  }
}

/// Two maps of different sizes, flattened and put together, with a batch norm and a linear layer behind them.
ModelSpec flattened_maps() {
  testing::ModelBuilder model;
  model.conv("a", "input", 3).pool(LayerKind::max_pool, "a.pool", "a", 4);  // 4 x 4 x 3
  model.conv("b", "input", 5).pool(LayerKind::max_pool, "b.pool", "b", 8);  // 2 x 2 x 5
  model.layer(LayerKind::flatten, "a.flat", {"a.pool"}).layer(LayerKind::flatten, "b.flat", {"b.pool"});
  model.linear("plain", "b.flat", 7);
  model.layer(LayerKind::concat, "all", {"a.flat", "plain", "b.flat"}).layer(LayerKind::batch_norm, "bn", {"all"});
  model.layer(LayerKind::relu, "relu", {"bn"}).linear("fc", "relu");
  return model.spec();
}

/// Where PyTorch's torch.cat([a.flatten(1), plain, b.flatten(1)], 1) has the feature that memory has at `stored`.
std::size_t place_in_torch(std::size_t stored) {
  if (stored < 48) return stored % 3 * 16 + stored / 3;
  if (stored < 48 + 7) return stored;
  const std::size_t at = stored - 55;
  return 55 + at % 5 * 4 + at / 5;
}

TEST(State, FeaturesBehindAConcatOfFlattenedMapsAreSavedInTheOrderOfTorch) {
  Trained one(flattened_maps());
  const StateDict state = counted(gather_state(one.engine, {}));
  restore_state(one.engine, state, "file", false);
  EXPECT_TRUE(equal(counted(gather_state(one.engine, {})), state));
  constexpr std::size_t kFeatures = 48 + 7 + 20;
  const auto check = [&](const std::string& group, const std::string& name, TensorId id, std::size_t rows) {
    const std::vector<float> logical = floats(state.find(group, name)), stored = one.stored(one.place(id));
    ASSERT_EQ(logical.size(), rows * kFeatures) << name;
    const std::size_t stride = stored.size() / rows;
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t i = 0; i < kFeatures; ++i) {
        ASSERT_EQ(stored[row * stride + i], logical[row * kFeatures + place_in_torch(i)])
            << name << " " << row << " " << i;
      }
    }
  };
  check("weights", "fc.weight", one.param("fc.weight").weight, 3);
  check("optimizer", "fc.weight.momentum", one.param("fc.weight").momentum, 3);
  check("weights", "bn.weight", one.param("bn.weight").weight, 1);
  check("weights", "bn.bias", one.param("bn.bias").weight, 1);
  check("bn_running", "bn.running_mean", one.blueprint.graph.norms().at(0).running_mean, 1);
  check("bn_running", "bn.running_var", one.blueprint.graph.norms().at(0).running_var, 1);
}

/// A program that only evaluates has other graphs and shapes, and reads the same files.
TEST(State, LayoutsAreTheSameForEvaluationAlone) {
  for (const ModelSpec& model : {load_model("lenet5"), load_model("cnn-small"), flattened_maps()}) {
    OneRank rank;
    std::vector<std::vector<ParamLayout>> layouts;
    for (const bool training : {true, false}) {
      DataShape data = Trained::shape();
      data.val_samples = 8;
      const Blueprint blueprint = make_blueprint(small_recipe(model.name, 4, 2), data, *rank.run().backend,
                                                 *rank.run().communicator, {.training = training, .model = model});
      layouts.push_back(param_layouts(blueprint.graph, blueprint.shapes.front()));
    }
    EXPECT_EQ(layouts[0], layouts[1]) << model.name;
  }
}

TEST(State, InitialValuesArePureFunctionsOfSeedAndName) {
  Trained one("lenet5", 3), same("lenet5", 3), other("lenet5", 4);
  const StateDict first = gather_state(one.engine, {});
  EXPECT_TRUE(equal(first, gather_state(same.engine, {})));
  const StateDict second = gather_state(other.engine, {});
  for (const StateTensor& tensor : first.groups.at("weights")) {
    EXPECT_NE(tensor.data, second.find("weights", tensor.name)->data) << tensor.name;
    for (const StateTensor& against : first.groups.at("weights")) {
      if (tensor.name == against.name) continue;
      EXPECT_NE(floats(&tensor)[0], floats(&against)[0]) << tensor.name << " starts as " << against.name;
    }
  }
  for (const StateTensor& tensor : first.groups.at("optimizer")) {
    for (const float value : floats(&tensor)) ASSERT_EQ(value, 0.0f) << tensor.name;
  }
}

TEST(State, InitialWeightsFillTheBoundOfTheirFanIn) {
  Trained one("lenet5");
  const StateDict state = gather_state(one.engine, {});
  struct Case {
    const char* name;
    double fan_in;
  };
  for (const Case& layer : {Case{"conv1.weight", 50},
                            {"conv1.bias", 50},
                            {"conv2.weight", 150},
                            {"fc1.weight", 64},
                            {"fc2.weight", 120},
                            {"fc2.bias", 120}}) {
    const std::vector<float> values = floats(state.find("weights", layer.name));
    const double bound = 1.0 / std::sqrt(layer.fan_in);
    double largest = 0, sum = 0;
    for (const float value : values) {
      largest = std::max(largest, std::abs(static_cast<double>(value)));
      sum += static_cast<double>(value);
    }
    EXPECT_LE(largest, bound * (1 + 1e-6)) << layer.name;
    EXPECT_GE(largest, 0.5 * bound) << layer.name;
    EXPECT_LE(std::abs(sum), 4.0 * bound * std::sqrt(static_cast<double>(values.size()))) << layer.name;
  }
}

TEST(State, BatchNormStartsAsTheIdentity) {
  Trained one("cnn-small");
  const StateDict state = gather_state(one.engine, {});
  for (const NormInfo& norm : one.blueprint.graph.norms()) {
    for (const float value : floats(state.find("weights", norm.name + ".weight"))) ASSERT_EQ(value, 1.0f);
    for (const float value : floats(state.find("weights", norm.name + ".bias"))) ASSERT_EQ(value, 0.0f);
    for (const float value : floats(state.find("bn_running", norm.name + ".running_mean"))) ASSERT_EQ(value, 0.0f);
    for (const float value : floats(state.find("bn_running", norm.name + ".running_var"))) ASSERT_EQ(value, 1.0f);
  }
  EXPECT_EQ(state.groups.at("bn_running").size(), 6u);
}

TEST(State, WeightsOnlyLeavesMomentumAndProgressAlone) {
  Trained one("cnn-small");
  restore_state(one.engine, counted(gather_state(one.engine, {})), "file", false);
  const StateDict before = gather_state(one.engine, {});
  Trained source("cnn-small", 9);
  StateDict weights = gather_state(source.engine, {.step = 5});
  weights.groups.erase("optimizer");
  weights.groups.erase("progress");
  weights.groups.erase("bn_running");
  const Progress progress = restore_state(one.engine, weights, "file", true);
  EXPECT_EQ(progress.step, 0);
  const StateDict after = gather_state(one.engine, {});
  for (const StateTensor& tensor : weights.groups.at("weights")) {
    EXPECT_EQ(after.find("weights", tensor.name)->data, tensor.data) << tensor.name;
  }
  for (const char* group : {"optimizer", "bn_running"}) {
    for (const StateTensor& tensor : before.groups.at(group)) {
      EXPECT_EQ(after.find(group, tensor.name)->data, tensor.data) << tensor.name;
    }
  }
}

TEST(State, MissingSurplusAndMisshapenTensorsAreNamed) {
  Trained one("lenet5");
  const StateDict good = gather_state(one.engine, {});
  const auto message = [&](const std::function<void(StateDict&)>& damage, bool weights_only) {
    StateDict bad = good;
    damage(bad);
    return message_of<DataError>([&] { restore_state(one.engine, bad, "some.h5", weights_only); });
  };
  const auto erase = [](const std::string& group, const std::string& name) {
    return [=](StateDict& s) { std::erase_if(s.groups[group], [&](const StateTensor& t) { return t.name == name; }); };
  };
  struct Case {
    std::function<void(StateDict&)> damage;
    const char* names;
    bool weights_only;
  };
  const std::vector<Case> all{
      {erase("weights", "conv2.bias"), "'conv2.bias'", true},
      {erase("weights", "conv2.bias"), "'conv2.bias'", false},
      {erase("optimizer", "fc1.weight.momentum"), "'fc1.weight.momentum'", false},
      {erase("progress", "step"), "'step'", false},
      {erase("progress", "scalars"), "'scalars'", false},
      {[](StateDict& s) { s.groups.erase("weights"); }, "'weights'", true},
      {[](StateDict& s) {
         s.groups["weights"].push_back(s.groups["weights"][0]), s.groups["weights"].back().name = "x";
       },
       "'x'", true},
      {[](StateDict& s) {
         s.groups["weights"][0].extents = {2, 6, 5, 5};
       },
       "[2, 6, 5, 5]", true},
      {[](StateDict& s) { s.groups["weights"][0].dtype = DType::f64; }, "float32 [6, 2, 5, 5]", true},
  };
  for (const Case& one_case : all) {
    const std::string text = message(one_case.damage, one_case.weights_only);
    EXPECT_NE(text.find(one_case.names), std::string::npos) << text;
    EXPECT_EQ(text.rfind("some.h5; ", 0), 0u) << text;
  }
}

}  // namespace
}  // namespace renai
