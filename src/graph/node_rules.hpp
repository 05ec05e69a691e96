#pragma once
// What a single node must look like: counts and roles of its tensors, its parameters, its region names.

#include <string>

#include "renai/graph/computation_graph.hpp"

namespace renai::graph_detail {

/// Errors: always InternalError naming graph and node.
[[noreturn]] void fail_node(GraphId id, const std::string& node, const std::string& why);

/// Errors: InternalError for an unknown tensor, a wrong count or role of inputs or outputs, a pass or parameters that
/// the operator does not have.
void check_compute_node(const ComputationGraph& graph, GraphId id, const ComputeNode& node);

/// Errors: InternalError for a wrong count of regions or an unknown region name.
void check_range_node(GraphId id, const RangeNode& node);

}  // namespace renai::graph_detail
