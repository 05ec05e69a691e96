// What the cpu backend's kernels leave in memory: the transient region of resnet9 against the same plan without slot
// reuse, and against what its activations take.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "renai/backend/backend.hpp"
#include "renai/plan/memory_plan.hpp"

namespace renai {
namespace {

struct Planned {
  KernelBook book;
  std::vector<MemoryPlan> plans;
};

Planned plan_resnet9(std::int64_t rows, int logical_shards, bool branches) {
  SpecRequest request;
  request.train_samples = request.val_samples = request.global_batch = request.val_global_batch = rows * logical_shards;
  request.logical_shards = logical_shards;
  request.resolutions = {{32, 0}};
  request.val_resolution = 32;
  request.channels = 3;
  const std::vector<CompileSpec> specs = make_specs(request);
  GraphOptions options;
  options.input_channels = 3;
  options.logical_shards = logical_shards;
  options.parallel_branches = branches;
  const ComputationGraph graph = build_computation_graph(load_model("resnet9"), options);
  const ShapeTable shapes = derive_shapes(graph, specs);
  Planned planned;
  planned.book = make_cpu_backend(1)->survey(graph, shapes, specs);
  PlanRequest plan;
  plan.graph = &graph;
  plan.book = &planned.book;
  plan.specs = specs;
  plan.shapes = &shapes;
  plan.slot = SlotLayout::make(rows, 32, 32, 3);
  planned.plans = build_memory_plans(plan);
  verify(plan, planned.plans);
  return planned;
}

std::int64_t count_kernels(const KernelBook& book, const std::string& name) {
  const auto& entries = book.of(GraphId::DEEP_FWD_BWD);
  return std::count_if(entries.begin(), entries.end(),
                       [&](const KernelEntry& entry) { return entry.kernel.starts_with(name + ":"); });
}

TEST(SlotReuse, Resnet9StaysUnderItsShareForAnyRows) {
  for (const bool branches : {false, true}) {
    for (const int logical_shards : {1, 8}) {
      for (const std::int64_t rows : {4, 16, 128, 256, 512}) {
        SCOPED_TRACE(std::to_string(rows) + " rows, V = " + std::to_string(logical_shards));
        const MemoryPlan plan = plan_resnet9(rows, logical_shards, branches).plans.front();
        EXPECT_LE(static_cast<double>(plan.transient_bytes), 0.5 * static_cast<double>(plan.transient_no_reuse_bytes));
      }
    }
  }
}

/// Of the deep convolutions' inputs one is a sum, which stays; six are relus or pools behind a batch norm. What is left
/// at the end of forward is the convolutions' outputs and the two sums: 32 + 64 + 2 x 16 + 32 + 16 + 2 x 4 MiB and
/// 16 + 4 MiB for 128 rows, beside a few MiB of workspaces and small tensors.
TEST(SlotReuse, Resnet9KeepsNoInputThatBackwardCanMakeAgain) {
  const Planned planned = plan_resnet9(128, 1, false);
  EXPECT_EQ(count_kernels(planned.book, "onednn.conv_weights_norm"), 6);
  EXPECT_EQ(count_kernels(planned.book, "onednn.conv_weights"), 1);
  const std::int64_t kept = (std::int64_t{64 + 32 + 2 * 16 + 32 + 16 + 2 * 4} + 16 + 4) << 20;
  EXPECT_LE(planned.plans.front().transient_bytes, kept + (std::int64_t{16} << 20));
}

}  // namespace
}  // namespace renai
