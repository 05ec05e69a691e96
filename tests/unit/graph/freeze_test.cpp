// Freeze groups as parts of graphs, and micro-batches of a shard.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>

#include "graph_text.hpp"
#include "model_builder.hpp"
#include "renai/base/error.hpp"
#include "renai/graph/region_name.hpp"
#include "renai/graph/segments.hpp"

namespace renai {
namespace {

using ::testing::ElementsAre;
using testing::ModelBuilder;
using testing::node_texts;

/// conv (first layer), bn x2, fc x2: parameters 0..4.
ModelSpec small_model() {
  ModelBuilder model;
  model.conv("conv", "input", 4).layer(LayerKind::batch_norm, "bn", {"conv"}).linear("fc", "bn");
  return model.spec();
}

ComputationGraph build(std::vector<int> groups, OptimizerKind optimizer = OptimizerKind::sgd) {
  GraphOptions options;
  options.optimizer = optimizer;
  options.freeze_group_of_param = std::move(groups);
  return build_computation_graph(small_model(), options);
}

std::vector<std::string> segment_names(const ComputationGraph& graph) {
  std::vector<std::string> names;
  for (const Segment& segment : parameter_segments(graph)) names.push_back(segment.name);
  return names;
}

/// Segments that the parts of the optimizer update.
std::map<int, std::vector<std::string>> updated(const ComputationGraph& graph) {
  std::map<int, std::vector<std::string>> parts;
  for (const Node& node : graph.nodes(GraphId::OPTIMIZER)) {
    parts[node.part].push_back(std::get<RangeNode>(node.work).outputs.at(0));
  }
  return parts;
}

TEST(FreezeGroups, SplitSegmentsAndTheOptimizer) {
  const ComputationGraph graph = build({1, 0, 0, 2, 0});
  EXPECT_THAT(segment_names(graph), ElementsAre("deep0.decay_g2", "deep0.nodecay", "first.decay_g1"));
  EXPECT_EQ(updated(graph),
            (std::map<int, std::vector<std::string>>{
                {0, {"weights.deep0.nodecay"}}, {1, {"weights.first.decay_g1"}}, {2, {"weights.deep0.decay_g2"}}}));
  EXPECT_THAT(freeze_group_of_parts(graph, GraphId::OPTIMIZER), ElementsAre(0, 1, 2));
  EXPECT_THAT(node_texts(graph, GraphId::ZERO_GRAD),
              ElementsAre("zero() -> shard", "zero() -> grad.first.decay_g1", "zero() -> grad.deep0.decay_g2"));
  EXPECT_THAT(freeze_group_of_parts(graph, GraphId::ZERO_GRAD), ElementsAre(0, 1, 2));
  EXPECT_EQ(graph.params()[3].freeze_group, 2);
}

TEST(FreezeGroups, PartsAreDenseWhereAGroupHasNothingToUpdate) {
  const ComputationGraph graph = build({1, 1, 1, 4, 4});
  EXPECT_THAT(freeze_group_of_parts(graph, GraphId::OPTIMIZER), ElementsAre(1, 4));
  EXPECT_THAT(freeze_group_of_parts(graph, GraphId::ZERO_GRAD), ElementsAre(0, 1, 4));
}

/// Each group's part begins with the count of its updates; what is never frozen has that of the run.
TEST(FreezeGroups, CountTheUpdatesOfAdam) {
  for (const OptimizerKind kind : {OptimizerKind::adam, OptimizerKind::adamw}) {
    const ComputationGraph graph = build({1, 0, 0, 3, 0}, kind);
    EXPECT_THAT(freeze_group_of_parts(graph, GraphId::OPTIMIZER), ElementsAre(0, 1, 3));
    int part = -1;
    for (const Node& node : graph.nodes(GraphId::OPTIMIZER)) {
      const auto& work = std::get<RangeNode>(node.work);
      EXPECT_EQ(work.op == RangeOp::adam_corrections, node.part != part && node.part > 0) << work.name;
      EXPECT_EQ(work.params.freeze_group, (std::array{0, 1, 3}[static_cast<std::size_t>(node.part)]));
      part = node.part;
    }
    EXPECT_EQ(scalar_count(graph), region_name::kScalarCount + 9);
    EXPECT_NE(print(graph).find("freeze_group 3"), std::string::npos);
    EXPECT_EQ(scalar_count(build({0, 0, 0, 0, 0}, kind)), region_name::kScalarCount);
  }
  EXPECT_EQ(scalar_count(build({1, 0, 0, 3, 0})), region_name::kScalarCount);
}

TEST(FreezeGroups, WithoutThemThereIsOnePart) {
  for (const ComputationGraph& graph : {build({}), build({0, 0, 0, 0, 0})}) {
    EXPECT_EQ(graph.part_count(GraphId::OPTIMIZER), 1);
    EXPECT_EQ(graph.part_count(GraphId::ZERO_GRAD), 1);
    EXPECT_THAT(segment_names(graph), ElementsAre("deep0.decay", "deep0.nodecay", "first.decay"));
  }
}

TEST(FreezeGroups, WrongListsAreRefused) {
  EXPECT_THROW(build({0, 0}), InternalError);
  EXPECT_THROW(build({0, -1, 0, 0, 0}), InternalError);
}

TEST(MicroBatches, AreSummedBeforeTheCounter) {
  GraphOptions options;
  options.micro_batches = 3;
  const ComputationGraph graph = build_computation_graph(small_model(), options);
  EXPECT_THAT(node_texts(graph, GraphId::CAST_DEEP_GRAD),
              ElementsAre("merge_shard(grad.deep0, counter0, counter1, counter2, micro) -> grad.deep0"));
  EXPECT_NE(print(graph).find(" micro_batches 3"), std::string::npos);
  options.world_size = 8;
  const ComputationGraph alone = build_computation_graph(small_model(), options);
  EXPECT_THAT(node_texts(alone, GraphId::CAST_FIRST_GRAD),
              ElementsAre("merge_shard(grad.first, metrics, bn_batch, micro) -> grad.first, metrics, bn_batch"));
  for (const GraphId id : {GraphId::NAN_CHECK_AND_GRAD_SCALING, GraphId::UPDATE_STATS, GraphId::CAST_DEEP_GRAD}) {
    EXPECT_EQ(std::get<RangeNode>(alone.nodes(id)[0].work).params.micro_batches, 3) << graph_id_name(id);
  }
}

}  // namespace
}  // namespace renai
