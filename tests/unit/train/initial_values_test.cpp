// Initial values against the definitions: mean, deviation, bounds; and what they depend on.
#include "../../../src/train/initial_values.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "renai/graph/shape_inference.hpp"
#include "renai/model/adjust.hpp"

namespace renai {
namespace {

/// A convolution of 3x3 from 32 to 64 channels in two groups and a linear layer from 64 to 500: fan_in 144 and 64,
/// fan_out 576 and 500 (groups do not divide the outputs, as in PyTorch).
ModelSpec two_layers(bool more = false) {
  std::string text = R"(name = "two"
[[layers]]
name = "conv"
type = "conv2d"
out = 64
kernel = 3
groups = 2
[[layers]]
name = "bn"
type = "batch_norm"
[[layers]]
type = "global_avg_pool"
[[layers]]
type = "flatten"
)";
  if (more) text += "[[layers]]\nname = \"more\"\ntype = \"linear\"\nout = 64\n";
  return parse_model(text + "[[layers]]\nname = \"fc\"\ntype = \"linear\"\nout = 500\n", "two");
}

using Values = std::map<std::string, std::vector<float>>;

Values values_of(const ModelSpec& model, std::uint64_t seed = 1) {
  GraphOptions options;
  options.classes = 500;
  options.input_channels = 32;
  const ComputationGraph graph = build_computation_graph(model, options);
  const std::vector<Shape> shapes = infer_shapes(graph, {2, 8, 8, 32}, true);
  Values values;
  for (const ParamInfo& param : graph.params()) values[param.name] = initial_values(graph, shapes, param, seed);
  return values;
}

Values with_init(const std::string& word) {
  ModelSpec model = two_layers();
  set_init(model, word);
  return values_of(model);
}

struct Statistics {
  double mean = 0, deviation = 0, greatest = 0, kurtosis = 0;
};

Statistics measure(const std::vector<float>& values) {
  Statistics s;
  for (const float value : values) {
    s.mean += value / static_cast<double>(values.size());
    s.greatest = std::max(s.greatest, std::abs(double{value}));
  }
  double square = 0, fourth = 0;
  for (const float value : values) {
    const double squared = (value - s.mean) * (value - s.mean);
    square += squared / static_cast<double>(values.size());
    fourth += squared * squared / static_cast<double>(values.size());
  }
  s.deviation = std::sqrt(square);
  s.kurtosis = fourth / (square * square);
  return s;
}

/// Deviation and mean within five standard errors, and the shape of the distribution by its kurtosis.
void expect_law(const std::vector<float>& values, double deviation, double bound, double kurtosis) {
  const Statistics s = measure(values);
  const auto n = static_cast<double>(values.size());
  EXPECT_NEAR(s.mean, 0, 5 * deviation / std::sqrt(n));
  EXPECT_NEAR(s.deviation, deviation, 5 * deviation * std::sqrt((kurtosis - 1) / (4 * n)));
  EXPECT_LE(s.greatest, bound);
  EXPECT_NEAR(s.kurtosis, kurtosis, 0.26);
}

void expect_normal(const std::vector<float>& values, double deviation) {
  expect_law(values, deviation, 6.7 * deviation, 3.0);
  EXPECT_GT(measure(values).greatest, 3 * deviation);
}

void expect_uniform(const std::vector<float>& values, double bound) {
  expect_law(values, bound / std::sqrt(3.0), bound, 1.8);
  EXPECT_GT(measure(values).greatest, 0.99 * bound);
}

bool all_are(const std::vector<float>& values, float wanted) {
  return std::all_of(values.begin(), values.end(), [=](float value) { return value == wanted; });
}

constexpr double kConvIn = 144, kConvOut = 576, kFcIn = 64, kFcOut = 500;

TEST(InitialValues, TheNormalRules) {
  Values values = with_init("kaiming-normal");
  expect_normal(values["conv.weight"], std::sqrt(2 / kConvOut));
  expect_normal(values["fc.weight"], std::sqrt(2 / kFcOut));
  EXPECT_TRUE(all_are(values["conv.bias"], 0) && all_are(values["fc.bias"], 0));
  values = with_init("xavier-normal");
  expect_normal(values["conv.weight"], std::sqrt(2 / (kConvIn + kConvOut)));
  expect_normal(values["fc.weight"], std::sqrt(2 / (kFcIn + kFcOut)));
  EXPECT_TRUE(all_are(values["conv.bias"], 0) && all_are(values["fc.bias"], 0));
}

TEST(InitialValues, TheUniformRules) {
  Values values = with_init("kaiming-uniform");
  expect_uniform(values["conv.weight"], std::sqrt(6 / kConvOut));
  expect_uniform(values["fc.weight"], std::sqrt(6 / kFcOut));
  EXPECT_TRUE(all_are(values["conv.bias"], 0) && all_are(values["fc.bias"], 0));
  values = with_init("xavier-uniform");
  expect_uniform(values["conv.weight"], std::sqrt(6 / (kConvIn + kConvOut)));
  expect_uniform(values["fc.weight"], std::sqrt(6 / (kFcIn + kFcOut)));
  EXPECT_TRUE(all_are(values["conv.bias"], 0) && all_are(values["fc.bias"], 0));
}

/// Beyond two deviations a normal variate is drawn again: 0.880 of its deviation are left, and a kurtosis of 2.37.
TEST(InitialValues, TheTruncatedNormal) {
  Values values = with_init("trunc-normal");
  for (const char* name : {"conv.weight", "fc.weight"}) {
    expect_law(values[name], 0.02 * 0.87962566, 0.04, 2.3656);
    EXPECT_GT(measure(values[name]).greatest, 0.0395);
  }
  EXPECT_TRUE(all_are(values["conv.bias"], 0) && all_are(values["fc.bias"], 0));
}

TEST(InitialValues, TheDefaultIsThatOfTorchLayers) {
  Values values = values_of(two_layers());
  expect_uniform(values["conv.weight"], 1 / std::sqrt(kConvIn));
  expect_uniform(values["fc.weight"], 1 / std::sqrt(kFcIn));
  EXPECT_LE(measure(values["conv.bias"]).greatest, 1 / std::sqrt(kConvIn));
  EXPECT_GT(measure(values["conv.bias"]).greatest, 0.8 / std::sqrt(kConvIn));
  EXPECT_GT(measure(values["fc.bias"]).greatest, 0.9 / std::sqrt(kFcIn));
  EXPECT_TRUE(all_are(values["bn.weight"], 1) && all_are(values["bn.bias"], 0));
  // Runs of earlier versions start from the same bits.
  EXPECT_FLOAT_EQ(values["conv.weight"][0], 0.0788698f);
  EXPECT_FLOAT_EQ(values["fc.bias"][7], 0.10791893f);
}

TEST(InitialValues, TheFamiliesOfTorchvision) {
  ModelSpec model = two_layers();
  model.init = InitRule::torchvision_resnet;
  Values values = values_of(model);
  expect_normal(values["conv.weight"], std::sqrt(2 / kConvOut));
  EXPECT_TRUE(all_are(values["conv.bias"], 0));
  expect_uniform(values["fc.weight"], 1 / std::sqrt(kFcIn));
  EXPECT_GT(measure(values["fc.bias"]).greatest, 0.9 / std::sqrt(kFcIn));
  model.init = InitRule::torchvision_vgg;
  values = values_of(model);
  expect_normal(values["conv.weight"], std::sqrt(2 / kConvOut));
  expect_normal(values["fc.weight"], 0.01);
  EXPECT_TRUE(all_are(values["conv.bias"], 0) && all_are(values["fc.bias"], 0));
}

/// Deviation and greatest magnitude of each parameter beside those of torchvision's network: the law and its size
/// agree.
TEST(InitialValues, AgreeWithTorchvisionsNetworks) {
  std::ifstream file(std::string(RENAI_GOLDEN_DIR) + "/init_torchvision.json");
  const auto networks = nlohmann::json::parse(file);
  ASSERT_EQ(networks.size(), 2u);
  for (const auto& [network, params] : networks.items()) {
    ModelSpec model = load_model(network);
    set_init(model, "torchvision");
    GraphOptions options;
    options.classes = 1000;
    options.input_channels = 3;
    const ComputationGraph graph = build_computation_graph(model, options);
    const std::vector<Shape> shapes = infer_shapes(graph, {2, 224, 224, 3}, true);
    std::size_t compared = 0;
    for (const ParamInfo& param : graph.params()) {
      if (!params.contains(param.name)) continue;  // The largest are left out.
      SCOPED_TRACE(network + " " + param.name);
      const auto& [elems, mean, deviation, greatest] =
          params[param.name].get<std::tuple<double, double, double, double>>();
      const std::vector<float> values = initial_values(graph, shapes, param, 1);
      ASSERT_EQ(static_cast<double>(values.size()), elems);
      ++compared;
      if (deviation == 0) {
        EXPECT_TRUE(all_are(values, static_cast<float>(mean)));
        continue;
      }
      const Statistics own = measure(values);
      // Both are samples: five standard errors of their difference, and for few values of extremes half of them.
      EXPECT_NEAR(own.deviation, deviation, 5 * deviation / std::sqrt(elems));
      EXPECT_NEAR(own.mean, mean, 5 * deviation * std::sqrt(2 / elems));
      EXPECT_NEAR(own.greatest, greatest, 0.5 * greatest);
      EXPECT_EQ(own.greatest < 1.8 * own.deviation, greatest < 1.8 * deviation) << "uniform or normal";
    }
    EXPECT_EQ(compared, params.size());
  }
}

TEST(InitialValues, AnotherLayerLeavesTheOthersAlone) {
  for (const char* word : {"kaiming-normal", "trunc-normal", "torchvision"}) {
    ModelSpec few = two_layers(), many = two_layers(true), dropped = two_layers();
    set_init(few, word);
    set_init(many, word);
    set_init(dropped, word);
    set_dropout(dropped, 0.5f);
    const Values values = values_of(few), more = values_of(many);
    ASSERT_EQ(more.size(), values.size() + 2);
    for (const auto& [name, tensor] : values) EXPECT_EQ(more.at(name), tensor) << name;
    EXPECT_EQ(values_of(dropped), values);
  }
}

TEST(InitialValues, SeedAndNameMatter) {
  const Values one = values_of(two_layers()), other = values_of(two_layers(), 2);
  EXPECT_NE(one.at("fc.weight"), other.at("fc.weight"));
  EXPECT_EQ(one, values_of(two_layers()));
  const Values more = values_of(two_layers(true));
  EXPECT_NE(more.at("more.bias"), more.at("fc.bias"));
}

TEST(InitialValues, AScaleOfZero) {
  ModelSpec model = two_layers();
  model.layers[1].zero_init = true;
  const Values values = values_of(model);
  EXPECT_TRUE(all_are(values.at("bn.weight"), 0) && all_are(values.at("bn.bias"), 0));
}

}  // namespace
}  // namespace renai
