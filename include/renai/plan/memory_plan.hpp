#pragma once
// MemoryPlan: for one shape variant, where every tensor lies in the one arena. Pure data.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "renai/graph/computation_graph.hpp"
#include "renai/plan/compile_spec.hpp"
#include "renai/plan/kernel_book.hpp"
#include "renai/tensor/dtensor.hpp"
#include "renai/tensor/slot_layout.hpp"

namespace renai {

/// A named, contiguous interval of the arena; parents contain their children ("grad" holds "grad.deep0.decay" ...).
struct Region {
  std::string name;
  std::int64_t offset_bytes = 0, size_bytes = 0;
  bool operator==(const Region&) const = default;
};

/// Shapes of all graph tensors under every spec: shapes[spec][tensor].
using ShapeTable = std::vector<std::vector<Shape>>;
/// Errors: UserError of infer_shapes, prefixed by the spec's resolution and name.
ShapeTable derive_shapes(const ComputationGraph& graph, std::span<const CompileSpec> specs);

/// Deep gradient buckets: parameters in the order in which backward completes them, cut when a bucket reaches
/// `bucket_bytes`. Returns the bucket of each parameter; first-layer parameters get the last bucket.
/// `shapes` are one spec's, of a graph built without buckets for the same model.
std::vector<int> assign_buckets(const ComputationGraph& graph, std::span<const Shape> shapes,
                                std::int64_t bucket_bytes);

/// One variant's plan. `tensors` is indexed by TensorId; book tensors follow the graph's, at graph.tensors().size() +
/// k.
struct MemoryPlan {
  CompileSpec spec;
  std::vector<DTensor> tensors;
  std::vector<std::vector<std::vector<std::int64_t>>> workspace_offset;  ///< [GraphId][entry]: {offset} or {} for none.
  std::vector<Region> regions;                                           ///< The same in every plan.
  SlotLayout slot;
  std::int64_t arena_bytes = 0;               ///< The same in every plan.
  std::int64_t transient_bytes = 0;           ///< Size of the overlaid transient region.
  std::int64_t transient_no_reuse_bytes = 0;  ///< What the larger family's transients would take without slot reuse.

  /// Errors: InternalError for an unknown name.
  const Region& region(std::string_view name) const;
  bool has_region(std::string_view name) const;
  const DTensor& tensor(TensorId id) const { return tensors.at(static_cast<std::size_t>(id)); }
};

struct PlanRequest {
  const ComputationGraph* graph = nullptr;
  const KernelBook* book = nullptr;
  std::span<const CompileSpec> specs;
  const ShapeTable* shapes = nullptr;
  SlotLayout slot;
  std::int64_t comm_scratch_bytes = 0;
  bool reuse_slots = true;
};

/// For every tensor position (graph tensors, then book tensors), the largest slot over the variants of each family; -1
/// where unused, and for tensors with a place of their own. `simple`: SIMPLE_TASK_GRAPH, `invariant`: graphs of other
/// streams, both over all variants.
struct SlotMaxima {
  std::vector<std::int64_t> training, inference, simple, invariant;
};
SlotMaxima compute_max_slot_bytes(const PlanRequest& request);

/// Tensors in the order of the region "digests": weights, momentum, second moments, running statistics, gradients, each
/// in plan order.
std::vector<TensorId> digest_tensors(const ComputationGraph& graph);

/// One plan per spec; the same tensor has the same offset in all of them.
std::vector<MemoryPlan> build_memory_plans(const PlanRequest& request);

/// Alignment, containment in regions, room for half weights, equal offsets across plans, equal inner layouts of
/// weights, grad and moments, and no two tensors or workspaces that can be live at the same time overlapping
/// (recomputed from happens-before, independently of the planner's own intervals). Errors: InternalError.
void verify(const PlanRequest& request, std::span<const MemoryPlan> plans);
std::string print(const MemoryPlan& plan, const ComputationGraph& graph);

}  // namespace renai
