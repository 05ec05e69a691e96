#pragma once
// Initial values of parameters.

#include <cstdint>
#include <span>
#include <vector>

#include "renai/graph/computation_graph.hpp"
#include "renai/tensor/shape.hpp"

namespace renai {

/// Values of one parameter in logical order, by the rule of the graph's model. `shapes`: of any variant.
/// Determinism: a pure function of (seed, parameter name, element).
std::vector<float> initial_values(const ComputationGraph& graph, std::span<const Shape> shapes, const ParamInfo& param,
                                  std::uint64_t seed);

}  // namespace renai
