#pragma once
// What the verifier of memory plans checks in the regions of one plan alone.

#include <string>

#include "renai/plan/memory_plan.hpp"

namespace renai::plan_detail {

/// Errors: InternalError that names the plan.
[[noreturn]] void fail_plan(const MemoryPlan& plan, const std::string& why);

/// Names, alignment, containment, nesting, and equal inner layouts of regions that mirror each other. Errors:
/// InternalError.
void verify_regions(const MemoryPlan& plan);

}  // namespace renai::plan_detail
