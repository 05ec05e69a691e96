#include "renai/plan/graph_atlas.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "renai/base/check.hpp"
#include "renai/base/text.hpp"

namespace renai {
namespace {

/// Whether a variant of this kind has the graph: its own family's, and those that every variant shares.
bool has_graph(VariantKind kind, GraphId id) {
  switch (graph_family(id)) {
    case GraphFamily::training: return kind == VariantKind::training;
    case GraphFamily::inference: return kind == VariantKind::validation;
    case GraphFamily::invariant:
    case GraphFamily::caller: return true;
  }
  return false;
}

/// The caller's graph depends on the shape only when it computes on tensors.
ShapeId key_shape(const ComputationGraph& graph, GraphId id, const CompileSpec& spec) {
  const std::vector<Node>& nodes = graph.nodes(id);
  const bool computes = std::any_of(nodes.begin(), nodes.end(), [](const Node& node) { return node.is_compute(); });
  return is_shape_invariant(id) || (graph_family(id) == GraphFamily::caller && !computes) ? kShapeInvariant
                                                                                          : spec.shape;
}

using Key = std::tuple<int, GraphId, ShapeId>;

[[noreturn]] void fail_slot(const CompileSpec& spec, GraphId id, const std::string& why) {
  throw InternalError("atlas slot " + spec.name + " x " + std::string(graph_id_name(id)), why);
}

void check_slot(const GraphAtlas& atlas, const ComputationGraph& graph, int variant, GraphId id) {
  const CompileSpec& spec = atlas.specs()[static_cast<std::size_t>(variant)];
  const AtlasSlot& slot = atlas.slot(variant, id);
  const bool wanted = !graph.empty(id) && has_graph(spec.kind, id);
  if (slot.used != wanted) fail_slot(spec, id, wanted ? "it is empty" : "it is filled");
  if (!slot.used) return;
  if (slot.plan != variant) fail_slot(spec, id, "it has another variant's plan");
  if (slot.shape != key_shape(graph, id, spec)) fail_slot(spec, id, "its shape is " + slot.shape.str());
  if (slot.stream != graph_stream(id)) fail_slot(spec, id, "it is on another stream");
  if (slot.capture < 0 || slot.capture >= static_cast<int>(atlas.captures().size())) {
    fail_slot(spec, id, "it has no capture");
  }
  const CaptureKey& key = atlas.captures()[static_cast<std::size_t>(slot.capture)];
  if (key.graph != slot.graph || key.id != id || key.shape != slot.shape) {
    fail_slot(spec, id, "its capture is made for another key");
  }
}

}  // namespace

int GraphAtlas::used_slots() const {
  int used = 0;
  for (const auto& row : parts_.slots) {
    used += static_cast<int>(std::count_if(row.begin(), row.end(), [](const AtlasSlot& slot) { return slot.used; }));
  }
  return used;
}

GraphAtlas build_atlas(const ComputationGraph& graph, std::span<const CompileSpec> specs, bool dedup) {
  GraphAtlas::Parts parts;
  parts.specs.assign(specs.begin(), specs.end());
  parts.slots.resize(specs.size());
  std::map<Key, int> known;
  for (std::size_t variant = 0; variant < specs.size(); ++variant) {
    for (int i = 0; i < kGraphIdCount; ++i) {
      const auto id = static_cast<GraphId>(i);
      if (graph.empty(id) || !has_graph(specs[variant].kind, id)) continue;
      AtlasSlot& slot = parts.slots[variant][static_cast<std::size_t>(i)];
      slot.used = true;
      slot.plan = static_cast<int>(variant);
      slot.shape = key_shape(graph, id, specs[variant]);
      slot.stream = graph_stream(id);
      const auto next = static_cast<int>(parts.captures.size());
      const Key key{slot.graph, id, slot.shape};
      const auto [entry, added] = known.try_emplace(key, next);
      slot.capture = dedup ? entry->second : next;
      if (slot.capture == next) {
        parts.captures.push_back({slot.graph, id, slot.shape, slot.plan, has_collectives(graph, id)});
      }
    }
  }
  return GraphAtlas(std::move(parts));
}

void verify(const GraphAtlas& atlas, const ComputationGraph& graph) {
  std::set<int> used;
  for (int variant = 0; variant < atlas.variant_count(); ++variant) {
    for (int i = 0; i < kGraphIdCount; ++i) {
      const auto id = static_cast<GraphId>(i);
      check_slot(atlas, graph, variant, id);
      if (atlas.slot(variant, id).used) used.insert(atlas.slot(variant, id).capture);
    }
  }
  for (std::size_t i = 0; i < atlas.captures().size(); ++i) {
    const CaptureKey& key = atlas.captures()[i];
    const std::string name = "capture " + std::to_string(i) + " (" + std::string(graph_id_name(key.id)) + ")";
    if (!used.contains(static_cast<int>(i))) throw InternalError(name, "no slot uses it");
    if (key.plan < 0 || key.plan >= atlas.variant_count()) throw InternalError(name, "its plan does not exist");
    if (atlas.slot(key.plan, key.id).capture != static_cast<int>(i)) {
      throw InternalError(name, "it is captured under a plan whose slot uses another capture");
    }
    if (key.collective != has_collectives(graph, key.id))
      throw InternalError(name, "it is wrongly marked as collective");
  }
}

}  // namespace renai
