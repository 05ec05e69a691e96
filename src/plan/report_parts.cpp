#include "report_parts.hpp"

#include <algorithm>
#include <map>

#include "program_order.hpp"

namespace renai::plan_detail {

AtlasCounts count_atlas(const GraphAtlas& atlas) {
  AtlasCounts counts;
  counts.slots = atlas.variant_count() * kGraphIdCount;
  counts.used = atlas.used_slots();
  counts.captures = static_cast<int>(atlas.captures().size());
  counts.reused = atlas.reused_slots();
  counts.collective = static_cast<int>(std::count_if(atlas.captures().begin(), atlas.captures().end(),
                                                     [](const CaptureKey& key) { return key.collective; }));
  return counts;
}

bool is_reuse(const GraphAtlas& atlas, int variant, GraphId id) {
  const AtlasSlot& slot = atlas.slot(variant, id);
  return slot.used && atlas.captures()[static_cast<std::size_t>(slot.capture)].plan != variant;
}

std::vector<Region> outer_regions(const MemoryPlan& plan) {
  std::vector<Region> outer;
  std::int64_t end = 0;
  for (const Region& region : plan.regions) {
    if (region.offset_bytes < end) continue;
    outer.push_back(region);
    end = region.offset_bytes + region.size_bytes;
  }
  return outer;
}

double reuse_ratio(const MemoryPlan& plan) {
  if (plan.transient_no_reuse_bytes == 0) return 1.0;
  return static_cast<double>(plan.transient_bytes) / static_cast<double>(plan.transient_no_reuse_bytes);
}

LifeChart chart_lives(const AtlasReport& report, const MemoryPlan& plan) {
  const KernelBook& book = *report.book;
  const std::size_t graph_tensors = report.graph->tensors().size();
  const Family family = plan.spec.kind == VariantKind::training ? Family::training : Family::inference;
  LifeChart chart;
  std::map<TensorId, std::size_t> at;
  const auto touch = [&](TensorId id) {
    const auto t = static_cast<std::size_t>(id);
    const bool in_graph = t < graph_tensors;
    if (in_graph && !is_transient(report.graph->tensor(id).role)) return;
    const DTensor& tensor = plan.tensor(id);
    if (!tensor.placed()) return;
    const auto [entry, added] = at.try_emplace(id, chart.lives.size());
    if (added) {
      Life life;
      life.name = in_graph ? report.graph->tensor(id).name : book.tensors[t - graph_tensors].name;
      life.role = in_graph ? report.graph->tensor(id).role : TensorRole::saved;
      life.book = !in_graph;
      life.offset_bytes = tensor.offset_bytes;
      life.size_bytes = tensor.size_bytes;
      life.first = chart.steps;
      chart.lives.push_back(std::move(life));
    }
    chart.lives[entry->second].last = chart.steps;
  };
  const auto spec = static_cast<std::size_t>(&plan - report.plans.data());
  for (const GraphId id : passes_of(family)[0]) {
    const std::vector<KernelEntry>& entries = book.of(id);
    for (std::size_t e = 0; e < entries.size(); ++e, ++chart.steps) {
      for (const TensorId tensor : entries[e].inputs) touch(tensor);
      for (const TensorId tensor : entries[e].outputs) touch(tensor);
      const std::vector<std::int64_t>& place = plan.workspace_offset[static_cast<std::size_t>(id)][e];
      if (place.empty() || entries[e].workspace_bytes[spec] == 0) continue;
      chart.lives.push_back({"workspace of " + entries[e].kernel, TensorRole::saved, true, false, place[0],
                             entries[e].workspace_bytes[spec], chart.steps, chart.steps});
    }
  }
  return chart;
}

}  // namespace renai::plan_detail
