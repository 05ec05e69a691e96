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

INSTANTIATE_TEST_SUITE_P(Worlds, ZooGraph,
                         ::testing::Values(ZooCase{1, false}, ZooCase{2, false}, ZooCase{8, false}, ZooCase{2, true}));

}  // namespace
}  // namespace renai
