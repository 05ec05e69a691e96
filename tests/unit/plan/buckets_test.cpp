#include <gtest/gtest.h>

#include <map>
#include <set>

#include "plan_case.hpp"
#include "renai/base/error.hpp"
#include "renai/graph/shape_inference.hpp"

namespace renai {
namespace {

struct Draft {
  explicit Draft(const std::string& model)
      : graph(build_computation_graph(load_model(model), options(model))),
        shapes(infer_shapes(graph, Shape{4, input_size(model), input_size(model), input_channels(model)}, true)) {}
  static GraphOptions options(const std::string& model) {
    GraphOptions features;
    features.input_channels = input_channels(model);
    return features;
  }
  ComputationGraph graph;
  std::vector<Shape> shapes;
};

TEST(Buckets, OneWhenTheLimitIsLarge) {
  const Draft draft("resnet9");
  const std::vector<int> buckets = assign_buckets(draft.graph, draft.shapes, std::int64_t{1} << 40);
  for (std::size_t i = 0; i < buckets.size(); ++i) EXPECT_EQ(buckets[i], draft.graph.params()[i].first_layer ? 1 : 0);
}

TEST(Buckets, OneForEachLayerWhenTheLimitIsAByte) {
  const Draft draft("resnet9");
  const std::vector<int> buckets = assign_buckets(draft.graph, draft.shapes, 1);
  std::map<std::int32_t, std::set<int>> by_layer;
  for (std::size_t i = 0; i < buckets.size(); ++i) by_layer[draft.graph.params()[i].layer].insert(buckets[i]);
  std::set<int> all;
  for (const auto& [layer, of_layer] : by_layer) {
    EXPECT_EQ(of_layer.size(), 1u) << "layer " << layer << " is split";
    all.insert(of_layer.begin(), of_layer.end());
  }
  EXPECT_EQ(all.size(), by_layer.size());
}

TEST(Buckets, FollowTheOrderOfBackwardAndReachTheLimit) {
  const std::int64_t limit = 1 << 20;
  const Draft draft("resnet9");
  const std::vector<int> buckets = assign_buckets(draft.graph, draft.shapes, limit);
  std::map<int, std::int64_t> bytes;
  int previous = 0;
  for (const Node& node : draft.graph.nodes(GraphId::DEEP_FWD_BWD)) {
    for (const TensorId output : std::get<ComputeNode>(node.work).outputs) {
      if (draft.graph.tensor(output).role != TensorRole::grad) continue;
      const int bucket = buckets[static_cast<std::size_t>(draft.graph.tensor(output).param)];
      EXPECT_GE(bucket, previous);
      EXPECT_LE(bucket, previous + 1);
      previous = bucket;
      bytes[bucket] += align_slot(draft.shapes[static_cast<std::size_t>(output)].elems() * 4);
    }
  }
  ASSERT_GT(previous, 1);
  for (int bucket = 0; bucket < previous; ++bucket) EXPECT_GE(bytes[bucket], limit) << bucket;

  GraphOptions features = Draft::options("resnet9");
  features.bucket_of_param = buckets;
  const ComputationGraph graph = build_computation_graph(load_model("resnet9"), features);
  EXPECT_EQ(graph.deep_buckets(), previous + 1);
  for (std::size_t i = 0; i < buckets.size(); ++i) EXPECT_EQ(graph.params()[i].bucket, buckets[i]);
}

TEST(Buckets, ALimitBelowOneIsRefused) {
  const Draft draft("lenet5");
  EXPECT_THROW(assign_buckets(draft.graph, draft.shapes, 0), UserError);
}

TEST(DeriveShapes, ErrorsNameTheVariant) {
  const Draft draft("lenet5");
  const std::vector<CompileSpec> specs{{"train_base", VariantKind::training, {4, 28, 28, 1}, false},
                                       {"val_base", VariantKind::validation, {4, 2, 2, 1}, false}};
  try {
    derive_shapes(draft.graph, specs);
    FAIL() << "a 2x2 image is too small";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("resolution 2 (variant val_base, 4x2x2x1)"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace renai
