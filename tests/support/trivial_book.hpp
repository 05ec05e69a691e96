#pragma once
// A kernel book without a backend: one entry for each node, touching exactly the node's tensors. Flatten is a view.

#include <string>

#include "renai/plan/kernel_book.hpp"
#include "renai/plan/memory_plan.hpp"

namespace renai {

/// Workspaces: convolutions ask for as many bytes as their first output has, under each spec.
inline KernelBook trivial_book(const ComputationGraph& graph, const ShapeTable& shapes) {
  KernelBook book;
  book.backend = "trivial";
  book.entries.resize(kGraphIdCount);
  for (int i = 0; i < kGraphIdCount; ++i) {
    const auto id = static_cast<GraphId>(i);
    const std::vector<Node>& nodes = graph.nodes(id);
    for (std::size_t k = 0; k < nodes.size(); ++k) {
      KernelEntry entry;
      entry.nodes = {static_cast<std::int32_t>(k)};
      entry.kernel = "trivial.range";
      if (nodes[k].is_compute()) {
        const auto& node = std::get<ComputeNode>(nodes[k].work);
        entry.kernel = "trivial." + std::string(op_kind_name(node.op)) + "." + std::string(pass_name(node.pass));
        entry.inputs = node.inputs;
        entry.outputs = node.outputs;
        if (node.op == OpKind::conv2d) {
          for (const std::vector<Shape>& of_spec : shapes) {
            const Shape& y = of_spec[static_cast<std::size_t>(node.outputs[0])];
            entry.workspace_bytes.push_back(y.rank() > 0 ? y.elems() * 4 : 0);
          }
        }
        const bool first_of_twins = id != GraphId::FIRST_LAYER_FWD_B && id != GraphId::FIRST_LAYER_BWD_B &&
                                    id != GraphId::INF_MAIN_B && id != GraphId::INF_EMA_A && id != GraphId::INF_EMA_B;
        if (node.op == OpKind::flatten && first_of_twins) book.aliases.push_back({node.outputs[0], node.inputs[0]});
      }
      book.entries[static_cast<std::size_t>(i)].push_back(std::move(entry));
    }
  }
  return book;
}

}  // namespace renai
