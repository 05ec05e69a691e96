#pragma once
// Names of nodes and of the operators that lowering adds around the model's layers.

#include <string>

#include "renai/graph/computation_graph.hpp"

namespace renai::graph_detail {

/// "conv1.forward": the stem is the layer's name.
std::string node_name(const std::string& stem, Pass pass);
/// Nine significant digits: every float prints differently from its neighbours.
std::string float_text(float value);
std::string double_text(double value);  ///< Likewise, 17 digits.
/// "layer 'conv1'" from a node's name, for messages.
std::string layer_label(const ComputeNode& node);

}  // namespace renai::graph_detail
