// The verifier finds every kind of damage; the print shows every field that changes results.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "graph_text.hpp"
#include "model_builder.hpp"
#include "renai/base/error.hpp"
#include "renai/graph/shape_inference.hpp"

namespace renai {
namespace {

using testing::ModelBuilder;
using Parts = ComputationGraph::Parts;

ModelSpec sample_model() {
  ModelBuilder model;
  model.conv("conv1", "input", 4, 3, true).layer(LayerKind::batch_norm, "bn1", {"conv1"});
  model.layer(LayerKind::leaky_relu, "act1", {"bn1"})
      .conv("conv2", "act1", 4)
      .layer(LayerKind::dropout, "drop", {"conv2"});
  model.layer(LayerKind::add, "sum", {"act1", "drop"}).layer(LayerKind::concat, "cat", {"sum", "act1"});
  model.pool(LayerKind::avg_pool, "pool1", "cat").linear("fc", "pool1");
  return model.spec();
}

ComputationGraph sample_graph(bool branches = false) {
  GraphOptions options;
  options.world_size = 2;
  options.parallel_branches = branches;
  options.bucket_of_param = {9, 9, 0, 0, 0, 1, 1};
  return build_computation_graph(sample_model(), options);
}

Node& node_of(Parts& parts, GraphId id, const std::string& name) {
  for (Node& node : parts.nodes[static_cast<std::size_t>(id)]) {
    if (node.name() == name) return node;
  }
  throw std::runtime_error("no node " + name);
}

ComputeNode& compute_of(Parts& parts, GraphId id, const std::string& name) {
  return std::get<ComputeNode>(node_of(parts, id, name).work);
}

constexpr GraphId kDeep = GraphId::DEEP_FWD_BWD;

struct DamageCase {
  const char* what;
  std::function<void(Parts&)> damage;
  const char* message;
};

const std::vector<DamageCase>& node_damage() {
  static const std::vector<DamageCase> cases{
      {"table size", [](Parts& p) { p.nodes.pop_back(); }, "32 ids"},
      {"tensor out of range", [](Parts& p) { compute_of(p, kDeep, "fc.forward").inputs[0] = 9999; },
       "tensor 9999 does not exist"},
      {"missing tensor", [](Parts& p) { compute_of(p, kDeep, "fc.forward").inputs[0] = kNoTensor; },
       "tensor -1 does not exist"},
      {"too few inputs", [](Parts& p) { compute_of(p, kDeep, "sum.forward").inputs.pop_back(); }, "node 'sum.forward'"},
      {"bias flag without bias", [](Parts& p) { compute_of(p, kDeep, "fc.forward").inputs.pop_back(); },
       "it has 2 inputs, not 3"},
      {"bias without its flag",
       [](Parts& p) { std::get<Conv2dParams>(compute_of(p, kDeep, "conv2.forward").params).bias = true; },
       "it has 2 inputs"},
      {"missing statistics", [](Parts& p) { compute_of(p, kDeep, "bn1.forward").outputs.pop_back(); },
       "it has 3 outputs, not 4"},
      {"wrong role", [](Parts& p) { compute_of(p, kDeep, "fc.forward").inputs[1] = p.params.back().grad; },
       "cannot be its inputs 1"},
      {"another operator's parameters", [](Parts& p) { compute_of(p, kDeep, "fc.forward").params = NoParams{}; },
       "its parameters are another operator's"},
      {"no such pass", [](Parts& p) { compute_of(p, kDeep, "pool1.forward").pass = Pass::inference; },
       "avg_pool has no pass inference"},
      {"unknown region",
       [](Parts& p) {
         std::get<RangeNode>(p.nodes[static_cast<std::size_t>(GraphId::ZERO_GRAD)][0].work).outputs[0] = "gard";
       },
       "there is no region 'gard'"},
      {"missing region",
       [](Parts& p) {
         std::get<RangeNode>(p.nodes[static_cast<std::size_t>(GraphId::OPTIMIZER)][0].work).inputs.pop_back();
       },
       "it lacks regions"},
  };
  return cases;
}

const std::vector<DamageCase>& order_damage() {
  static const std::vector<DamageCase> cases{
      {"read before write",
       [](Parts& p) {
         std::swap(p.nodes[static_cast<std::size_t>(kDeep)][0], p.nodes[static_cast<std::size_t>(kDeep)][1]);
       },
       "before anything wrote it"},
      {"two writers",
       [](Parts& p) { compute_of(p, kDeep, "drop.forward").outputs = compute_of(p, kDeep, "conv2.forward").outputs; },
       "has two writers"},
      {"another branch without a wait", [](Parts& p) { node_of(p, kDeep, "conv2.forward").branch = 1; },
       "nothing orders it after the writer of 'act1'"},
      {"wait for a later node",
       [](Parts& p) {
         node_of(p, kDeep, "conv2.forward").branch = 1;
         node_of(p, kDeep, "conv2.forward").waits = {99};
       },
       "it waits for a node that is not earlier"},
      {"wait in its own branch", [](Parts& p) { node_of(p, kDeep, "conv2.forward").waits = {0}; }, "of its own branch"},
      {"negative branch", [](Parts& p) { node_of(p, kDeep, "conv2.forward").branch = -1; }, "its branch is negative"},
      {"gradient not written",
       [](Parts& p) { p.nodes[static_cast<std::size_t>(GraphId::FIRST_LAYER_BWD_A)].pop_back(); }, "differ in length"},
      {"twin differs",
       [](Parts& p) { compute_of(p, GraphId::FIRST_LAYER_FWD_B, "input.normalize").inputs[0] = p.slot_a; },
       "it differs from its twin for slot A"},
      {"inference reads training tensors",
       [](Parts& p) {
         for (const GraphId id : {GraphId::INF_MAIN_A, GraphId::INF_MAIN_B}) {
           compute_of(p, id, "fc.forward").inputs[0] = compute_of(p, kDeep, "fc.forward").inputs[0];
         }
       },
       "graph INF_MAIN_A, node 'fc.forward'"},
  };
  return cases;
}

const std::vector<DamageCase>& event_damage() {
  static const std::vector<DamageCase> cases{
      {"event too early",
       [](Parts& p) {
         node_of(p, kDeep, "bn1.backward").records_event = -1;
         node_of(p, kDeep, "sum.forward").records_event = 1;
       },
       "the event of bucket 1 does not cover it"},
      {"event missing", [](Parts& p) { node_of(p, kDeep, "bn1.backward").records_event = -1; }, "does not cover it"},
      {"event twice", [](Parts& p) { node_of(p, kDeep, "bn1.backward").records_event = 0; },
       "event 0 is recorded twice"},
      {"event out of range", [](Parts& p) { node_of(p, kDeep, "bn1.backward").records_event = 2; },
       "it records event 2"},
      {"event elsewhere", [](Parts& p) { node_of(p, GraphId::FIRST_LAYER_FWD_A, "conv1.forward").records_event = 0; },
       "it records event 0"},
      {"part gap", [](Parts& p) { p.nodes[static_cast<std::size_t>(GraphId::DEEP_COMM)][1].part = 2; },
       "parts must rise"},
      {"part missing", [](Parts& p) { p.nodes[static_cast<std::size_t>(GraphId::DEEP_COMM)].pop_back(); },
       "one part for each deep bucket"},
      {"part where there is one",
       [](Parts& p) { p.nodes[static_cast<std::size_t>(GraphId::ACCUM_METRICS)][1].part = 1; },
       "this graph has one part"},
      {"no update", [](Parts& p) { p.nodes[static_cast<std::size_t>(GraphId::OPTIMIZER)].pop_back(); },
       "0 nodes update it, not one"},
      {"an update on two streams",
       [](Parts& p) {
         p.nodes[static_cast<std::size_t>(GraphId::LARS_FC_OPT)] =
             p.nodes[static_cast<std::size_t>(GraphId::OPTIMIZER)];
       },
       "2 nodes update it, not one"},
      {"bucket out of range", [](Parts& p) { p.params[3].bucket = 7; }, "is in bucket 7"},
      {"first-layer flag", [](Parts& p) { p.params[0].first_layer = false; },
       "parameter 'conv1.weight' is in bucket 2"},
      {"parameter without a gradient", [](Parts& p) { p.params[3].grad = p.params[3].weight; }, "lacks a tensor"},
      {"another's tensor", [](Parts& p) { p.params[3].momentum = p.params[4].momentum; }, "is not its tensor's"},
      {"norm without statistics", [](Parts& p) { p.norms[0].batch_var = p.norms[0].batch_mean; }, "lacks a tensor"},
  };
  return cases;
}

void expect_found(const std::vector<DamageCase>& cases) {
  for (const DamageCase& item : cases) {
    SCOPED_TRACE(item.what);
    Parts parts = sample_graph().parts();
    item.damage(parts);
    try {
      ComputationGraph{parts};
      ADD_FAILURE() << "accepted";
    } catch (const InternalError& error) {
      EXPECT_NE(std::string(error.what()).find(item.message), std::string::npos) << error.what();
    }
  }
}

TEST(Verify, FindsDamagedNodes) { expect_found(node_damage()); }
TEST(Verify, FindsWrongOrder) { expect_found(order_damage()); }
TEST(Verify, FindsWrongEventsPartsAndTables) { expect_found(event_damage()); }

TEST(Verify, EveryWaitOfAParallelGraphIsNeeded) {
  const ComputationGraph graph = sample_graph(true);
  int waits = 0;
  for (std::size_t i = 0; i < graph.nodes(kDeep).size(); ++i) {
    for (std::size_t w = 0; w < graph.nodes(kDeep)[i].waits.size(); ++w, ++waits) {
      Parts parts = graph.parts();
      std::vector<std::int32_t>& list = parts.nodes[static_cast<std::size_t>(kDeep)][i].waits;
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(w));
      EXPECT_THROW(ComputationGraph{parts}, InternalError) << graph.nodes(kDeep)[i].name();
    }
  }
  EXPECT_GT(waits, 1);
}

/// A hand-built graph of one operator, as tests and benchmarks of operators use.
Parts hand_built() {
  Parts parts;
  parts.nodes.resize(kGraphIdCount);
  for (const char* name : {"a", "b", "y"}) parts.tensors.push_back({name, TensorRole::activation, -1, -1});
  Node node;
  node.work = ComputeNode{"add.forward", OpKind::add, Pass::forward, NoParams{}, {0, 1}, {2}, -1};
  parts.nodes[static_cast<std::size_t>(GraphId::SIMPLE_TASK_GRAPH)].push_back(node);
  return parts;
}

TEST(Verify, HandBuiltGraphsMayReadWhatTheirCallerFills) {
  Parts parts = hand_built();
  EXPECT_NO_THROW(ComputationGraph{parts});
  std::vector<Node>& nodes = parts.nodes[static_cast<std::size_t>(GraphId::SIMPLE_TASK_GRAPH)];
  nodes.push_back(nodes[0]);
  std::get<ComputeNode>(nodes[1].work).outputs = {0};
  EXPECT_THROW(ComputationGraph{parts}, InternalError) << "it overwrites what was read";
}

using Change = std::function<void(GraphOptions&, ModelSpec&)>;

TEST(Print, ShowsEveryFieldThatChangesResults) {
  const std::vector<std::pair<const char*, Change>> changes{
      {"classes", [](GraphOptions& o, ModelSpec&) { o.classes = 11; }},
      {"input_channels", [](GraphOptions& o, ModelSpec&) { o.input_channels = 3; }},
      {"world_size", [](GraphOptions& o, ModelSpec&) { o.world_size = 4; }},
      {"logical_shards", [](GraphOptions& o, ModelSpec&) { o.logical_shards = 16; }},
      {"mean", [](GraphOptions& o, ModelSpec&) { o.input.mean[2] = std::nextafter(0.5f, 1.0f); }},
      {"std", [](GraphOptions& o, ModelSpec&) { o.input.std[3] = 254.0f; }},
      {"label_smoothing", [](GraphOptions& o, ModelSpec&) { o.label_smoothing = 0.1f; }},
      {"momentum", [](GraphOptions& o, ModelSpec&) { o.momentum = std::nextafter(0.9f, 1.0f); }},
      {"nesterov", [](GraphOptions& o, ModelSpec&) { o.nesterov = true; }},
      {"optimizer", [](GraphOptions& o, ModelSpec&) { o.optimizer = OptimizerKind::lars; }},
      {"weight_decay", [](GraphOptions& o, ModelSpec&) { o.weight_decay = 1e-4f; }},
      {"bn_weight_decay", [](GraphOptions& o, ModelSpec&) { o.bn_weight_decay = true; }},
      {"clip_norm", [](GraphOptions& o, ModelSpec&) { o.clip_norm = 1.0f; }},
      {"buckets", [](GraphOptions& o, ModelSpec&) { o.bucket_of_param = {9, 9, 0, 0, 0, 0, 1}; }},
      {"branches", [](GraphOptions& o, ModelSpec&) { o.parallel_branches = true; }},
      {"init", [](GraphOptions&, ModelSpec& m) { m.init = InitRule::xavier_uniform; }},
      {"eps", [](GraphOptions&, ModelSpec& m) { m.layers[1].eps = 1e-3f; }},
      {"bn_momentum", [](GraphOptions&, ModelSpec& m) { m.layers[1].bn_momentum = 0.2f; }},
      {"zero_init", [](GraphOptions&, ModelSpec& m) { m.layers[1].zero_init = true; }},
      {"stage", [](GraphOptions&, ModelSpec& m) { m.layers[1].stage = 4; }},
      {"slope", [](GraphOptions&, ModelSpec& m) { m.layers[2].slope = 0.2f; }},
      {"activation", [](GraphOptions&, ModelSpec& m) { m.layers[2].kind = LayerKind::gelu; }},
      {"out", [](GraphOptions&, ModelSpec& m) { m.layers[0].out = 8; }},
      {"kernel_h", [](GraphOptions&, ModelSpec& m) { m.layers[0].kernel_h = 5; }},
      {"kernel_w", [](GraphOptions&, ModelSpec& m) { m.layers[0].kernel_w = 5; }},
      {"stride_h", [](GraphOptions&, ModelSpec& m) { m.layers[0].stride_h = 2; }},
      {"stride_w", [](GraphOptions&, ModelSpec& m) { m.layers[0].stride_w = 2; }},
      {"pad_h", [](GraphOptions&, ModelSpec& m) { m.layers[0].pad_h = 2; }},
      {"pad_w", [](GraphOptions&, ModelSpec& m) { m.layers[0].pad_w = 2; }},
      {"dilation_h", [](GraphOptions&, ModelSpec& m) { m.layers[0].dilation_h = 2; }},
      {"dilation_w", [](GraphOptions&, ModelSpec& m) { m.layers[0].dilation_w = 2; }},
      {"groups", [](GraphOptions&, ModelSpec& m) { m.layers[3].groups = 2; }},
      {"bias", [](GraphOptions&, ModelSpec& m) { m.layers[0].bias = false; }},
      {"p", [](GraphOptions&, ModelSpec& m) { m.layers[4].p = 0.25f; }},
      {"ceil_mode", [](GraphOptions&, ModelSpec& m) { m.layers[7].ceil_mode = true; }},
      {"count_include_pad", [](GraphOptions&, ModelSpec& m) { m.layers[7].count_include_pad = false; }},
      {"inputs", [](GraphOptions&, ModelSpec& m) { std::swap(m.layers[6].inputs[0], m.layers[6].inputs[1]); }},
  };
  const GraphOptions options;
  const std::string before = print(build_computation_graph(sample_model(), options));
  EXPECT_EQ(before, print(build_computation_graph(sample_model(), options)));
  for (const auto& [what, change] : changes) {
    GraphOptions changed_options;
    ModelSpec changed_model = sample_model();
    change(changed_options, changed_model);
    EXPECT_NE(print(build_computation_graph(changed_model, changed_options)), before) << what;
  }
}

TEST(Print, LeavesOutWhereTheModelCameFrom) {
  ModelSpec elsewhere = sample_model();
  elsewhere.source = "/some/where/model.toml";
  EXPECT_EQ(print(build_computation_graph(elsewhere, {})), print(build_computation_graph(sample_model(), {})));
}

TEST(PrintModel, IsATableWithTotals) {
  ModelBuilder model;
  model.layer(LayerKind::dropout, "drop0", {"input"}).conv("conv1", "drop0", 4, 3, true);
  model.layer(LayerKind::batch_norm, "bn1", {"conv1"})
      .layer(LayerKind::dropout, "drop1", {"bn1"})
      .linear("fc", "drop1");
  const std::string table = print_model(build_computation_graph(model.spec(), {}), Shape{2, 4, 5, 3});
  EXPECT_EQ(table,
            "layer  kind        output   params\n"
            "input              2x4x5x3\n"
            "drop0  dropout     2x4x5x3\n"
            "conv1  conv2d      2x4x5x4     112\n"
            "bn1    batch_norm  2x4x5x4       8\n"
            "drop1  dropout     2x4x5x4\n"
            "fc     linear      2x10        810\n"
            "total  5 layers                930\n");
}

}  // namespace
}  // namespace renai
