#pragma once
// GraphAtlas: the table variants x GraphIds. Looked up at run time by two array indices, nothing else.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "renai/graph/computation_graph.hpp"
#include "renai/plan/kernel_book.hpp"
#include "renai/plan/memory_plan.hpp"

namespace renai {

struct AtlasSlot {
  bool used = false;
  int graph = 0;  ///< Which ComputationGraph.
  int plan = 0;   ///< Which MemoryPlan (= variant).
  ShapeId shape;  ///< kShapeInvariant for invariant graphs.
  StreamId stream = StreamId::COMPUTE;
  int capture = -1;  ///< Index of the captured graph; slots with equal keys share it.
};

/// A unique capture, in the order in which all ranks make them.
struct CaptureKey {
  int graph = 0;
  GraphId id = GraphId::SIMPLE_TASK_GRAPH;
  ShapeId shape;
  int plan = 0;  ///< The first variant with this key: its plan is captured.
  bool collective = false;
};

class GraphAtlas {
 public:
  struct Parts {
    std::vector<CompileSpec> specs;
    std::vector<std::array<AtlasSlot, kGraphIdCount>> slots;  ///< [variant][GraphId]
    std::vector<CaptureKey> captures;
  };
  explicit GraphAtlas(Parts parts) : parts_(std::move(parts)) {}

  int variant_count() const { return static_cast<int>(parts_.specs.size()); }
  const std::vector<CompileSpec>& specs() const { return parts_.specs; }
  const AtlasSlot& slot(int variant, GraphId id) const {
    return parts_.slots[static_cast<std::size_t>(variant)][static_cast<std::size_t>(id)];
  }
  const std::vector<CaptureKey>& captures() const { return parts_.captures; }
  int used_slots() const;
  int reused_slots() const { return used_slots() - static_cast<int>(captures().size()); }

 private:
  Parts parts_;
};

/// Phase A: training variants get training + invariant graphs, validation variants inference + invariant graphs; graphs
/// without nodes stay empty. Slots with equal (graph, GraphId, ShapeId) share one capture unless `dedup` is false.
GraphAtlas build_atlas(const ComputationGraph& graph, std::span<const CompileSpec> specs, bool dedup = true);
void verify(const GraphAtlas& atlas, const ComputationGraph& graph);

/// Everything that must be equal on all ranks, as named sections of text, so that a difference can be located.
struct Fingerprint {
  std::vector<std::pair<std::string, std::string>>
      sections;  ///< (name, full text): recipe, build, topology, kernels, plans, atlas ...
};
Fingerprint fingerprint(const ComputationGraph& graph, const KernelBook& book, std::span<const MemoryPlan> plans,
                        const GraphAtlas& atlas);

/// What the atlas report shows beside the table.
struct AtlasReport {
  const ComputationGraph* graph = nullptr;
  const KernelBook* book = nullptr;
  std::span<const MemoryPlan> plans;
  const GraphAtlas* atlas = nullptr;
  double capture_seconds = -1;  ///< < 0: not captured.
  std::string device;
};
std::string print_table(const AtlasReport& report);  ///< 6 x 33 grid, captures, dedup, regions, peak memory.
std::string to_json(const AtlasReport& report);
std::string to_dot(const AtlasReport& report);   ///< Nodes by GraphId, edges by tensors and waits.
std::string to_html(const AtlasReport& report);  ///< Self-contained page: the grid and the arena drawn as SVG.

}  // namespace renai
