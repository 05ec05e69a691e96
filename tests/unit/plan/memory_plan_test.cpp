#include "renai/plan/memory_plan.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "arena_replay.hpp"
#include "model_builder.hpp"
#include "plan_case.hpp"
#include "random_book.hpp"
#include "renai/base/error.hpp"
#include "renai/graph/region_name.hpp"
#include "renai/graph/segments.hpp"
#include "renai/graph/shape_inference.hpp"

namespace renai {
namespace {

namespace names = region_name;

std::int64_t end_of(const Region& region) { return region.offset_bytes + region.size_bytes; }

class ZooPlans : public ::testing::TestWithParam<std::tuple<const char*, int, bool>> {
 protected:
  PlanOptions options() const {
    return PlanOptions{std::get<0>(GetParam()), std::get<1>(GetParam()), std::get<2>(GetParam()), 1 << 19};
  }
};

TEST_P(ZooPlans, VerifyAndNameEveryRegionOfTheRangeNodes) {
  const PlanCase plan(options());
  EXPECT_NO_THROW(verify(plan.request, plan.plans));
  for (int i = 0; i < kGraphIdCount; ++i) {
    for (const Node& node : plan.graph.nodes(static_cast<GraphId>(i))) {
      const auto* work = std::get_if<RangeNode>(&node.work);
      if (work == nullptr) continue;
      for (const auto* list : {&work->inputs, &work->outputs}) {
        for (const std::string& name : *list) EXPECT_NO_THROW(plan.plans[0].region(name)) << work->name;
      }
    }
  }
}

/// Values of several names are worked on as one interval, and lie alike in every counter.
TEST_P(ZooPlans, MergedValuesAreAdjacentAndLieAlikeInCounters) {
  const PlanCase plan(options());
  const MemoryPlan& first = plan.plans[0];
  const Region& shard = first.region(names::kShardValues);
  int levels = 0;
  for (const GraphId id : {GraphId::CAST_DEEP_GRAD, GraphId::CAST_FIRST_GRAD, GraphId::FIRST_COMM}) {
    for (const Node& node : plan.graph.nodes(id)) {
      const auto& work = std::get<RangeNode>(node.work);
      for (std::size_t i = 1; i < work.outputs.size(); ++i) {
        EXPECT_EQ(end_of(first.region(work.outputs[i - 1])), first.region(work.outputs[i]).offset_bytes) << work.name;
      }
    }
  }
  for (int shards = plan.graph.local_shards(); shards > 1; shards /= 2, ++levels) {
    const Region& counter = first.region(names::counter(levels));
    EXPECT_EQ(counter.size_bytes, shard.size_bytes);
    for (const std::string& name : {std::string("grad.deep0"), std::string("first_values"), std::string("metrics")}) {
      const Region& here = first.region(names::child(names::counter(levels), name));
      EXPECT_EQ(here.offset_bytes - counter.offset_bytes, first.region(name).offset_bytes - shard.offset_bytes);
      EXPECT_EQ(here.size_bytes, first.region(name).size_bytes);
    }
  }
  EXPECT_FALSE(first.has_region(names::counter(levels)));
  const Region& joint = first.region("grad.first_values");
  EXPECT_EQ(end_of(joint), end_of(first.region(names::kMetrics)));
  EXPECT_EQ(end_of(first.region("first_values")), end_of(shard));
}

INSTANTIATE_TEST_SUITE_P(Models, ZooPlans,
                         ::testing::Combine(::testing::Values("mlp", "lenet5", "cnn-small", "resnet9"),
                                            ::testing::Values(1, 2, 8), ::testing::Bool()));

TEST(MemoryPlan, RegionsFollowEachOtherInTheAgreedOrder) {
  const PlanCase plan(PlanOptions{"cnn-small", 4});
  const std::vector<std::string> order{"weights",   "shard",   "counter0",     "momentum", "bn_running",
                                       "bn_folded", "scalars", "accumulators", "digests",  "slot_a",
                                       "slot_b",    "staged",  "comm_scratch", "transient"};
  std::int64_t cursor = 0;
  for (const std::string& name : order) {
    const Region& region = plan.plans[0].region(name);
    EXPECT_EQ(region.offset_bytes, cursor) << name;
    cursor = end_of(region);
  }
  EXPECT_EQ(cursor, plan.plans[0].arena_bytes);
  EXPECT_EQ(plan.plans[0].region("comm_scratch").size_bytes, 1024);
  EXPECT_GE(plan.plans[0].region("accumulators").size_bytes, (8 + 4 * 8) * 8);
  EXPECT_EQ(plan.plans[0].region("slot_a").size_bytes, plan.request.slot.size_bytes);
}

/// Half weights have the layout of the weights at half the distances.
TEST(MemoryPlan, HalfWeightsFollowTheWeights) {
  PlanOptions options{"resnet9", 2};
  options.half_weights = true;
  const PlanCase plan(options);
  const Region& weights = plan.plans[0].region(names::kWeights);
  const Region& half = plan.plans[0].region(names::kWeightsHalf);
  EXPECT_EQ(half.offset_bytes, end_of(weights));
  EXPECT_EQ(half.size_bytes, align_slot(weights.size_bytes / 2));
  EXPECT_EQ(plan.plans[0].region(names::kShardValues).offset_bytes, end_of(half));
  for (const ParamInfo& param : plan.graph.params()) {
    const DTensor& weight = plan.plans[0].tensor(param.weight);
    const std::int64_t inside = (weight.offset_bytes - weights.offset_bytes) / 2;
    EXPECT_EQ(inside % 128, 0) << param.name;
    EXPECT_LE(half.offset_bytes + inside + weight.size_bytes / 2, end_of(half)) << param.name;
  }
  EXPECT_NO_THROW(verify(plan.request, plan.plans));
  std::vector<MemoryPlan> damaged = plan.plans;
  for (MemoryPlan& one : damaged) {
    std::erase_if(one.regions, [](const Region& region) { return region.name == names::kWeightsHalf; });
  }
  EXPECT_THROW(verify(plan.request, damaged), InternalError);
  EXPECT_FALSE(PlanCase().plans[0].has_region(names::kWeightsHalf));
}

/// Averages lie as what they are averages of, and inference with them needs no activations of its own.
TEST(MemoryPlan, AveragesFollowWeightsAndRunningStatistics) {
  PlanOptions options{"resnet9", 2};
  options.half_weights = true;
  const std::int64_t without = PlanCase(options).plans[0].transient_bytes;
  options.ema_decay = 0.5;
  const PlanCase plan(options);
  const MemoryPlan& first = plan.plans[0];
  EXPECT_NO_THROW(verify(plan.request, plan.plans));
  EXPECT_EQ(first.transient_bytes, without);
  for (const auto& [own, average] : {std::pair{names::kWeights, names::kEma},
                                     {names::kWeightsHalf, names::kEmaHalf},
                                     {names::kBnRunning, names::kEmaRunning},
                                     {names::kBnFolded, names::kEmaFolded}}) {
    EXPECT_EQ(first.region(own).size_bytes, first.region(average).size_bytes) << own;
  }
  for (const auto change : {+[](MemoryPlan&one, const ComputationGraph&graph) {
                              one.tensors[static_cast<std::size_t>(graph.params()[0].ema)].offset_bytes += 256;
                            },
                            +[](MemoryPlan&one, const ComputationGraph&graph) {
                              const NormInfo& norm = graph.norms()[0];
                              std::swap(one.tensors[static_cast<std::size_t>(norm.ema_mean)].offset_bytes,
                                        one.tensors[static_cast<std::size_t>(norm.ema_var)].offset_bytes);
                            },
                            +[](MemoryPlan&one, const ComputationGraph&) {
                              std::erase_if(one.regions, [](const Region& r) { return r.name == names::kEmaHalf; });
                            }}) {
    std::vector<MemoryPlan> damaged = plan.plans;
    for (MemoryPlan& one : damaged) change(one, plan.graph);
    EXPECT_THROW(verify(plan.request, damaged), InternalError);
  }
  const PlanCase plain;
  for (const Region& region : plain.plans[0].regions) EXPECT_FALSE(region.name.starts_with("ema")) << region.name;
}

TEST(MemoryPlan, SegmentsHoldTheirParametersInOrder) {
  const PlanCase plan(PlanOptions{"resnet9", 2, false, 1 << 20});
  const MemoryPlan& first = plan.plans[0];
  std::int64_t cursor = first.region(names::kWeights).offset_bytes;
  for (const Segment& segment : parameter_segments(plan.graph)) {
    const Region& region = first.region(names::child(names::kWeights, segment.name));
    EXPECT_EQ(region.offset_bytes, cursor);
    for (const std::int32_t index : segment.params) {
      const ParamInfo& param = plan.graph.params()[static_cast<std::size_t>(index)];
      EXPECT_EQ(first.tensor(param.weight).offset_bytes, cursor) << param.name;
      EXPECT_EQ(first.regions[static_cast<std::size_t>(first.tensor(param.weight).region)].name, region.name);
      cursor += align_slot(first.tensor(param.weight).size_bytes);
    }
  }
  EXPECT_EQ(cursor, end_of(first.region(names::kWeights)));
}

TEST(MemoryPlan, DigestTensorsStandInPlanOrder) {
  const PlanCase plan(PlanOptions{"cnn-small", 2, false, 1 << 16});
  const std::vector<TensorId> tensors = digest_tensors(plan.graph);
  EXPECT_EQ(tensors.size(), 3 * plan.graph.params().size() + 2 * plan.graph.norms().size());
  const auto& digest = std::get<RangeNode>(plan.graph.nodes(GraphId::SIMPLE_TASK_GRAPH)[0].work);
  std::size_t next = 0;
  for (const std::string& name : digest.inputs) {
    const Region& region = plan.plans[0].region(name);
    std::int64_t before = -1;
    for (; next < tensors.size(); ++next) {
      const std::int64_t offset = plan.plans[0].tensor(tensors[next]).offset_bytes;
      if (offset < region.offset_bytes || offset >= end_of(region)) break;
      EXPECT_GT(offset, before);
      before = offset;
    }
    EXPECT_GE(before, 0) << name;
  }
  EXPECT_EQ(next, tensors.size());
  EXPECT_GE(plan.plans[0].region(names::kDigests).size_bytes, static_cast<std::int64_t>(tensors.size()) * 16);
}

TEST(MemoryPlan, VariantsDifferInShapeAndNotInPlace) {
  const PlanCase plan(PlanOptions{"resnet9", 1, false, 1 << 20, {{32, 0}, {40, 1}}});
  const TensorId logits = plan.graph.parts().logits, inferred = plan.graph.parts().inference_logits;
  EXPECT_EQ(plan.plans[0].tensor(logits).shape.n(), 16);
  EXPECT_EQ(plan.plans[1].tensor(logits).shape.n(), 12);
  EXPECT_EQ(plan.plans[0].tensor(logits).offset_bytes, plan.plans[3].tensor(logits).offset_bytes);
  EXPECT_FALSE(plan.plans[4].tensor(logits).placed());
  EXPECT_FALSE(plan.plans[0].tensor(inferred).placed());
  EXPECT_EQ(plan.plans[5].tensor(inferred).shape.n(), 2);
  for (const MemoryPlan& other : plan.plans) EXPECT_EQ(other.regions, plan.plans[0].regions);
}

/// Training activations, gradients and workspaces of resnet9 against the same plan without reuse of slots.
TEST(MemoryPlan, ReuseOfSlotsSavesAThirdOfResnet9) {
  for (const bool workspaces : {true, false}) {
    for (const std::int64_t val_samples : {10000, 0}) {
      PlanOptions options{"resnet9"};
      options.workspaces = workspaces;
      options.val_samples = val_samples;
      PlanCase plan(options);
      const MemoryPlan& with = plan.plans[0];
      plan.request.reuse_slots = false;
      const MemoryPlan without = build_memory_plans(plan.request)[0];
      EXPECT_EQ(without.transient_bytes, with.transient_no_reuse_bytes);
      EXPECT_EQ(without.transient_bytes, without.transient_no_reuse_bytes);
      EXPECT_LE(static_cast<double>(with.transient_bytes), 0.65 * static_cast<double>(without.transient_bytes))
          << (workspaces ? "with" : "without") << " workspaces, " << val_samples << " validation samples";
    }
  }
}

TEST(MemoryPlan, WithoutReuseVerifiesToo) {
  PlanCase plan;
  plan.request.reuse_slots = false;
  EXPECT_NO_THROW(verify(plan.request, build_memory_plans(plan.request)));
}

TEST(MemoryPlan, PaddedTensorsTakeTheirPadding) {
  PlanCase plan;
  plan.book.padded_c.assign(plan.graph.tensors().size(), 0);
  const TensorId logits = plan.graph.parts().logits;
  plan.book.padded_c[static_cast<std::size_t>(logits)] = 16;
  const auto plans = build_memory_plans(plan.request);
  EXPECT_NO_THROW(verify(plan.request, plans));
  EXPECT_EQ(plans[0].tensor(logits).size_bytes, 16 * 16 * 4);
  EXPECT_EQ(plans[0].tensor(logits).padded_c, 16);
  EXPECT_EQ(plans[0].tensor(logits).shape, (Shape{16, 10}));
}

TEST(MemoryPlan, TensorsTakeTheElementTypeOfTheKernelBook) {
  PlanCase plan(PlanOptions{"resnet9", 2});
  plan.book.padded_c.assign(plan.graph.tensors().size(), 0);
  const TensorId logits = plan.graph.parts().logits;
  plan.book.padded_c[static_cast<std::size_t>(logits)] = 16;
  for (std::size_t i = 0; i < plan.graph.tensors().size(); ++i) {
    const TensorRole role = plan.graph.tensors()[i].role;
    plan.book.dtypes.push_back(may_be_half(role) ? DType::f16 : tensor_dtype(role));
  }
  const auto plans = build_memory_plans(plan.request);
  EXPECT_NO_THROW(verify(plan.request, plans));
  EXPECT_EQ(plans[0].tensor(logits).dtype, DType::f16);
  EXPECT_EQ(plans[0].tensor(logits).size_bytes, 16 * 16 * 2);
  EXPECT_EQ(plans[0].tensor(plan.graph.params().front().weight).dtype, DType::f32);
  EXPECT_LT(plans[0].transient_bytes, plan.plans[0].transient_bytes);
  EXPECT_NE(print(plans[0], plan.graph).find("float16[16x10]"), std::string::npos);
}

TEST(MemoryPlan, TensorsThatNoKernelTouchesGetNoMemory) {
  PlanCase plan;
  const TensorId logits = plan.graph.parts().logits;
  for (auto& entries : plan.book.entries) {
    for (KernelEntry& entry : entries) {
      std::erase(entry.inputs, logits);
      std::erase(entry.outputs, logits);
    }
  }
  const auto plans = build_memory_plans(plan.request);
  EXPECT_FALSE(plans[0].tensor(logits).placed());
  EXPECT_NO_THROW(verify(plan.request, plans));
}

TEST(MemoryPlan, AnAliasOfATensorWithAPlaceOfItsOwnLiesThere) {
  PlanCase plan;
  const TensorId grad = plan.graph.params().back().grad;
  const auto id = static_cast<TensorId>(plan.graph.tensors().size());
  plan.book.tensors.push_back({"packed_grad", std::vector<std::int64_t>(6, 40)});
  plan.book.aliases.push_back({id, grad});
  plan.book.entries[static_cast<std::size_t>(GraphId::DEEP_FWD_BWD)].back().outputs.push_back(id);
  const auto plans = build_memory_plans(plan.request);
  EXPECT_EQ(plans[0].tensor(id).offset_bytes, plans[0].tensor(grad).offset_bytes);
  EXPECT_NO_THROW(verify(plan.request, plans));
}

TEST(MemoryPlan, WorkspacesOfOtherStreamsAreNeverShared) {
  PlanCase plan;
  for (const GraphId id : {GraphId::NAN_CHECK_AND_GRAD_SCALING, GraphId::ACCUM_METRICS}) {
    plan.book.entries[static_cast<std::size_t>(id)][0].workspace_bytes.assign(6, 4096);
  }
  const auto plans = build_memory_plans(plan.request);
  EXPECT_NO_THROW(verify(plan.request, plans));
  EXPECT_EQ(plans[0].transient_bytes, plan.plans[0].transient_bytes + 2 * 4096);
  EXPECT_EQ(plans[0].transient_no_reuse_bytes, plan.plans[0].transient_no_reuse_bytes + 2 * 4096);
}

TEST(MemoryPlan, UnknownRegionsAndRowsBeyondTheSlotAreErrors) {
  PlanCase plan;
  EXPECT_THROW(plan.plans[0].region("weight"), InternalError);
  EXPECT_TRUE(plan.plans[0].has_region("weights"));
  plan.request.slot = SlotLayout::make(15, 28, 28, 1);
  EXPECT_THROW(build_memory_plans(plan.request), InternalError);
}

TEST(MemoryPlan, RandomGraphsReplayWithoutOverwriting) {
  using namespace testing_support;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const RandomCase random = random_case(1000000 + seed, 12);
    const auto plans = build_memory_plans(random.request());
    ASSERT_NO_THROW(verify(random.request(), plans)) << seed;
    RandomSource source(seed);
    for (std::size_t spec = 0; spec < plans.size(); ++spec) {
      ASSERT_EQ(ArenaReplay(random.request(), plans[spec], spec, source).run(), "") << seed;
    }
  }
}

TEST(MemoryPlan, PrintHoldsRegionsTensorsAndWorkspaces) {
  const PlanCase plan;
  const std::string text = print(plan.plans[0], plan.graph);
  for (const char* word : {"plan train_base 16x28x28x1", "region weights at 0+", " metrics float32[16] at ",
                           "workspace DEEP_FWD_BWD entry "}) {
    EXPECT_NE(text.find(word), std::string::npos) << word;
  }
  EXPECT_EQ(text, print(PlanCase().plans[0], plan.graph)) << "planning is a pure function";
}

/// A chain as long as resnet152: 152 convolutions with norm and activation, residual sums.
ModelSpec long_model() {
  testing::ModelBuilder builder;
  builder.conv("stem", "input", 8);
  std::string last = "stem";
  for (int i = 0; i < 152; ++i) {
    const std::string name = "b" + std::to_string(i);
    builder.conv(name + ".conv", last, 8).layer(LayerKind::batch_norm, name + ".bn", {name + ".conv"});
    builder.layer(LayerKind::relu, name + ".relu", {name + ".bn"});
    if (i % 3 == 2) {
      builder.layer(LayerKind::add, name + ".add", {name + ".relu", last});
      last = name + ".add";
    } else {
      last = name + ".relu";
    }
  }
  builder.layer(LayerKind::global_avg_pool, "pool", {last}).layer(LayerKind::flatten, "flat", {"pool"});
  return builder.linear("fc", "flat").spec();
}

TEST(MemoryPlan, PlansALongNetworkQuickly) {
  GraphOptions features;
  features.parallel_branches = true;
  PlanOptions options;
  const std::vector<CompileSpec> specs = make_specs(spec_request(options));
  const ComputationGraph graph = build_computation_graph(long_model(), features);
  const ShapeTable shapes = derive_shapes(graph, specs);
  const KernelBook book = trivial_book(graph, shapes);
  PlanRequest request;
  request.graph = &graph;
  request.book = &book;
  request.specs = specs;
  request.shapes = &shapes;
  request.slot = SlotLayout::make(16, 28, 28, 1);
  const auto start = std::chrono::steady_clock::now();
  const auto plans = build_memory_plans(request);
  const auto planned = std::chrono::steady_clock::now();
  EXPECT_NO_THROW(verify(request, plans));
  const auto verified = std::chrono::steady_clock::now();
  const auto seconds = [](auto from, auto to) { return std::chrono::duration<double>(to - from).count(); };
  RecordProperty("plan_ms", static_cast<int>(seconds(start, planned) * 1e3));
  RecordProperty("verify_ms", static_cast<int>(seconds(planned, verified) * 1e3));
  EXPECT_LT(seconds(start, planned), 5.0) << "generous: the machine may be busy";
  EXPECT_LT(plans[0].transient_bytes, plans[0].transient_no_reuse_bytes);
}

}  // namespace
}  // namespace renai
