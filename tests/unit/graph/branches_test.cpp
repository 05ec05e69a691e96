// Branches: residual projections beside the main path, and the order that waits guarantee.

#include <gtest/gtest.h>

#include "graph_text.hpp"
#include "model_builder.hpp"
#include "renai/base/error.hpp"
#include "renai/graph/happens_before.hpp"

namespace renai {
namespace {

using testing::find_node;
using testing::ModelBuilder;

constexpr GraphId kDeep = GraphId::DEEP_FWD_BWD;

/// stem -> conv1 relu1 conv2 -> sum <- proj: a residual block with a projection.
ComputationGraph residual_graph(bool parallel) {
  ModelBuilder model;
  model.conv("stem", "input", 4).conv("conv1", "stem", 8).layer(LayerKind::relu, "relu1", {"conv1"});
  model.conv("conv2", "relu1", 8).conv("proj", "stem", 8, 1).layer(LayerKind::add, "sum", {"conv2", "proj"});
  model.layer(LayerKind::relu, "relu2", {"sum"}).linear("fc", "relu2");
  GraphOptions options;
  options.parallel_branches = parallel;
  return build_computation_graph(model.spec(), options);
}

const Node& node_named(const ComputationGraph& graph, const char* name) {
  return graph.nodes(kDeep).at(static_cast<std::size_t>(find_node(graph, kDeep, name)));
}

TEST(Branches, OneUnlessAskedFor) {
  const ComputationGraph graph = residual_graph(false);
  for (const Node& node : graph.nodes(kDeep)) {
    EXPECT_EQ(node.branch, 0);
    EXPECT_TRUE(node.waits.empty());
  }
}

TEST(Branches, AProjectionRunsBesideTheMainPath) {
  const ComputationGraph graph = residual_graph(true);
  EXPECT_EQ(node_named(graph, "conv1.forward").branch, 0);
  EXPECT_EQ(node_named(graph, "conv2.forward").branch, 0);
  EXPECT_EQ(node_named(graph, "sum.forward").branch, 0);
  // It reads the first layer's output, which another graph made: nothing here stands before it.
  EXPECT_EQ(node_named(graph, "proj.forward").branch, 1);
  EXPECT_TRUE(node_named(graph, "proj.forward").waits.empty());
  const HappensBefore order(graph.nodes(kDeep));
  EXPECT_TRUE(order.concurrent(find_node(graph, kDeep, "conv1.forward"), find_node(graph, kDeep, "proj.forward")));
  for (const GraphId id : {GraphId::FIRST_LAYER_FWD_A, GraphId::FIRST_LAYER_BWD_A}) {
    for (const Node& node : graph.nodes(id)) EXPECT_EQ(node.branch, 0) << node.name();
  }
}

TEST(Branches, AProjectionInsideTheDeepLayersWaitsForItsInput) {
  ModelBuilder model;
  model.conv("stem", "input", 4).layer(LayerKind::relu, "relu0", {"stem"}).conv("conv1", "relu0", 8);
  model.layer(LayerKind::batch_norm, "bn1", {"conv1"})
      .conv("proj", "relu0", 8, 1)
      .layer(LayerKind::batch_norm, "bnp", {"proj"});
  model.layer(LayerKind::add, "sum", {"bn1", "bnp"}).linear("fc", "sum");
  GraphOptions options;
  options.parallel_branches = true;
  const ComputationGraph graph = build_computation_graph(model.spec(), options);
  EXPECT_EQ(node_named(graph, "bn1.forward").branch, 0);
  EXPECT_EQ(node_named(graph, "proj.forward").branch, 1);
  EXPECT_EQ(node_named(graph, "proj.forward").waits, std::vector{find_node(graph, kDeep, "relu0.forward")});
  EXPECT_EQ(node_named(graph, "bnp.forward").branch, 1);
  EXPECT_EQ(node_named(graph, "sum.forward").branch, 0);
  EXPECT_EQ(node_named(graph, "sum.forward").waits, std::vector{find_node(graph, kDeep, "bnp.forward")});
  const HappensBefore order(graph.nodes(kDeep));
  EXPECT_TRUE(order.concurrent(find_node(graph, kDeep, "conv1.forward"), find_node(graph, kDeep, "proj.forward")));
  EXPECT_TRUE(order.concurrent(find_node(graph, kDeep, "bn1.forward"), find_node(graph, kDeep, "bnp.forward")));
  EXPECT_TRUE(order.before(find_node(graph, kDeep, "proj.forward"), find_node(graph, kDeep, "fc.forward")));
  // In backward the two paths part at the sum again.
  EXPECT_TRUE(order.concurrent(find_node(graph, kDeep, "bn1.backward"), find_node(graph, kDeep, "bnp.backward")));
  EXPECT_EQ(graph.nodes(kDeep)[static_cast<std::size_t>(find_node(graph, kDeep, "fc.forward"))].branch, 0);
}

TEST(HappensBefore, ListOrderInABranchAndWaitsBetweenThem) {
  const auto node = [](int branch, std::vector<std::int32_t> waits) {
    Node made;
    made.work = RangeNode{};
    made.branch = branch;
    made.waits = std::move(waits);
    return made;
  };
  std::vector<Node> nodes{node(0, {}), node(1, {}), node(0, {}), node(1, {0}), node(2, {3}), node(0, {4})};
  const HappensBefore order(nodes);
  const auto relation = [&](std::int32_t a, std::int32_t b) {
    return order.before(a, b) ? '<' : order.concurrent(a, b) ? '|' : '>';
  };
  EXPECT_EQ(relation(0, 1), '|');
  EXPECT_EQ(relation(0, 2), '<');
  EXPECT_EQ(relation(0, 3), '<');
  EXPECT_EQ(relation(2, 3), '|');
  EXPECT_EQ(relation(1, 4), '<');
  EXPECT_EQ(relation(2, 4), '|');
  EXPECT_EQ(relation(1, 5), '<');
  EXPECT_EQ(relation(5, 0), '>');
  EXPECT_FALSE(order.before(3, 3));
  nodes[2].waits = {4};
  EXPECT_THROW(HappensBefore{nodes}, InternalError);
}

TEST(HappensBefore, MoreNodesThanOneWordOfBits) {
  std::vector<Node> nodes(200);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    nodes[i].work = RangeNode{};
    nodes[i].branch = static_cast<int>(i % 2);
  }
  nodes[150].waits = {101};
  const HappensBefore order(nodes);
  for (std::int32_t a = 0; a < 200; ++a) {
    for (std::int32_t b = 0; b < 200; ++b) {
      const bool same = a < b && a % 2 == b % 2;
      const bool through_wait = a % 2 == 1 && a <= 101 && b % 2 == 0 && b >= 150;
      ASSERT_EQ(order.before(a, b), same || through_wait) << a << " " << b;
    }
  }
}

}  // namespace
}  // namespace renai
