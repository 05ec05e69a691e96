// TOML models: repeats, residual branches with projection, explicit DAGs, defaults, round trips.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "renai/base/error.hpp"
#include "renai/model/model_spec.hpp"

namespace renai {
namespace {

using Names = std::vector<std::string>;

Names names_of(const ModelSpec& spec) {
  Names names;
  for (const LayerSpec& layer : spec.layers) names.push_back(layer.name);
  return names;
}

const LayerSpec& at(const ModelSpec& spec, const std::string& name) {
  for (const LayerSpec& layer : spec.layers) {
    if (layer.name == name) return layer;
  }
  throw UserError("finding layer '" + name + "'", "there is none");
}

TEST(Toml, HeaderAndDefaults) {
  const ModelSpec spec = parse_model(R"(
name = "tiny"
input_channels = 3
resolution = 32
classes = 7
init = "kaiming_normal"
[[layers]]
type = "flatten"
[[layers]]
name = "fc"
type = "linear"
)",
                                     "tiny.toml");
  EXPECT_EQ(spec.name, "tiny");
  EXPECT_EQ(spec.source, "tiny.toml");
  EXPECT_EQ(spec.input_channels, 3);
  EXPECT_EQ(spec.resolution, 32);
  EXPECT_EQ(spec.classes, 7);
  EXPECT_EQ(spec.init, InitRule::kaiming_normal);
  EXPECT_EQ(names_of(spec), (Names{"0", "fc"}));
  EXPECT_EQ(at(spec, "0").inputs, Names{"input"});
  EXPECT_EQ(at(spec, "fc").inputs, Names{"0"});
  EXPECT_EQ(at(spec, "fc").out, 0);
  EXPECT_EQ(at(spec, "fc").stage, 1);
}

TEST(Toml, AttributesOfEveryKind) {
  const ModelSpec spec = parse_model(R"(
name = "all"
[[layers]]
name = "conv"
type = "conv2d"
out = 8
kernel = [3, 5]
stride = [1, 2]
padding = [1, 2]
dilation = [2, 1]
groups = 4
bias = false
stage = 3
[[layers]]
name = "bn"
type = "batch_norm"
eps = 0.001
momentum = 0.2
zero_init = true
[[layers]]
name = "act"
type = "leaky_relu"
slope = 0.2
[[layers]]
name = "max"
type = "max_pool"
kernel = 3
[[layers]]
name = "avg"
type = "avg_pool"
kernel = [3, 2]
stride = 2
padding = 1
ceil_mode = true
count_include_pad = false
[[layers]]
name = "drop"
type = "dropout"
p = 0.25
[[layers]]
type = "global_avg_pool"
[[layers]]
type = "flatten"
[[layers]]
name = "fc"
type = "linear"
out = "classes"
bias = false
)",
                                     "all.toml");
  const LayerSpec& conv = at(spec, "conv");
  EXPECT_EQ(conv.out, 8);
  EXPECT_EQ(conv.kernel_h, 3);
  EXPECT_EQ(conv.kernel_w, 5);
  EXPECT_EQ(conv.stride_h, 1);
  EXPECT_EQ(conv.stride_w, 2);
  EXPECT_EQ(conv.pad_h, 1);
  EXPECT_EQ(conv.pad_w, 2);
  EXPECT_EQ(conv.dilation_h, 2);
  EXPECT_EQ(conv.dilation_w, 1);
  EXPECT_EQ(conv.groups, 4);
  EXPECT_FALSE(conv.bias);
  EXPECT_EQ(conv.stage, 3);
  EXPECT_EQ(at(spec, "bn").eps, 0.001f);
  EXPECT_EQ(at(spec, "bn").bn_momentum, 0.2f);
  EXPECT_TRUE(at(spec, "bn").zero_init);
  EXPECT_EQ(at(spec, "act").slope, 0.2f);
  EXPECT_EQ(at(spec, "max").stride_h, 3) << "the stride of a pool is its kernel";
  EXPECT_EQ(at(spec, "avg").kernel_w, 2);
  EXPECT_EQ(at(spec, "avg").stride_w, 2);
  EXPECT_TRUE(at(spec, "avg").ceil_mode);
  EXPECT_FALSE(at(spec, "avg").count_include_pad);
  EXPECT_EQ(at(spec, "drop").p, 0.25f);
  EXPECT_FALSE(at(spec, "fc").bias);
  const std::string text = to_toml(spec);
  EXPECT_EQ(to_toml(parse_model(text, "again")), text);
}

TEST(Toml, RepeatNumbersItsCopies) {
  const ModelSpec spec = parse_model(R"(
name = "repeat"
[[layers]]
name = "body"
repeat = 2
layers = [{type = "conv2d", name = "conv", out = 4, kernel = 3, padding = 1}, {type = "relu"}]
[[layers]]
type = "flatten"
[[layers]]
type = "linear"
)",
                                     "repeat.toml");
  EXPECT_EQ(names_of(spec), (Names{"body.0.conv", "body.0.1", "body.1.conv", "body.1.1", "1", "2"}));
  EXPECT_EQ(at(spec, "body.1.conv").inputs, Names{"body.0.1"});
  EXPECT_EQ(at(spec, "body.1.conv").stage, 0);
  EXPECT_EQ(at(spec, "1").inputs, Names{"body.1.1"});
}

TEST(Toml, ResidualWithProjectionAndActivation) {
  const ModelSpec spec = parse_model(R"(
name = "residual"
[[layers]]
name = "conv1"
type = "conv2d"
out = 4
kernel = 3
padding = 1
[[layers]]
name = "a"
type = "residual"
activation = "silu"
layers = [{type = "conv2d", name = "conv", out = 8, kernel = 3, stride = 2, padding = 1}, {type = "batch_norm", name = "bn"}]
projection = [{type = "conv2d", name = "conv", out = 8, kernel = 1, stride = 2, bias = false}, {type = "batch_norm", name = "bn"}]
[[layers]]
name = "b"
type = "residual"
activation = "none"
layers = [{type = "conv2d", name = "conv", out = 8, kernel = 3, padding = 1}]
[[layers]]
type = "flatten"
[[layers]]
type = "linear"
)",
                                     "residual.toml");
  EXPECT_EQ(names_of(spec), (Names{"conv1", "a.conv", "a.bn", "a.projection.conv", "a.projection.bn", "a.add", "a.silu",
                                   "b.conv", "b.add", "3", "4"}));
  EXPECT_EQ(at(spec, "a.projection.conv").inputs, Names{"conv1"});
  EXPECT_EQ(at(spec, "a.add").inputs, (Names{"a.projection.bn", "a.bn"}));
  EXPECT_EQ(at(spec, "a.silu").kind, LayerKind::silu);
  EXPECT_EQ(at(spec, "b.add").inputs, (Names{"a.silu", "b.conv"}));
  EXPECT_EQ(at(spec, "3").inputs, Names{"b.add"});
}

TEST(Toml, ConcatAndNamesOfOuterScopes) {
  const ModelSpec spec = parse_model(R"(
name = "dag"
[[layers]]
name = "stem"
type = "conv2d"
out = 4
kernel = 1
[[layers]]
name = "cell"
repeat = 2
[[layers.layers]]
name = "left"
type = "conv2d"
out = 2
kernel = 1
[[layers.layers]]
name = "right"
type = "conv2d"
out = 2
kernel = 3
padding = 1
inputs = ["block_input"]
[[layers.layers]]
name = "join"
type = "concat"
inputs = ["left", "previous", "stem"]
[[layers]]
name = "sum"
type = "add"
inputs = ["cell.0.join", "cell.1.join"]
[[layers]]
type = "flatten"
[[layers]]
type = "linear"
)",
                                     "dag.toml");
  EXPECT_EQ(at(spec, "cell.0.right").inputs, Names{"stem"});
  EXPECT_EQ(at(spec, "cell.1.right").inputs, Names{"cell.0.join"});
  EXPECT_EQ(at(spec, "cell.1.join").inputs, (Names{"cell.1.left", "cell.1.right", "stem"}));
  EXPECT_EQ(at(spec, "sum").inputs, (Names{"cell.0.join", "cell.1.join"}));
  const std::string text = to_toml(spec);
  EXPECT_EQ(to_toml(parse_model(text, "again")), text);
}

TEST(Toml, NamesOfBlocksStandForTheirOutputs) {
  const ModelSpec spec = parse_model(R"(
name = "skips"
[[layers]]
name = "stage"
repeat = 2
layers = [
  {name = "a", type = "relu"},
  {name = "block", type = "residual", layers = [{name = "tanh", type = "tanh"}]},
  {name = "plain", type = "residual", activation = "none", layers = [{name = "tanh", type = "tanh"}]},
  {name = "sum", type = "add", inputs = ["block", "plain"]},
]
[[layers]]
name = "group"
layers = [{type = "silu"}, {name = "a", type = "relu", inputs = ["stage.0"]}]
[[layers]]
name = "end"
type = "concat"
inputs = ["stage", "stage.0", "stage.0.block", "group"]
[[layers]]
name = "near"
type = "concat"
inputs = ["group", "group.0", "end"]
)",
                                     "skips.toml");
  EXPECT_EQ(at(spec, "stage.0.sum").inputs, (Names{"stage.0.block.relu", "stage.0.plain.add"}));
  EXPECT_EQ(at(spec, "stage.1.sum").inputs, (Names{"stage.1.block.relu", "stage.1.plain.add"}));
  EXPECT_EQ(at(spec, "group.a").inputs, Names{"stage.0.sum"});
  EXPECT_EQ(at(spec, "end").inputs, (Names{"stage.1.sum", "stage.0.sum", "stage.0.block.relu", "group.a"}));
  EXPECT_EQ(at(spec, "near").inputs, (Names{"group.a", "group.0", "end"}));
}

TEST(Toml, LoadModelReadsAFile) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("renai_model_" + std::to_string(::getpid()) + ".toml");
  std::ofstream(path) << to_toml(load_model("cnn-small"));
  const ModelSpec spec = load_model(path.string());
  std::filesystem::remove(path);
  EXPECT_EQ(spec.source, path.string());
  EXPECT_EQ(to_toml(spec), to_toml(load_model("cnn-small")));
  EXPECT_THROW(load_model(path.string()), UserError);
}

TEST(Verify, NamesModelLayerAndAttribute) {
  ModelSpec spec = load_model("lenet5");
  spec.layers[3].stride_w = 0;
  try {
    verify(spec);
    FAIL() << "stride 0 was accepted";
  } catch (const UserError& error) {
    const std::string what = error.what();
    for (const char* part : {"lenet5", "zoo", "conv2", "stride"}) EXPECT_NE(what.find(part), std::string::npos) << what;
  }
}

}  // namespace
}  // namespace renai
