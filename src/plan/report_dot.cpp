// The graphs as DOT: one cluster for each GraphId, edges by tensors, waits and the order of a branch.

#include <map>

#include "renai/plan/graph_atlas.hpp"

namespace renai {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string node_id(GraphId id, std::size_t node) {
  return "g" + std::to_string(static_cast<int>(id)) + "_" + std::to_string(node);
}

class DotWriter {
 public:
  explicit DotWriter(const AtlasReport& report) : graph_(*report.graph) {}

  std::string run() {
    text_ = "digraph " + quoted(graph_.model().name) +
            " {\n  rankdir=TB;\n  node [shape=box fontname=\"Helvetica\" fontsize=10];\n  edge [fontsize=8];\n";
    for (int i = 0; i < kGraphIdCount; ++i) {
      if (!graph_.empty(static_cast<GraphId>(i))) add_cluster(static_cast<GraphId>(i));
    }
    for (int i = 0; i < kGraphIdCount; ++i) add_edges(static_cast<GraphId>(i));
    return text_ + "}\n";
  }

 private:
  void add_cluster(GraphId id) {
    text_ += "  subgraph cluster_" + std::to_string(static_cast<int>(id)) + " {\n    label=" +
             quoted(std::string(graph_id_name(id)) + " (" + std::string(stream_name(graph_stream(id))) + ")") +
             ";\n    color=gray;\n";
    const std::vector<Node>& nodes = graph_.nodes(id);
    for (std::size_t k = 0; k < nodes.size(); ++k) {
      text_ += "    " + node_id(id, k) + " [label=" + quoted(nodes[k].name());
      if (!nodes[k].is_compute()) text_ += " style=rounded";
      if (nodes[k].branch > 0) text_ += " color=blue";
      if (nodes[k].records_event >= 0) text_ += " peripheries=2";
      text_ += "];\n";
    }
    text_ += "  }\n";
  }

  void add_edges(GraphId id) {
    const std::vector<Node>& nodes = graph_.nodes(id);
    std::map<TensorId, std::size_t> writer;
    for (std::size_t k = 0; k < nodes.size(); ++k) {
      if (nodes[k].is_compute()) {
        const auto& work = std::get<ComputeNode>(nodes[k].work);
        for (const TensorId input : work.inputs) {
          const auto from = writer.find(input);
          if (from == writer.end()) continue;
          text_ += "  " + node_id(id, from->second) + " -> " + node_id(id, k) +
                   " [label=" + quoted(graph_.tensor(input).name) + "];\n";
        }
        for (const TensorId output : work.outputs) writer[output] = k;
      } else if (k > 0) {
        text_ += "  " + node_id(id, k - 1) + " -> " + node_id(id, k) + " [style=dotted];\n";
      }
      for (const std::int32_t wait : nodes[k].waits) {
        text_ += "  " + node_id(id, static_cast<std::size_t>(wait)) + " -> " + node_id(id, k) +
                 " [style=dashed color=blue label=\"waits\"];\n";
      }
    }
  }

  const ComputationGraph& graph_;
  std::string text_;
};

}  // namespace

std::string to_dot(const AtlasReport& report) { return DotWriter(report).run(); }

}  // namespace renai
