// The model as a table.

#include <algorithm>
#include <array>

#include "renai/graph/shape_inference.hpp"

namespace renai {
namespace {

using Row = std::array<std::string, 4>;

/// Left-aligned names, right-aligned parameter counts.
std::string table_text(const std::vector<Row>& rows) {
  std::array<std::size_t, 4> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - row[i].size(), ' ');
      text += i + 1 == row.size() ? pad + row[i] : row[i] + pad + "  ";
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  return text;
}

}  // namespace

std::string print_model(const ComputationGraph& graph, const Shape& input) {
  // The inference family: it has a shape for every layer, whatever the batch.
  const std::vector<Shape> shapes = infer_shapes(graph, input, false);
  const std::vector<LayerSpec>& layers = graph.model().layers;
  std::vector<Shape> outputs(layers.size());
  for (const Node& node : graph.nodes(GraphId::INF_MAIN_A)) {
    const auto& work = std::get<ComputeNode>(node.work);
    if (work.layer >= 0)
      outputs[static_cast<std::size_t>(work.layer)] = shapes[static_cast<std::size_t>(work.outputs[0])];
  }
  std::vector<std::int64_t> params(layers.size(), 0);
  std::int64_t total = 0;
  for (const ParamInfo& param : graph.params()) {
    const std::int64_t elems = shapes[static_cast<std::size_t>(param.weight)].elems();
    params[static_cast<std::size_t>(param.layer)] += elems;
    total += elems;
  }
  std::vector<Row> rows{{"layer", "kind", "output", "params"}, {"input", "", input.str(), ""}};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    // Dropout is absent from inference and keeps its input's shape.
    Shape output = outputs[i];
    for (std::size_t k = 0; output.rank() == 0 && k < i; ++k) {
      if (layers[k].name == layers[i].inputs[0]) output = outputs[k];
    }
    if (output.rank() == 0) output = input;
    outputs[i] = output;
    rows.push_back({layers[i].name, layer_kind_name(layers[i].kind), output.str(),
                    params[i] > 0 ? std::to_string(params[i]) : ""});
  }
  rows.push_back({"total", std::to_string(layers.size()) + " layers", "", std::to_string(total)});
  return table_text(rows);
}

}  // namespace renai
