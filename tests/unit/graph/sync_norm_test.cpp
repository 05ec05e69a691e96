// Batch norm over the shards of all ranks: which nodes and graphs exchange.

#include <gtest/gtest.h>

#include "graph_text.hpp"
#include "model_builder.hpp"
#include "renai/base/error.hpp"

namespace renai {
namespace {

using testing::ModelBuilder;

ComputationGraph build(GraphOptions options) {
  ModelBuilder model;
  model.conv("conv", "input", 4).layer(LayerKind::batch_norm, "bn", {"conv"}).linear("fc", "bn");
  return build_computation_graph(model.spec(), options);
}

GraphOptions options_of(int ranks, bool sync_bn) {
  GraphOptions options;
  options.world_size = options.logical_shards = ranks;
  options.sync_bn = sync_bn;
  return options;
}

TEST(SyncNorm, TheDeepGraphExchanges) {
  const ComputationGraph plain = build(options_of(4, false)), sync = build(options_of(4, true));
  for (int i = 0; i < kGraphIdCount; ++i) {
    const auto id = static_cast<GraphId>(i);
    EXPECT_EQ(has_collectives(plain, id), is_collective(id)) << graph_id_name(id);
    EXPECT_EQ(has_collectives(sync, id), is_collective(id) || id == GraphId::DEEP_FWD_BWD) << graph_id_name(id);
  }
}

/// Forward and backward; inference has statistics already.
TEST(SyncNorm, NodesSayOverHowManyShards) {
  const ComputationGraph graph = build(options_of(4, true));
  int passes = 0;
  for (const GraphId id : {GraphId::DEEP_FWD_BWD, GraphId::INF_MAIN_A}) {
    for (const Node& node : graph.nodes(id)) {
      const auto& work = std::get<ComputeNode>(node.work);
      if (work.op != OpKind::batch_norm) continue;
      ++passes;
      EXPECT_EQ(std::get<BatchNormParams>(work.params).sync_shards, work.pass == Pass::inference ? 1 : 4) << work.name;
    }
  }
  EXPECT_EQ(passes, 3);
  EXPECT_NE(print(graph).find(" over 4 shards"), std::string::npos) << "the fingerprint tells it";
  EXPECT_NE(print(graph), print(build(options_of(4, false))));
}

TEST(SyncNorm, OneShardIsAlone) {
  const ComputationGraph graph = build(options_of(1, true));
  EXPECT_FALSE(has_collectives(graph, GraphId::DEEP_FWD_BWD));
}

TEST(SyncNorm, ShardsThatWaitForEachOtherAreRefused) {
  GraphOptions options = options_of(4, true);
  options.logical_shards = 8;
  EXPECT_THROW(build(options), InternalError);
  options = options_of(4, true);
  options.micro_batches = 2;
  EXPECT_THROW(build(options), InternalError);
}

}  // namespace
}  // namespace renai
