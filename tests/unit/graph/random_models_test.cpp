// Properties of the graphs of many random models.

#include <gtest/gtest.h>

#include <map>

#include "random_model.hpp"
#include "renai/graph/happens_before.hpp"
#include "renai/graph/segments.hpp"
#include "renai/graph/shape_inference.hpp"

namespace renai {
namespace {

constexpr int kSeeds = 250;

using Number = std::uint64_t;
constexpr Number kPrime = 2147483647;  // 2^31 - 1: products of two residues fit.

/// Derivative of a layer's output with respect to its input at a position, as if every layer were linear with random
/// factors.
Number factor(const ModelSpec& model, std::int32_t layer, std::size_t position) {
  const LayerKind kind = model.layers[static_cast<std::size_t>(layer)].kind;
  if (kind == LayerKind::add || kind == LayerKind::flatten) return 1;
  std::mt19937_64 random(static_cast<Number>(layer) * 64 + position);
  return random() % (kPrime - 1) + 1;
}

/// d loss / d output of every layer by summing over the model's paths, without looking at the graph.
std::vector<Number> path_sums(const ModelSpec& model) {
  std::map<std::string, std::size_t> index;
  for (std::size_t i = 0; i < model.layers.size(); ++i) index[model.layers[i].name] = i;
  std::vector<Number> sums(model.layers.size(), 0);
  sums.back() = 1;
  for (std::size_t i = model.layers.size(); i-- > 0;) {
    for (std::size_t k = 0; k < model.layers[i].inputs.size(); ++k) {
      const auto input = index.find(model.layers[i].inputs[k]);
      if (input == index.end()) continue;
      Number& sum = sums[input->second];
      sum = (sum + factor(model, static_cast<std::int32_t>(i), k) * sums[i]) % kPrime;
    }
  }
  return sums;
}

/// Runs the backward nodes on residues and compares the gradient that reaches each parameter's layer with the path
/// sums.
class ResidueInterpreter {
 public:
  explicit ResidueInterpreter(const ComputationGraph& graph) : graph_(graph), wanted_(path_sums(graph.model())) {}

  /// Number of parameters whose gradient was compared.
  std::size_t run() {
    visit(GraphId::DEEP_FWD_BWD);
    visit(GraphId::FIRST_LAYER_BWD_A);
    return compared_;
  }

 private:
  void visit(GraphId id) {
    for (const Node& node : graph_.nodes(id)) visit_node(std::get<ComputeNode>(node.work));
  }

  void visit_node(const ComputeNode& node) {
    if (node.op == OpKind::add && node.layer < 0) {
      values_[node.outputs[0]] = (values_.at(node.inputs[0]) + values_.at(node.inputs[1])) % kPrime;
      return;
    }
    if (node.pass == Pass::forward) return;
    if (node.op == OpKind::softmax_cross_entropy) {
      values_[node.outputs[0]] = 1;
      return;
    }
    Number dy = 0;
    for (const TensorId input : node.inputs) {
      if (graph_.tensor(input).role == TensorRole::activation_grad) dy = values_.at(input);
    }
    std::size_t position = 0;
    for (const TensorId output : node.outputs) {
      if (graph_.tensor(output).role == TensorRole::grad) {
        EXPECT_EQ(dy, wanted_[static_cast<std::size_t>(node.layer)]) << node.name;
        ++compared_;
      } else {
        values_[output] = factor(graph_.model(), node.layer, position++) * dy % kPrime;
      }
    }
  }

  const ComputationGraph& graph_;
  std::vector<Number> wanted_;
  std::map<TensorId, Number> values_;
  std::size_t compared_ = 0;
};

GraphOptions options_for(std::uint64_t seed) {
  GraphOptions options;
  options.world_size = 1 << (seed % 4);
  options.input_channels = 3;
  options.parallel_branches = seed % 2 == 1;
  return options;
}

/// Random bucket for each parameter.
std::vector<int> random_buckets(std::uint64_t seed, std::size_t params) {
  std::mt19937_64 random(seed);
  std::vector<int> buckets(params);
  for (int& bucket : buckets) bucket = static_cast<int>(random() % 5);
  return buckets;
}

TEST(RandomModels, AreValidAndVaried) {
  std::map<LayerKind, int> kinds;
  int joins = 0, long_first_layers = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const ModelSpec model = testing::random_model(seed);
    SCOPED_TRACE(print(model));
    verify(model);
    std::map<std::string, int> readers;
    for (const LayerSpec& layer : model.layers) {
      ++kinds[layer.kind];
      for (const std::string& input : layer.inputs) joins += ++readers[input] == 2;
    }
    long_first_layers += readers["input"] > 1;
  }
  EXPECT_EQ(kinds.size(), 18u) << "every kind of layer occurs";
  for (const auto& [kind, count] : kinds) EXPECT_GT(count, 20) << layer_kind_name(kind);
  EXPECT_GT(joins, kSeeds);
  EXPECT_GT(long_first_layers, kSeeds / 10);
}

TEST(RandomModels, BuildVerifyAndHaveShapes) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const ComputationGraph graph = build_computation_graph(testing::random_model(seed), options_for(seed));
    for (const bool training : {true, false}) {
      const std::vector<Shape> shapes = infer_shapes(graph, Shape{2, 16, 16, 3}, training);
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        const TensorInfo& info = graph.tensors()[i];
        const bool other_family = is_transient(info.role) && info.name.starts_with("inference.") == training;
        EXPECT_EQ(shapes[i].rank() == 0, other_family || info.role == TensorRole::slot) << info.name;
      }
    }
  }
}

TEST(RandomModels, GradientsFollowEveryPathOnce) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const ComputationGraph graph = build_computation_graph(testing::random_model(seed), options_for(seed));
    EXPECT_EQ(ResidueInterpreter(graph).run(), graph.params().size());
  }
}

TEST(RandomModels, GradientTensorsHaveTheShapesOfTheirTensors) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const ComputationGraph graph = build_computation_graph(testing::random_model(seed), options_for(seed));
    const std::vector<Shape> shapes = infer_shapes(graph, Shape{2, 16, 16, 3}, true);
    std::map<std::string, Shape> by_name;
    for (std::size_t i = 0; i < shapes.size(); ++i) by_name[graph.tensors()[i].name] = shapes[i];
    for (const auto& [name, shape] : by_name) {
      const std::size_t suffix = name.find(".grad");
      if (suffix == std::string::npos) continue;
      EXPECT_EQ(shape, by_name.at(name.substr(0, suffix))) << name;
    }
  }
}

TEST(RandomModels, RandomBucketsPartitionTheParameters) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const ModelSpec model = testing::random_model(seed);
    GraphOptions options = options_for(seed);
    const std::size_t params = build_computation_graph(model, options).params().size();
    options.bucket_of_param = random_buckets(seed, params);
    const ComputationGraph graph = build_computation_graph(model, options);  // Verifies the events.
    std::size_t in_segments = 0;
    for (const Segment& segment : parameter_segments(graph)) in_segments += segment.params.size();
    EXPECT_EQ(in_segments, params);
    EXPECT_EQ(graph.nodes(GraphId::OPTIMIZER).size(), parameter_segments(graph).size());
    if (options.world_size > 1) {
      EXPECT_EQ(graph.nodes(GraphId::DEEP_COMM).size(), static_cast<std::size_t>(graph.deep_buckets()));
    }
  }
}

TEST(RandomModels, BranchesChangeTheScheduleOnly) {
  int parallel = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const ModelSpec model = testing::random_model(seed);
    GraphOptions options;
    const ComputationGraph one = build_computation_graph(model, options);
    options.parallel_branches = true;
    const ComputationGraph two = build_computation_graph(model, options);
    for (int i = 0; i < kGraphIdCount; ++i) {
      const auto id = static_cast<GraphId>(i);
      ASSERT_EQ(one.nodes(id).size(), two.nodes(id).size());
      const HappensBefore order(two.nodes(id));
      for (std::int32_t k = 0; k < order.size(); ++k) {
        ASSERT_EQ(one.nodes(id)[static_cast<std::size_t>(k)].name(), two.nodes(id)[static_cast<std::size_t>(k)].name());
        if (k > 0) parallel += order.concurrent(k - 1, k);
      }
    }
  }
  EXPECT_GT(parallel, kSeeds / 2) << "some neighbours run beside each other";
}

TEST(RandomModels, PrintIsAFunctionOfTheModel) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const ComputationGraph a = build_computation_graph(testing::random_model(seed), options_for(seed));
    const ComputationGraph b = build_computation_graph(testing::random_model(seed), options_for(seed));
    const ComputationGraph c = build_computation_graph(testing::random_model(seed + 1), options_for(seed));
    EXPECT_EQ(print(a), print(b));
    EXPECT_NE(print(a), print(c));
  }
}

TEST(RandomModels, OneModelFitsSeveralResolutionsWithEqualParameters) {
  testing::RandomModelOptions random;
  random.resolutions = {9, 12, 16};
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const ComputationGraph graph = build_computation_graph(testing::random_model(seed, random), options_for(seed));
    const std::vector<Shape> reference = infer_shapes(graph, Shape{2, 9, 9, 3}, true);
    for (const std::int64_t size : {12, 16}) {
      const std::vector<Shape> shapes = infer_shapes(graph, Shape{3, size, size, 3}, true);
      for (const ParamInfo& param : graph.params()) {
        EXPECT_EQ(shapes[static_cast<std::size_t>(param.weight)], reference[static_cast<std::size_t>(param.weight)])
            << param.name;
      }
    }
  }
}

}  // namespace
}  // namespace renai
