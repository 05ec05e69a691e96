#pragma once
// Where everything with a place of its own lies in the arena: parameters, gradients, statistics, slots, scalars.

#include <cstdint>
#include <string>
#include <vector>

#include "renai/plan/memory_plan.hpp"

namespace renai::plan_detail {

/// Place of a tensor that is not planned by lifetime; offset -1: it has none.
struct FixedPlace {
  std::int64_t offset_bytes = -1, size_bytes = 0;
  RegionIndex region = -1;
};

struct RegionLayout {
  std::vector<Region> regions;  ///< Parents before children; "transient" last, with size 0 until the planner sets it.
  std::vector<FixedPlace> tensors;  ///< By graph tensor.
  RegionIndex transient = -1;
};

/// Bytes of a graph tensor under one spec, its last axis padded as the book says; 0 for a tensor without a shape.
std::int64_t tensor_bytes(const PlanRequest& request, std::size_t spec, TensorId id);

/// Determinism: a pure function of graph, book, shapes and slot. Errors: InternalError for a fixed tensor whose size
/// differs between variants.
RegionLayout lay_out_regions(const PlanRequest& request);

}  // namespace renai::plan_detail
