// What options change in a model.
#include "renai/model/adjust.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "renai/base/error.hpp"

namespace renai {
namespace {

const LayerSpec& at(const ModelSpec& model, const std::string& name) {
  const auto found =
      std::find_if(model.layers.begin(), model.layers.end(), [&](const LayerSpec& l) { return l.name == name; });
  if (found == model.layers.end()) throw std::runtime_error("no layer " + name);
  return *found;
}

TEST(SetDropout, ReplacesTheModelsOwnRates) {
  ModelSpec model = load_model("vgg16_bn");
  const std::size_t count = model.layers.size();
  set_dropout(model, 0.2f);
  EXPECT_EQ(at(model, "classifier.2").p, 0.2f);
  EXPECT_EQ(at(model, "classifier.5").p, 0.2f);
  set_dropout(model, 0.0f);
  EXPECT_EQ(at(model, "classifier.5").p, 0.0f);
  EXPECT_EQ(model.layers.size(), count);
  EXPECT_NO_THROW(verify(model));
}

TEST(SetDropout, PutsOneBeforeTheLastLinearLayer) {
  for (const char* name : {"resnet50", "resnet9", "mlp"}) {
    ModelSpec model = load_model(name);
    const std::vector<std::string> read = model.layers.back().inputs;
    set_dropout(model, 0.0f);
    EXPECT_EQ(to_toml(model), to_toml(load_model(name)));
    set_dropout(model, 0.3f);
    EXPECT_NO_THROW(verify(model));
    EXPECT_EQ(at(model, "dropout").inputs, read);
    EXPECT_EQ(at(model, "dropout").p, 0.3f);
    EXPECT_EQ(at(model, "dropout").stage, model.layers.back().stage);
    EXPECT_EQ(model.layers.back().inputs, std::vector<std::string>{"dropout"});
    EXPECT_EQ(to_toml(parse_model(to_toml(model), "again")), to_toml(model));
  }
}

TEST(SetDropout, TakesAFreeNameAndRefusesWhereThereIsNoPlace) {
  ModelSpec model = parse_model(R"(name = "m"
[[layers]]
name = "flatten"
type = "flatten"
[[layers]]
name = "dropout"
type = "relu"
[[layers]]
name = "fc"
type = "linear"
out = "classes"
)",
                                "m");
  set_dropout(model, 0.5f);
  EXPECT_EQ(at(model, "fc").inputs, std::vector<std::string>{"dropout.1"});
  model = parse_model(R"(name = "m"
[[layers]]
name = "conv"
type = "conv2d"
out = 3
kernel = 1
[[layers]]
type = "global_avg_pool"
[[layers]]
type = "flatten"
)",
                      "m");
  EXPECT_THROW(set_dropout(model, 0.5f), UserError);
  EXPECT_NO_THROW(set_dropout(model, 0.0f));
}

TEST(SetZeroGamma, TakesTheLastNormOfEachBlockAndNoProjection) {
  for (const auto& [name, last, blocks] :
       {std::tuple{"resnet18", ".bn2", 8}, {"resnet50", ".bn3", 16}, {"resnet20", ".bn2", 9}}) {
    ModelSpec model = load_model(name);
    set_zero_gamma(model);
    int count = 0;
    for (const LayerSpec& layer : model.layers) {
      if (!layer.zero_init) continue;
      ++count;
      EXPECT_TRUE(layer.name.ends_with(last)) << layer.name;
    }
    EXPECT_EQ(count, blocks) << name;
  }
}

/// In resnet9 a ReLU stands between the last batch norm and the sum: behind a scale of 0 it would pass no gradient.
TEST(SetZeroGamma, RefusesModelsWithoutSuchANorm) {
  for (const char* name : {"vgg16_bn", "mlp", "resnet9"}) {
    ModelSpec model = load_model(name);
    EXPECT_THROW(set_zero_gamma(model), UserError) << name;
  }
}

TEST(SetInit, KnowsWordsAndFamilies) {
  ModelSpec model = load_model("resnet50");
  EXPECT_EQ(model.init, InitRule::torch_default);
  set_init(model, "trunc-normal");
  EXPECT_EQ(model.init, InitRule::trunc_normal);
  set_init(model, "torchvision");
  EXPECT_EQ(model.init, InitRule::torchvision_resnet);
  for (const auto& [name, rule] : {std::pair{"vgg16_bn", InitRule::torchvision_vgg},
                                   {"vgg11", InitRule::torchvision_vgg},
                                   {"resnet101", InitRule::torchvision_resnet},
                                   {"wide_resnet50_2", InitRule::torchvision_resnet},
                                   {"resnext50_32x4d", InitRule::torchvision_resnet},
                                   {"resnet20", InitRule::torch_default},
                                   {"resnet9", InitRule::torch_default},
                                   {"lenet5", InitRule::torch_default}}) {
    ModelSpec other = load_model(name);
    set_init(other, "torchvision");
    EXPECT_EQ(other.init, rule) << name;
  }
  EXPECT_THROW(set_init(model, "kaiming"), UserError);
  for (const std::string& word : init_words()) EXPECT_NO_THROW(set_init(model, word));
}

TEST(SetInit, RulesSurviveTheModelsText) {
  ModelSpec model = load_model("resnet18");
  for (const std::string& word : init_words()) {
    set_init(model, word);
    EXPECT_EQ(parse_model(to_toml(model), "again").init, model.init) << word;
  }
}

}  // namespace
}  // namespace renai
