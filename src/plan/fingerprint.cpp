// What ranks compare before capture.

#include "renai/base/text.hpp"
#include "renai/plan/graph_atlas.hpp"

namespace renai {
namespace {

std::string atlas_text(const GraphAtlas& atlas) {
  std::string text;
  for (std::size_t i = 0; i < atlas.captures().size(); ++i) {
    const CaptureKey& key = atlas.captures()[i];
    text += "capture " + std::to_string(i) + " graph " + std::to_string(key.graph) + " " +
            std::string(graph_id_name(key.id)) + " " + key.shape.str() + " plan " + std::to_string(key.plan) +
            (key.collective ? " collective" : "") + "\n";
  }
  for (int variant = 0; variant < atlas.variant_count(); ++variant) {
    for (int i = 0; i < kGraphIdCount; ++i) {
      const AtlasSlot& slot = atlas.slot(variant, static_cast<GraphId>(i));
      if (!slot.used) continue;
      text += "slot " + atlas.specs()[static_cast<std::size_t>(variant)].name + " " +
              std::string(graph_id_name(static_cast<GraphId>(i))) + " capture " + std::to_string(slot.capture) +
              " stream " + std::string(stream_name(slot.stream)) + "\n";
    }
  }
  return text;
}

}  // namespace

Fingerprint fingerprint(const ComputationGraph& graph, const KernelBook& book, std::span<const MemoryPlan> plans,
                        const GraphAtlas& atlas) {
  std::string plan_text;
  for (const MemoryPlan& plan : plans) plan_text += print(plan, graph);
  Fingerprint result;
  result.sections = {{"topology", print(graph)},
                     {"shapes", print(atlas.specs())},
                     {"kernels", "hash " + hex64(kernel_plan_hash(book)) + "\n" + print(book, graph)},
                     {"plans", std::move(plan_text)},
                     {"atlas", atlas_text(atlas)}};
  return result;
}

}  // namespace renai
