// Exponential averages (EMA): what the graph has with them, and nothing without.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph_text.hpp"
#include "model_builder.hpp"
#include "renai/base/error.hpp"

namespace renai {
namespace {

using ::testing::ElementsAre;
using testing::ModelBuilder;
using testing::node_texts;

ModelSpec small_model(bool norm = true) {
  ModelBuilder model;
  model.conv("conv", "input", 4);
  if (norm) model.layer(LayerKind::batch_norm, "bn", {"conv"});
  return model.linear("fc", norm ? "bn" : "conv").spec();
}

ComputationGraph build(const GraphOptions& options, bool norm = true) {
  return build_computation_graph(small_model(norm), options);
}

TEST(EmaGraphs, UpdateFoldCastAndDigest) {
  GraphOptions options;
  options.ema_decay = 0.75;
  options.half_weights = true;
  const ComputationGraph graph = build(options);
  EXPECT_THAT(node_texts(graph, GraphId::EMA_UPDATE),
              ElementsAre("ema(weights, bn_running, scalars) -> ema, ema_running"));
  EXPECT_EQ(std::get<RangeNode>(graph.nodes(GraphId::EMA_UPDATE)[0].work).params.ema_decay, 0.75);
  EXPECT_THAT(node_texts(graph, GraphId::CAST_EMA), ElementsAre("cast_weights(ema) -> ema_half"));
  EXPECT_THAT(node_texts(graph, GraphId::UPDATE_BN_INF_PARAMS),
              ElementsAre("fold_batch_norm(bn_running, weights) -> bn_folded",
                          "fold_batch_norm(ema_running, ema) -> ema_folded"));
  EXPECT_THAT(node_texts(graph, GraphId::SIMPLE_TASK_GRAPH),
              ElementsAre("digest(weights, momentum, bn_running, grad, ema, ema_running) -> digests"));
  EXPECT_NE(print(graph).find(" ema_decay 0.75"), std::string::npos);
}

TEST(EmaGraphs, InferenceReadsAveragesInPlaceOfWeights) {
  GraphOptions options;
  options.ema_decay = 0.5;
  const ComputationGraph graph = build(options);
  for (const auto& [main, ema] :
       {std::pair{GraphId::INF_MAIN_A, GraphId::INF_EMA_A}, {GraphId::INF_MAIN_B, GraphId::INF_EMA_B}}) {
    ASSERT_EQ(graph.nodes(main).size(), graph.nodes(ema).size());
    int replaced = 0;
    for (std::size_t i = 0; i < graph.nodes(main).size(); ++i) {
      const auto& own = std::get<ComputeNode>(graph.nodes(main)[i].work);
      const auto& averaged = std::get<ComputeNode>(graph.nodes(ema)[i].work);
      EXPECT_EQ(own.name, averaged.name);
      EXPECT_EQ(own.outputs, averaged.outputs) << "activations are shared";
      for (std::size_t k = 0; k < own.inputs.size(); ++k) {
        const TensorInfo &a = graph.tensor(own.inputs[k]), &b = graph.tensor(averaged.inputs[k]);
        EXPECT_FALSE(a.average);
        EXPECT_EQ(a.role, b.role);
        const bool persistent = a.param >= 0 || a.norm >= 0;
        EXPECT_EQ(b.average, persistent) << a.name;
        if (persistent) {
          EXPECT_EQ(b.name, "ema." + a.name);
        }
        replaced += persistent ? 1 : 0;
      }
    }
    EXPECT_EQ(replaced, 5) << "conv.weight, the folded scale and bias, fc.weight, fc.bias";
  }
}

TEST(EmaGraphs, WithoutNormsOnlyWeightsAreAveraged) {
  GraphOptions options;
  options.ema_decay = 0.5;
  const ComputationGraph graph = build(options, false);
  EXPECT_THAT(node_texts(graph, GraphId::EMA_UPDATE), ElementsAre("ema(weights, scalars) -> ema"));
  EXPECT_TRUE(graph.empty(GraphId::UPDATE_BN_INF_PARAMS));
  EXPECT_TRUE(graph.empty(GraphId::CAST_EMA));
}

TEST(EmaGraphs, WithoutTheOptionThereIsNone) {
  const ComputationGraph graph = build({});
  for (const GraphId id : {GraphId::EMA_UPDATE, GraphId::CAST_EMA, GraphId::INF_EMA_A, GraphId::INF_EMA_B}) {
    EXPECT_TRUE(graph.empty(id)) << graph_id_name(id);
  }
  for (const TensorInfo& tensor : graph.tensors()) EXPECT_FALSE(tensor.average);
  EXPECT_EQ(print(graph).find("ema"), std::string::npos);
}

TEST(EmaGraphs, VerifierRefusesAMissingAverage) {
  GraphOptions options;
  options.ema_decay = 0.5;
  const ComputationGraph good = build(options);
  const auto refused = [&](auto change) {
    ComputationGraph::Parts parts = good.parts();
    change(parts);
    EXPECT_THROW(ComputationGraph(std::move(parts)), InternalError);
  };
  refused([](auto& parts) { parts.params[0].ema = kNoTensor; });
  refused([](auto& parts) { parts.params[0].ema = parts.params[0].weight; });
  refused([](auto& parts) { parts.norms[0].ema_var = parts.norms[0].ema_mean; });
  refused([](auto& parts) { parts.options.ema_decay = 0.0; });
}

TEST(BatchNormMomentum, OneValueForAllLayersOrEachLayersOwn) {
  GraphOptions options;
  EXPECT_EQ(build(options).norms()[0].momentum, 0.1f);
  options.bn_momentum = 0.25f;
  const ComputationGraph graph = build(options);
  EXPECT_EQ(graph.norms()[0].momentum, 0.25f);
  EXPECT_NE(print(graph).find(" bn_momentum 0.25"), std::string::npos);
}

}  // namespace
}  // namespace renai
