// Graphs of RANGE nodes, segments, buckets and their events.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph_text.hpp"
#include "model_builder.hpp"
#include "renai/base/error.hpp"
#include "renai/graph/happens_before.hpp"
#include "renai/graph/segments.hpp"

namespace renai {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::ModelBuilder;
using testing::node_texts;

/// conv1 (first layer) bn1 conv2 (with bias) bn2 fc: parameters 0..8.
ModelSpec model_with_norms() {
  ModelBuilder model;
  model.conv("conv1", "input", 4).layer(LayerKind::batch_norm, "bn1", {"conv1"});
  model.conv("conv2", "bn1", 4, 3, true).layer(LayerKind::batch_norm, "bn2", {"conv2"}).linear("fc", "bn2");
  return model.spec();
}

ComputationGraph build_with_buckets(std::vector<int> buckets, bool branches = false) {
  GraphOptions options;
  options.world_size = 2;
  options.bucket_of_param = std::move(buckets);
  options.parallel_branches = branches;
  return build_computation_graph(model_with_norms(), options);
}

std::vector<std::string> segment_names(const ComputationGraph& graph) {
  std::vector<std::string> names;
  for (const Segment& segment : parameter_segments(graph)) names.push_back(segment.name);
  return names;
}

TEST(Buckets, WithoutAPlanAllDeepParametersShareOne) {
  const ComputationGraph graph = build_with_buckets({});
  EXPECT_EQ(graph.deep_buckets(), 1);
  EXPECT_THAT(segment_names(graph), ElementsAre("deep0.decay", "deep0.nodecay", "first.decay"));
  EXPECT_TRUE(graph.params()[0].first_layer);
  EXPECT_EQ(graph.params()[0].bucket, 1);
  EXPECT_EQ(testing::find_node(graph, GraphId::DEEP_FWD_BWD, "bn1.backward") + 1,
            static_cast<std::int32_t>(graph.nodes(GraphId::DEEP_FWD_BWD).size()));
  EXPECT_EQ(graph.nodes(GraphId::DEEP_FWD_BWD).back().records_event, 0);
}

TEST(Buckets, AreNumberedInTheOrderInWhichBackwardCompletesThem) {
  // conv1.weight | bn1 x2 | conv2 x2 | bn2 x2 | fc x2, numbered from the front and with a gap.
  const ComputationGraph graph = build_with_buckets({9, 0, 0, 3, 3, 3, 3, 7, 7});
  EXPECT_EQ(graph.deep_buckets(), 3);
  std::vector<int> buckets;
  for (const ParamInfo& param : graph.params()) buckets.push_back(param.bucket);
  EXPECT_THAT(buckets, ElementsAre(3, 2, 2, 1, 1, 1, 1, 0, 0));
  EXPECT_THAT(segment_names(graph), ElementsAre("deep0.decay", "deep0.nodecay", "deep1.decay", "deep1.nodecay",
                                                "deep2.nodecay", "first.decay"));
  const std::vector<Node>& nodes = graph.nodes(GraphId::DEEP_FWD_BWD);
  const auto event_of = [&](const char* name) {
    return nodes[static_cast<std::size_t>(testing::find_node(graph, GraphId::DEEP_FWD_BWD, name))].records_event;
  };
  EXPECT_EQ(event_of("fc.backward_weights"), 0);
  EXPECT_EQ(event_of("conv2.backward_weights"), 1);
  EXPECT_EQ(event_of("bn1.backward"), 2);
  EXPECT_EQ(event_of("bn2.backward"), -1);
  EXPECT_EQ(graph.part_count(GraphId::DEEP_COMM), 3);
  EXPECT_EQ(graph.part_count(GraphId::CAST_DEEP_GRAD), 3);
}

TEST(Buckets, ParametersOfOneLayerStayTogether) {
  const ComputationGraph graph = build_with_buckets({2, 1, 1, 0, 1, 0, 0, 0, 0});
  EXPECT_EQ(graph.params()[3].bucket, graph.params()[4].bucket);  // conv2.weight goes with its bias.
  EXPECT_EQ(graph.deep_buckets(), 2);
}

TEST(Buckets, EventsCoverAllBranches) {
  for (const bool branches : {false, true})
    EXPECT_EQ(build_with_buckets({9, 0, 0, 1, 1, 2, 2, 3, 3}, branches).deep_buckets(), 4);
}

TEST(Buckets, WrongListsAreRefused) {
  EXPECT_THROW(build_with_buckets({0, 0}), InternalError);
  EXPECT_THROW(build_with_buckets({0, -1, 0, 0, 0, 0, 0, 0, 0}), InternalError);
}

TEST(RangeGraphs, OneRankOfEightShards) {
  const ComputationGraph graph = build_computation_graph(model_with_norms(), {});
  const std::vector<std::string> bucket = node_texts(graph, GraphId::CAST_DEEP_GRAD);
  EXPECT_THAT(bucket, ElementsAre("merge_shard(grad.deep0, counter0, counter1, counter2) -> grad.deep0"));
  EXPECT_THAT(
      node_texts(graph, GraphId::CAST_FIRST_GRAD),
      ElementsAre("merge_shard(grad.first, metrics, bn_batch, counter0, counter1, counter2) -> grad.first, metrics, "
                  "bn_batch"));
  for (const GraphId id : {GraphId::DEEP_COMM, GraphId::FIRST_COMM, GraphId::STATS_COMM}) {
    EXPECT_THAT(node_texts(graph, id), IsEmpty());
  }
  EXPECT_THAT(node_texts(graph, GraphId::VAL_RESULT_COMM),
              ElementsAre("reduce_accumulators(accumulators) -> accumulators"));
}

TEST(RangeGraphs, OneShardForEachRank) {
  GraphOptions options;
  options.world_size = 8;
  const ComputationGraph graph = build_computation_graph(model_with_norms(), options);
  EXPECT_THAT(node_texts(graph, GraphId::CAST_DEEP_GRAD), IsEmpty());
  EXPECT_THAT(node_texts(graph, GraphId::CAST_FIRST_GRAD), IsEmpty());
  EXPECT_THAT(node_texts(graph, GraphId::DEEP_COMM), ElementsAre("tree_reduce(grad.deep0) -> grad.deep0"));
  EXPECT_THAT(node_texts(graph, GraphId::FIRST_COMM),
              ElementsAre("tree_reduce(grad.first, metrics) -> grad.first, metrics"));
  EXPECT_THAT(node_texts(graph, GraphId::STATS_COMM), ElementsAre("tree_reduce(bn_batch) -> bn_batch"));
}

TEST(RangeGraphs, TheRestOfAStep) {
  const ComputationGraph graph = build_computation_graph(model_with_norms(), {});
  EXPECT_THAT(node_texts(graph, GraphId::TRANSFER_A), ElementsAre("copy_slot() -> slot_a"));
  EXPECT_THAT(node_texts(graph, GraphId::TRANSFER_B), ElementsAre("copy_slot() -> slot_b"));
  EXPECT_THAT(node_texts(graph, GraphId::ZERO_GRAD), ElementsAre("zero() -> shard"));
  EXPECT_THAT(node_texts(graph, GraphId::NAN_CHECK_AND_GRAD_SCALING),
              ElementsAre("check_and_scale(grad, metrics) -> grad, scalars"));
  EXPECT_THAT(node_texts(graph, GraphId::UPDATE_STATS),
              ElementsAre("update_statistics(bn_batch, scalars) -> bn_running"));
  EXPECT_THAT(node_texts(graph, GraphId::UPDATE_BN_INF_PARAMS),
              ElementsAre("fold_batch_norm(bn_running, weights) -> bn_folded"));
  for (const GraphId id :
       {GraphId::ACCUM_METRICS, GraphId::ACCUM_METRICS_TRAIN_LAST, GraphId::ACCUM_METRICS_VAL_LAST}) {
    EXPECT_THAT(node_texts(graph, id),
                ElementsAre("accumulate(metrics, scalars) -> accumulators", "read_back(metrics, scalars) -> "));
  }
  EXPECT_THAT(node_texts(graph, GraphId::CLEAR_METRICS), ElementsAre("clear_accumulators() -> accumulators"));
  EXPECT_THAT(node_texts(graph, GraphId::SIMPLE_TASK_GRAPH),
              ElementsAre("digest(weights, momentum, bn_running, grad) -> digests"));
  for (const GraphId id :
       {GraphId::LARS_FC_OPT, GraphId::LARS_FIRST_CONV_OPT, GraphId::LARS_DEEP_CONV_OPT, GraphId::EMA_UPDATE,
        GraphId::CAST_MAIN, GraphId::CAST_EMA, GraphId::INF_EMA_A, GraphId::INF_EMA_B}) {
    EXPECT_TRUE(graph.empty(id)) << graph_id_name(id);
  }
}

TEST(RangeGraphs, HalfPrecisionCastsTheWeightsAndMayScaleTheLoss) {
  GraphOptions options;
  const auto check = [](const ComputationGraph& graph) {
    return std::get<RangeNode>(graph.nodes(GraphId::NAN_CHECK_AND_GRAD_SCALING)[0].work).params;
  };
  const ComputationGraph plain = build_computation_graph(model_with_norms(), options);
  EXPECT_FALSE(check(plain).dynamic_loss_scale);
  options.half_weights = true;
  const ComputationGraph half = build_computation_graph(model_with_norms(), options);
  EXPECT_THAT(node_texts(half, GraphId::CAST_MAIN), ElementsAre("cast_weights(weights) -> weights_half"));
  EXPECT_FALSE(check(half).dynamic_loss_scale);
  options.dynamic_loss_scale = true;
  const ComputationGraph scaled = build_computation_graph(model_with_norms(), options);
  EXPECT_TRUE(check(scaled).dynamic_loss_scale);
  EXPECT_EQ(check(scaled).loss_scale_interval, 2000);
  const std::string text = print(scaled);
  for (const char* word :
       {" half_weights dynamic_loss_scale", "loss_scale interval 2000 growth 2 backoff 0.5 floor 1"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word;
  }
  EXPECT_EQ(print(plain).find("loss_scale"), std::string::npos);
}

TEST(RangeGraphs, WithoutNormsTheirGraphsAreEmpty) {
  GraphOptions options;
  options.world_size = 2;
  const ComputationGraph graph =
      build_computation_graph(ModelBuilder().conv("c", "input", 2).linear("fc", "c").spec(), options);
  for (const GraphId id : {GraphId::STATS_COMM, GraphId::UPDATE_STATS, GraphId::UPDATE_BN_INF_PARAMS})
    EXPECT_TRUE(graph.empty(id));
  EXPECT_THAT(node_texts(graph, GraphId::CAST_FIRST_GRAD),
              ElementsAre("merge_shard(grad.first, metrics, counter0, counter1) -> grad.first, metrics"));
  EXPECT_THAT(node_texts(graph, GraphId::SIMPLE_TASK_GRAPH), ElementsAre("digest(weights, momentum, grad) -> digests"));
}

TEST(RangeGraphs, WithoutFirstLayerParametersOnlyMetricsRideAlong) {
  GraphOptions options;
  options.world_size = 2;
  ModelBuilder model;
  model.pool(LayerKind::max_pool, "pool1", "input").linear("fc", "pool1");
  const ComputationGraph graph = build_computation_graph(model.spec(), options);
  EXPECT_THAT(node_texts(graph, GraphId::FIRST_COMM), ElementsAre("tree_reduce(metrics) -> metrics"));
  EXPECT_THAT(segment_names(graph), ElementsAre("deep0.decay", "deep0.nodecay"));
}

TEST(Optimizer, OneUpdateForEachSegmentAndNoDecayWhereNotWanted) {
  GraphOptions options;
  options.weight_decay = 0.125f;
  options.momentum = 0.5f;
  options.nesterov = true;
  for (const bool decay_all : {false, true}) {
    options.bn_weight_decay = decay_all;
    const ComputationGraph graph = build_computation_graph(model_with_norms(), options);
    const std::vector<Segment> segments = parameter_segments(graph);
    ASSERT_EQ(graph.nodes(GraphId::OPTIMIZER).size(), segments.size());
    for (std::size_t i = 0; i < segments.size(); ++i) {
      const auto& node = std::get<RangeNode>(graph.nodes(GraphId::OPTIMIZER)[i].work);
      const std::string& name = segments[i].name;
      EXPECT_THAT(node.inputs, ElementsAre("grad." + name, "weights." + name, "momentum." + name, "scalars"));
      EXPECT_THAT(node.outputs, ElementsAre("weights." + name, "momentum." + name));
      EXPECT_EQ(node.params.weight_decay, segments[i].decay ? 0.125f : 0.0f);
      EXPECT_EQ(node.params.momentum, 0.5f);
      EXPECT_TRUE(node.params.nesterov);
    }
    for (const ParamInfo& param : graph.params()) {
      const bool weight = param.kind == ParamKind::conv_weight || param.kind == ParamKind::linear_weight;
      EXPECT_EQ(param.decay, weight || decay_all) << param.name;
    }
  }
}

TEST(Optimizer, AdamHasTwoMoments) {
  GraphOptions options;
  options.weight_decay = 0.125f;
  options.adam = {0.8, 0.99, 1e-6f};
  for (const OptimizerKind kind : {OptimizerKind::adam, OptimizerKind::adamw}) {
    options.optimizer = kind;
    const ComputationGraph graph = build_computation_graph(model_with_norms(), options);
    const std::vector<Segment> segments = parameter_segments(graph);
    ASSERT_EQ(graph.nodes(GraphId::OPTIMIZER).size(), segments.size());
    for (std::size_t i = 0; i < segments.size(); ++i) {
      const auto& node = std::get<RangeNode>(graph.nodes(GraphId::OPTIMIZER)[i].work);
      const std::string& name = segments[i].name;
      EXPECT_EQ(node.op, RangeOp::adam);
      EXPECT_THAT(node.inputs, ElementsAre("grad." + name, "weights." + name, "momentum." + name,
                                           "second_moment." + name, "scalars"));
      EXPECT_THAT(node.outputs, ElementsAre("weights." + name, "momentum." + name, "second_moment." + name));
      EXPECT_EQ(node.params.weight_decay, segments[i].decay ? 0.125f : 0.0f);
      EXPECT_EQ(node.params.optimizer, kind);
      EXPECT_EQ(node.params.adam.beta1, 0.8);
    }
    const auto& check = std::get<RangeNode>(graph.nodes(GraphId::NAN_CHECK_AND_GRAD_SCALING)[0].work);
    EXPECT_EQ(check.params.optimizer, kind) << "it computes the corrections";
    EXPECT_EQ(check.params.adam.beta2, 0.99);
    EXPECT_THAT(node_texts(graph, GraphId::SIMPLE_TASK_GRAPH),
                ElementsAre("digest(weights, momentum, second_moment, bn_running, grad) -> digests"));
    for (const ParamInfo& param : graph.params()) {
      EXPECT_EQ(graph.tensor(param.momentum).name, param.name + ".exp_avg");
      EXPECT_EQ(graph.tensor(param.second_moment).name, param.name + ".exp_avg_sq");
    }
  }
}

TEST(Optimizer, LarsAdaptsWeightsByKindAndPlaceAndExemptsTheRest) {
  GraphOptions options;
  options.optimizer = OptimizerKind::lars;
  options.weight_decay = 0.125f;
  for (const bool decay_all : {false, true}) {
    options.bn_weight_decay = decay_all;
    const ComputationGraph graph = build_computation_graph(model_with_norms(), options);
    EXPECT_THAT(segment_names(graph), ElementsAre("deep0.conv", "deep0.fc", "deep0.exempt", "first.conv"));
    const auto op = [&](GraphId id, const char* name, const char* segment, float decay) {
      const std::string text(segment);
      EXPECT_THAT(node_texts(graph, id),
                  ElementsAre(std::string(name) + "(grad." + text + ", weights." + text + ", momentum." + text +
                              ", scalars) -> weights." + text + ", momentum." + text));
      EXPECT_EQ(std::get<RangeNode>(graph.nodes(id)[0].work).params.weight_decay, decay) << segment;
    };
    op(GraphId::LARS_FC_OPT, "lars", "deep0.fc", 0.125f);
    op(GraphId::LARS_DEEP_CONV_OPT, "lars", "deep0.conv", 0.125f);
    op(GraphId::LARS_FIRST_CONV_OPT, "lars", "first.conv", 0.125f);
    op(GraphId::OPTIMIZER, "sgd", "deep0.exempt", decay_all ? 0.125f : 0.0f);
  }
}

TEST(Optimizer, LinearWeightsOfTheFirstLayerGoWithTheLinearOnes) {
  GraphOptions options;
  options.optimizer = OptimizerKind::lars;
  ModelBuilder model;
  model.layer(LayerKind::flatten, "flat", {"input"}).linear("fc1", "flat", 5).linear("fc2", "fc1");
  const ComputationGraph graph = build_computation_graph(model.spec(), options);
  EXPECT_EQ(graph.nodes(GraphId::LARS_FC_OPT).size(), 2u);
  EXPECT_TRUE(graph.empty(GraphId::LARS_FIRST_CONV_OPT));
  EXPECT_TRUE(graph.empty(GraphId::LARS_DEEP_CONV_OPT));
}

}  // namespace
}  // namespace renai
