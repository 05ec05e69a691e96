// The reference backend's book, its refusals, and its behaviour on a foreign stream.

#include <gtest/gtest.h>

#include <algorithm>

#include "renai/backend/backend.hpp"
#include "renai/base/error.hpp"
#include "renai/plan/memory_plan.hpp"

namespace renai {
namespace {

LayerSpec layer(const std::string& name, LayerKind kind, const std::string& input) {
  LayerSpec spec;
  spec.name = name;
  spec.kind = kind;
  spec.inputs = {input};
  return spec;
}

ComputationGraph small_graph() {
  ModelSpec model;
  model.name = "small";
  LayerSpec conv = layer("conv", LayerKind::conv2d, "input");
  conv.out = 3;
  conv.kernel_h = conv.kernel_w = 3;
  model.layers = {conv, layer("relu", LayerKind::relu, "conv"), layer("flat", LayerKind::flatten, "relu"),
                  layer("fc", LayerKind::linear, "flat")};
  GraphOptions options;
  options.world_size = 1;
  options.logical_shards = 2;
  return build_computation_graph(model, options);
}

/// A stream of no device.
class ForeignStream final : public Stream {
 public:
  void begin_capture() override {}
  std::unique_ptr<RecordedGraph> end_capture() override { return nullptr; }
  void launch(RecordedGraph&) override {}
  void record(Event&) override {}
  void wait(const Event&) override {}
  void copy(std::byte*, const std::byte*, std::int64_t) override {}
  void zero(std::byte*, std::int64_t) override {}
  void synchronize() override {}
};

TEST(ReferenceBook, OneEntryForEachNodeWithNames) {
  const ComputationGraph graph = small_graph();
  const std::vector<CompileSpec> specs{{"train", VariantKind::training, {4, 6, 6, 1}, false},
                                       {"val", VariantKind::validation, {4, 6, 6, 1}, false}};
  const auto backend = make_reference_backend();
  const KernelBook book = backend->survey(graph, derive_shapes(graph, specs), specs);
  EXPECT_NO_THROW(verify(book, graph, 2));
  EXPECT_EQ(book.backend, "reference");
  EXPECT_TRUE(book.tensors.empty());
  for (int i = 0; i < kGraphIdCount; ++i) {
    const auto id = static_cast<GraphId>(i);
    ASSERT_EQ(book.of(id).size(), graph.nodes(id).size());
    for (std::size_t k = 0; k < book.of(id).size(); ++k) {
      const KernelEntry& entry = book.of(id)[k];
      EXPECT_EQ(entry.nodes, std::vector<std::int32_t>{static_cast<std::int32_t>(k)});
      EXPECT_TRUE(entry.workspace_bytes.empty());
    }
  }
  EXPECT_EQ(book.of(GraphId::FIRST_LAYER_FWD_A).back().kernel, "reference.conv2d.forward");
  EXPECT_EQ(book.of(GraphId::OPTIMIZER)[0].kernel, "host.sgd");
}

TEST(ReferenceBook, FlattenIsAView) {
  const ComputationGraph graph = small_graph();
  const std::vector<CompileSpec> specs{{"train", VariantKind::training, {4, 6, 6, 1}, false},
                                       {"val", VariantKind::validation, {4, 6, 6, 1}, false}};
  const auto backend = make_reference_backend();
  const KernelBook book = backend->survey(graph, derive_shapes(graph, specs), specs);
  std::size_t flattens = 0;
  for (const GraphId id : {GraphId::DEEP_FWD_BWD, GraphId::INF_MAIN_A}) {
    for (const Node& node : graph.nodes(id)) {
      const auto& work = std::get<ComputeNode>(node.work);
      if (work.op != OpKind::flatten) continue;
      ++flattens;
      const auto found = std::find_if(book.aliases.begin(), book.aliases.end(), [&](const StorageAlias& alias) {
        return alias.out == work.outputs[0] && alias.in == work.inputs[0];
      });
      EXPECT_NE(found, book.aliases.end()) << work.name;
    }
  }
  EXPECT_EQ(flattens, 3u);  // Forward, backward, inference.
  EXPECT_EQ(book.aliases.size(), flattens) << "slot B's inference shares the aliases of slot A's";
}

TEST(ReferenceBackend, ComputesInFp32Only) {
  const auto backend = make_reference_backend();
  EXPECT_TRUE(backend->supports(Precision::fp32));
  const Support support = backend->supports(Precision::bf16);
  EXPECT_FALSE(support);
  EXPECT_NE(support.reason().find("bf16"), std::string::npos);
}

TEST(ReferenceBackend, RefusesAForeignStream) {
  const ComputationGraph graph = small_graph();
  const auto backend = make_reference_backend();
  BindContext context;
  context.graph = &graph;
  ForeignStream stream;
  EXPECT_THROW(backend->record(context, GraphId::OPTIMIZER, 0, stream), BackendError);
}

TEST(Precision, Names) {
  EXPECT_EQ(precision_name(Precision::fp32), "fp32");
  EXPECT_EQ(precision_name(Precision::tf32), "tf32");
  EXPECT_EQ(precision_name(Precision::bf16), "bf16");
  EXPECT_EQ(precision_name(Precision::fp16), "fp16");
}

}  // namespace
}  // namespace renai
