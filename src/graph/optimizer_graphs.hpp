#pragma once
// Graphs that update the weights: OPTIMIZER and those of LARS.

#include <vector>

#include "renai/graph/computation_graph.hpp"
#include "renai/graph/segments.hpp"

namespace renai::graph_detail {

/// One node for each segment, in the order of their regions. SGD, Adam and AdamW fill OPTIMIZER. With LARS it holds the
/// exempt segments only; linear weights go to LARS_FC_OPT, convolutions to LARS_FIRST_CONV_OPT (bucket "first") and
/// LARS_DEEP_CONV_OPT, which touch no common bytes and may run at the same time. `shards`: the counts of shards that
/// every RANGE node carries. Errors: UserError when LARS has no weight to adapt.
void add_optimizer_graphs(ComputationGraph::Parts& parts, const std::vector<Segment>& segments,
                          const RangeParams& shards);

}  // namespace renai::graph_detail
