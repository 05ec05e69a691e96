// The zoo's models as graphs.

#include <gtest/gtest.h>

#include "renai/graph/computation_graph.hpp"
#include "renai/graph/shape_inference.hpp"

namespace renai {
namespace {

struct ZooCase {
  int world_size;
  bool branches;
};

class ZooGraph : public ::testing::TestWithParam<ZooCase> {};

TEST_P(ZooGraph, EveryModelBuildsVerifiesAndHasShapes) {
  ASSERT_FALSE(zoo_model_names().empty());
  for (const std::string& name : zoo_model_names()) {
    SCOPED_TRACE(name);
    GraphOptions options;
    options.world_size = GetParam().world_size;
    options.parallel_branches = GetParam().branches;
    const ModelSpec model = load_model(name);
    const ComputationGraph graph = build_computation_graph(model, options);
    const std::int64_t size = model.resolution > 0 ? model.resolution : 32;
    const std::int64_t channels = model.input_channels > 0 ? model.input_channels : 1;
    for (const bool training : {true, false}) {
      const std::vector<Shape> shapes = infer_shapes(graph, Shape{4, size, size, channels}, training);
      for (const ParamInfo& param : graph.params()) {
        EXPECT_GT(shapes[static_cast<std::size_t>(param.weight)].rank(), 0) << param.name;
      }
      const TensorId logits = training ? graph.parts().logits : graph.parts().inference_logits;
      EXPECT_EQ(shapes[static_cast<std::size_t>(logits)], (Shape{4, options.classes}));
    }
    EXPECT_NE(print_model(graph, Shape{4, size, size, channels}).find("total"), std::string::npos);
  }
}

std::int64_t parameters_of(const std::string& name, std::int64_t classes, std::int64_t size) {
  GraphOptions options;
  options.classes = classes;
  options.input_channels = 3;
  const ComputationGraph graph = build_computation_graph(load_model(name), options);
  const std::vector<Shape> shapes = infer_shapes(graph, Shape{2, size, size, 3}, true);
  std::int64_t elems = 0;
  for (const ParamInfo& param : graph.params()) elems += shapes[static_cast<std::size_t>(param.weight)].elems();
  return elems;
}

/// Figures of torchvision's models with 1000 classes.
TEST(ZooParameters, AreAsManyAsTorchvisions) {
  const std::vector<std::pair<std::string, std::int64_t>> expected{
      {"resnet18", 11689512},  {"resnet34", 21797672},        {"resnet50", 25557032},        {"resnet101", 44549160},
      {"resnet152", 60192808}, {"wide_resnet50_2", 68883240}, {"resnext50_32x4d", 25028904}, {"vgg11", 132863336},
      {"vgg13", 133047848},    {"vgg16", 138357544},          {"vgg19", 143667240},          {"vgg11_bn", 132868840},
      {"vgg13_bn", 133053736}, {"vgg16_bn", 138365992},       {"vgg19_bn", 143678248}};
  for (const auto& [name, count] : expected) EXPECT_EQ(parameters_of(name, 1000, 224), count) << name;
}

/// Those of the paper's networks (269,722, 464,154, 658,586 and 853,018 with shortcuts that have no parameters) and of
/// two projections: 16 x 32 + 2 x 32 and 32 x 64 + 2 x 64.
TEST(ZooParameters, OfCifarResnetsAreThePapersAndTheirProjections) {
  EXPECT_EQ(parameters_of("resnet20", 10, 32), 269722 + 2752);
  EXPECT_EQ(parameters_of("resnet32", 10, 32), 464154 + 2752);
  EXPECT_EQ(parameters_of("resnet44", 10, 32), 658586 + 2752);
  EXPECT_EQ(parameters_of("resnet56", 10, 32), 853018 + 2752);
}

INSTANTIATE_TEST_SUITE_P(Worlds, ZooGraph,
                         ::testing::Values(ZooCase{1, false}, ZooCase{2, false}, ZooCase{8, false}, ZooCase{2, true}));

}  // namespace
}  // namespace renai
