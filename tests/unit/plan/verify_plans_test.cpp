// Every kind of damage that a plan can have is refused, naming it.

#include <gtest/gtest.h>

#include <functional>

#include "plan_case.hpp"
#include "renai/base/error.hpp"
#include "renai/graph/region_name.hpp"

namespace renai {
namespace {

using Plans = std::vector<MemoryPlan>;

class PlanDamage : public ::testing::Test {
 protected:
  void refused(const std::string& word, const std::function<void(Plans&)>& change) {
    Plans plans = plan_.plans;
    change(plans);
    try {
      verify(plan_.request, plans);
      ADD_FAILURE() << "accepted: " << word;
    } catch (const InternalError& error) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  }

  /// The same change in every variant, so that only the thing itself is wrong.
  void refused_everywhere(const std::string& word, const std::function<void(MemoryPlan&)>& change) {
    refused(word, [&](Plans& plans) {
      for (MemoryPlan& plan : plans) change(plan);
    });
  }

  static Region& region(MemoryPlan& plan, std::string_view name) {
    for (Region& candidate : plan.regions) {
      if (candidate.name == name) return candidate;
    }
    throw InternalError("no region", std::string(name));
  }

  TensorId find(const std::string& name) const {
    for (std::size_t i = 0; i < plan_.graph.tensors().size(); ++i) {
      if (plan_.graph.tensors()[i].name == name) return static_cast<TensorId>(i);
    }
    throw InternalError("no tensor", name);
  }

  DTensor& tensor(MemoryPlan& plan, TensorId id) const { return plan.tensors[static_cast<std::size_t>(id)]; }

  PlanCase plan_{PlanOptions{"cnn-small", 2}};
};

TEST_F(PlanDamage, OfPlansAsAWhole) {
  EXPECT_NO_THROW(verify(plan_.request, plan_.plans));
  refused("one plan for each variant", [](Plans& plans) { plans.pop_back(); });
  refused("another variant", [](Plans& plans) { std::swap(plans[0], plans[1]); });
  refused("one entry for each tensor", [](Plans& plans) { plans[2].tensors.pop_back(); });
  refused("one workspace for each entry", [](Plans& plans) { plans[2].workspace_offset.pop_back(); });
  refused("one workspace for each entry",
          [](Plans& plans) { plans[2].workspace_offset[static_cast<std::size_t>(GraphId::DEEP_FWD_BWD)].pop_back(); });
  refused("differ from the first variant's", [](Plans& plans) { plans[2].slot.rows += 1; });
  refused("differ from the first variant's", [](Plans& plans) { plans[2].arena_bytes += 256; });
}

TEST_F(PlanDamage, OfRegions) {
  refused_everywhere("called 'weights'", [](MemoryPlan& plan) { region(plan, "momentum").name = "weights"; });
  refused_everywhere("not aligned", [](MemoryPlan& plan) { region(plan, "scalars").size_bytes += 4; });
  refused_everywhere("out of the arena", [](MemoryPlan& plan) { plan.arena_bytes -= 256; });
  refused_everywhere("not inside 'weights'", [](MemoryPlan& plan) { region(plan, "weights").size_bytes -= 256; });
  refused_everywhere("cut across", [](MemoryPlan& plan) {
    region(plan, "scalars").offset_bytes -= 256, region(plan, "scalars").size_bytes += 256;
    region(plan, "bn_folded").size_bytes += 512;
  });
  refused_everywhere("different places in their parents",
                     [](MemoryPlan& plan) { region(plan, "momentum.deep0.decay").size_bytes -= 256; });
  refused_everywhere("different places in their parents",
                     [](MemoryPlan& plan) { region(plan, "counter1.metrics").offset_bytes -= 256; });
}

TEST_F(PlanDamage, OfTensors) {
  const TensorId logits = plan_.graph.parts().logits;
  refused_everywhere("is not aligned", [&](MemoryPlan& plan) {
    if (tensor(plan, logits).placed()) tensor(plan, logits).offset_bytes += 4;
  });
  refused_everywhere("has no region", [&](MemoryPlan& plan) {
    tensor(plan, logits).region = 1000;
    tensor(plan, logits).offset_bytes = 0;
  });
  refused_everywhere("is not inside region", [&](MemoryPlan& plan) {
    if (tensor(plan, logits).placed()) tensor(plan, logits).offset_bytes = plan.arena_bytes;
  });
  refused_everywhere("is too small", [&](MemoryPlan& plan) { tensor(plan, logits).size_bytes /= 2; });
  refused_everywhere("is padded to too little", [&](MemoryPlan& plan) { tensor(plan, logits).padded_c = 9; });
  refused_everywhere("has another element type", [&](MemoryPlan& plan) { tensor(plan, logits).dtype = DType::f16; });
  refused_everywhere("has another shape", [&](MemoryPlan& plan) { tensor(plan, logits).shape = Shape{1, 10}; });
  refused_everywhere("has no place", [&](MemoryPlan& plan) { tensor(plan, logits).offset_bytes = -1; });
  refused("is not where other variants have it", [&](Plans& plans) {
    const Region& transient = plans[1].region("transient");
    tensor(plans[1], logits).offset_bytes = transient.offset_bytes + transient.size_bytes - 1024;
  });
  const ParamInfo& param = plan_.graph.params()[0];
  refused_everywhere("different places in weights, grad and momentum", [&](MemoryPlan& plan) {
    std::swap(tensor(plan, param.momentum).offset_bytes, tensor(plan, plan_.graph.params()[1].momentum).offset_bytes);
    tensor(plan, param.momentum).region = tensor(plan, plan_.graph.params()[1].momentum).region =
        static_cast<RegionIndex>(&region(plan, "momentum") - plan.regions.data());
  });
}

TEST_F(PlanDamage, OfLifetimes) {
  const auto& deep = plan_.book.of(GraphId::DEEP_FWD_BWD);
  const TensorId kept = deep[0].outputs[0];
  ASSERT_TRUE(is_transient(plan_.graph.tensor(kept).role));
  // An input of the first kernel and its output are live together.
  refused_everywhere("share bytes while both may be live", [&](MemoryPlan& plan) {
    if (tensor(plan, kept).placed()) tensor(plan, kept).offset_bytes = tensor(plan, deep[0].inputs[0]).offset_bytes;
  });
  refused_everywhere("share bytes", [&](MemoryPlan& plan) {
    tensor(plan, plan_.graph.parts().slot_b).offset_bytes = tensor(plan, plan_.graph.parts().slot_a).offset_bytes;
    tensor(plan, plan_.graph.parts().slot_b).region = tensor(plan, plan_.graph.parts().slot_a).region;
  });
  // A workspace over what its own kernel touches.
  std::size_t entry = 0;
  while (deep[entry].workspace_bytes.empty()) ++entry;
  auto& offsets = plan_.plans[0].workspace_offset[static_cast<std::size_t>(GraphId::DEEP_FWD_BWD)];
  ASSERT_EQ(offsets[entry].size(), 1u);
  const auto with_workspace = [&](std::int64_t change, bool absolute) {
    return [entry, change, absolute](MemoryPlan& plan) {
      auto& place = plan.workspace_offset[static_cast<std::size_t>(GraphId::DEEP_FWD_BWD)][entry];
      if (place.empty()) return;
      place[0] = absolute ? change : place[0] + change;
    };
  };
  std::int64_t touched = plan_.plans[0].arena_bytes;
  for (const auto* tensors : {&deep[entry].inputs, &deep[entry].outputs}) {
    for (const TensorId id : *tensors) {
      const bool transient = is_transient(plan_.graph.tensor(id).role);
      if (transient) touched = std::min(touched, plan_.plans[0].tensor(id).offset_bytes);
    }
  }
  refused_everywhere("share bytes", with_workspace(touched, true));
  refused_everywhere("is not aligned", with_workspace(8, false));
  refused_everywhere("is not inside region 'transient'", with_workspace(0, true));
  refused("a workspace of DEEP_FWD_BWD is not where", [&](Plans& plans) { with_workspace(256, false)(plans[1]); });
  refused_everywhere("has no place", [&](MemoryPlan& plan) {
    plan.workspace_offset[static_cast<std::size_t>(GraphId::DEEP_FWD_BWD)][entry].clear();
  });
}

TEST_F(PlanDamage, OfAliases) {
  ASSERT_FALSE(plan_.book.aliases.empty());
  const StorageAlias alias = plan_.book.aliases[0];
  const Region& transient = plan_.plans[0].region("transient");
  const std::int64_t elsewhere =
      transient.offset_bytes + transient.size_bytes - align_slot(plan_.plans[0].tensor(alias.out).size_bytes);
  ASSERT_NE(elsewhere, plan_.plans[0].tensor(alias.in).offset_bytes);
  refused_everywhere("is not at its alias", [&](MemoryPlan& plan) {
    if (tensor(plan, alias.out).placed()) tensor(plan, alias.out).offset_bytes = elsewhere;
  });
}

/// Two kernels on different branches: nothing orders them, so their workspaces must not meet, though one is listed
/// first.
TEST(PlanVerifier, ConcurrentKernelsNeverShare) {
  ComputationGraph::Parts parts;
  parts.nodes.resize(kGraphIdCount);
  for (const char* name : {"x", "a", "b", "c"}) parts.tensors.push_back({name, TensorRole::activation, -1, -1});
  auto& nodes = parts.nodes[static_cast<std::size_t>(GraphId::SIMPLE_TASK_GRAPH)];
  const auto add = [&](std::vector<TensorId> inputs, TensorId output, int branch, std::vector<std::int32_t> waits) {
    Node node;
    node.work = ComputeNode{"make " + parts.tensors[static_cast<std::size_t>(output)].name,
                            OpKind::concat,
                            Pass::forward,
                            NoParams{},
                            std::move(inputs),
                            {output},
                            -1};
    node.branch = branch;
    node.waits = std::move(waits);
    nodes.push_back(std::move(node));
  };
  add({0}, 1, 0, {});
  add({0}, 2, 1, {});
  add({1, 2}, 3, 0, {1});
  const ComputationGraph graph(std::move(parts));
  const std::vector<CompileSpec> specs{{"only", VariantKind::training, {1, 1, 1, 1}, false}};
  const ShapeTable shapes(1, std::vector<Shape>(4, Shape{1, 64}));
  KernelBook book = trivial_book(graph, shapes);
  for (KernelEntry& entry : book.entries[static_cast<std::size_t>(GraphId::SIMPLE_TASK_GRAPH)]) {
    entry.workspace_bytes = {256};
  }
  PlanRequest request;
  request.graph = &graph;
  request.book = &book;
  request.specs = specs;
  request.shapes = &shapes;
  request.slot = SlotLayout::make(1, 1, 1, 1);
  auto plans = build_memory_plans(request);
  EXPECT_NO_THROW(verify(request, plans));
  auto& workspaces = plans[0].workspace_offset[static_cast<std::size_t>(GraphId::SIMPLE_TASK_GRAPH)];
  EXPECT_NE(workspaces[0], workspaces[1]);
  EXPECT_TRUE(workspaces[2] == workspaces[0] || workspaces[2] == workspaces[1]) << "the third kernel waits for both";
  workspaces[1] = workspaces[0];
  EXPECT_THROW(verify(request, plans), InternalError);
}

}  // namespace
}  // namespace renai
