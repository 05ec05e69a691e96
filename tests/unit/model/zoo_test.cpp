// The zoo: every model is sound, has its topology, and survives its own TOML.
#include <gtest/gtest.h>

#include <algorithm>

#include "renai/base/error.hpp"
#include "renai/model/model_spec.hpp"

namespace renai {
namespace {

const LayerSpec& layer_of(const ModelSpec& spec, const std::string& name) {
  const auto found =
      std::find_if(spec.layers.begin(), spec.layers.end(), [&](const LayerSpec& l) { return l.name == name; });
  if (found == spec.layers.end()) throw UserError("finding layer '" + name + "'", "there is none");
  return *found;
}

std::ptrdiff_t count_of(const ModelSpec& spec, LayerKind kind) {
  return std::count_if(spec.layers.begin(), spec.layers.end(), [&](const LayerSpec& l) { return l.kind == kind; });
}

TEST(Zoo, ListsItsModels) {
  EXPECT_EQ(zoo_model_names(),
            (std::vector<std::string>{"cnn-small", "mlp",       "lenet5",    "resnet9",         "resnet20",
                                      "resnet32",  "resnet44",  "resnet56",  "resnet18",        "resnet34",
                                      "resnet50",  "resnet101", "resnet152", "wide_resnet50_2", "resnext50_32x4d",
                                      "vgg11",     "vgg13",     "vgg16",     "vgg19",           "vgg11_bn",
                                      "vgg13_bn",  "vgg16_bn",  "vgg19_bn"}));
}

TEST(Zoo, EveryModelIsSoundAndEndsInTheClassCount) {
  for (const std::string& name : zoo_model_names()) {
    SCOPED_TRACE(name);
    const ModelSpec spec = load_model(name);
    EXPECT_EQ(spec.name, name);
    EXPECT_EQ(spec.source, "zoo");
    EXPECT_NO_THROW(verify(spec));
    EXPECT_EQ(spec.layers.back().kind, LayerKind::linear);
    EXPECT_EQ(spec.layers.back().out, 0);
    EXPECT_TRUE(std::is_sorted(spec.layers.begin(), spec.layers.end(),
                               [](const LayerSpec& a, const LayerSpec& b) { return a.stage < b.stage; }));
  }
}

TEST(Zoo, ConvolutionsBeforeBatchNormHaveNoBias) {
  for (const std::string& name : zoo_model_names()) {
    if (name.starts_with("vgg")) continue;  // They keep torchvision's biases.
    const ModelSpec spec = load_model(name);
    for (const LayerSpec& layer : spec.layers) {
      if (layer.kind != LayerKind::batch_norm) continue;
      EXPECT_FALSE(layer_of(spec, layer.inputs.at(0)).bias) << name << " " << layer.name;
    }
  }
}

TEST(Zoo, EveryModelComesBackFromItsToml) {
  for (const std::string& name : zoo_model_names()) {
    const std::string text = to_toml(load_model(name));
    EXPECT_EQ(to_toml(parse_model(text, "text")), text) << name;
  }
}

TEST(Zoo, Lenet5IsTheClassicNet) {
  const ModelSpec spec = load_model("lenet5");
  EXPECT_EQ(layer_of(spec, "conv1").out, 6);
  EXPECT_EQ(layer_of(spec, "conv1").pad_h, 2);
  EXPECT_EQ(layer_of(spec, "conv2").out, 16);
  EXPECT_EQ(layer_of(spec, "fc1").out, 120);
  EXPECT_EQ(layer_of(spec, "fc2").out, 84);
}

TEST(Zoo, Resnet9HasNineWeightedLayersWithoutCountingNorms) {
  const ModelSpec spec = load_model("resnet9");
  EXPECT_EQ(count_of(spec, LayerKind::conv2d) + count_of(spec, LayerKind::linear), 9);
  EXPECT_EQ(count_of(spec, LayerKind::batch_norm), 8);
  EXPECT_EQ(layer_of(spec, "layer1.add").inputs, (std::vector<std::string>{"layer1.pool", "layer1.res2.relu"}));
  EXPECT_EQ(layer_of(spec, "layer3.add").inputs, (std::vector<std::string>{"layer3.pool", "layer3.res2.relu"}));
}

TEST(Zoo, CifarResnetsHaveSixNAndTwoWeightedLayersBesideTwoProjections) {
  for (const auto& [name, layers] : {std::pair{"resnet20", 20}, {"resnet32", 32}, {"resnet44", 44}, {"resnet56", 56}}) {
    const ModelSpec spec = load_model(name);
    EXPECT_EQ(count_of(spec, LayerKind::conv2d) + count_of(spec, LayerKind::linear), layers + 2) << name;
    EXPECT_EQ(count_of(spec, LayerKind::add), (layers - 2) / 2) << name;
  }
  const ModelSpec spec = load_model("resnet20");
  EXPECT_EQ(layer_of(spec, "layer2.0.add").inputs, (std::vector<std::string>{"layer2.0.downsample.1", "layer2.0.bn2"}));
  EXPECT_EQ(layer_of(spec, "layer2.1.add").inputs, (std::vector<std::string>{"layer2.0.relu", "layer2.1.bn2"}));
  EXPECT_EQ(layer_of(spec, "layer3.0.conv1").stride_h, 2);
  EXPECT_EQ(layer_of(spec, "layer3.0.conv1").out, 64);
}

TEST(Zoo, WideAndGroupedResnetsDifferInTheirBottlenecksOnly) {
  const ModelSpec plain = load_model("resnet50"), wide = load_model("wide_resnet50_2");
  const ModelSpec grouped = load_model("resnext50_32x4d");
  ASSERT_EQ(wide.layers.size(), plain.layers.size());
  ASSERT_EQ(grouped.layers.size(), plain.layers.size());
  for (std::size_t i = 0; i < plain.layers.size(); ++i) {
    const LayerSpec& layer = plain.layers[i];
    EXPECT_EQ(wide.layers[i].name, layer.name);
    EXPECT_EQ(grouped.layers[i].name, layer.name);
    const bool spatial = layer.name.ends_with(".conv2");
    const bool inner = spatial || (layer.name.starts_with("layer") && layer.name.ends_with(".conv1"));
    EXPECT_EQ(wide.layers[i].out, layer.out * (inner ? 2 : 1)) << layer.name;
    EXPECT_EQ(grouped.layers[i].out, layer.out * (inner ? 2 : 1)) << layer.name;
    EXPECT_EQ(wide.layers[i].groups, 1) << layer.name;
    EXPECT_EQ(grouped.layers[i].groups, spatial ? 32 : 1) << layer.name;
  }
}

TEST(Zoo, UnknownNameOffersTheNearest) {
  try {
    load_model("resnet");
    FAIL() << "an unknown model was accepted";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'resnet9'?"), std::string::npos) << error.what();
  }
}

TEST(Print, HasOneLineForEachLayer) {
  const ModelSpec spec = load_model("resnet9");
  const std::string text = print(spec);
  EXPECT_EQ(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')), spec.layers.size() + 1);
  EXPECT_NE(text.find("layer3.add"), std::string::npos);
}

TEST(LayerKind, NamesAreDistinct) {
  std::vector<std::string> names;
  for (int kind = 0; kind <= static_cast<int>(LayerKind::dropout); ++kind) {
    names.push_back(layer_kind_name(static_cast<LayerKind>(kind)));
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

}  // namespace
}  // namespace renai
