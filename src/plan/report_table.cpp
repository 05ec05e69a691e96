// The atlas as text.

#include <algorithm>
#include <cstdio>

#include "renai/base/text.hpp"
#include "report_parts.hpp"

namespace renai {
namespace {

using namespace plan_detail;

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::string right(const std::string& text, std::size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

/// "12" where the slot's variant makes capture 12, "=12" where it reuses it, "." where it is empty.
std::string cell(const GraphAtlas& atlas, int variant, GraphId id) {
  const AtlasSlot& slot = atlas.slot(variant, id);
  if (!slot.used) return ".";
  return (is_reuse(atlas, variant, id) ? "=" : "") + std::to_string(slot.capture);
}

std::string grid(const AtlasReport& report) {
  const GraphAtlas& atlas = *report.atlas;
  std::string text = padded("graph", 28) + padded("stream", 10) + right("nodes", 5) + right("parts", 6);
  for (const CompileSpec& spec : atlas.specs()) text += "  " + right(spec.name, 10);
  text += "\n";
  for (int i = 0; i < kGraphIdCount; ++i) {
    const auto id = static_cast<GraphId>(i);
    const std::size_t nodes = report.graph->nodes(id).size();
    text += padded(std::string(graph_id_name(id)), 28) + padded(std::string(stream_name(graph_stream(id))), 10) +
            right(std::to_string(nodes), 5) + right(nodes == 0 ? "0" : std::to_string(report.graph->part_count(id)), 6);
    for (int variant = 0; variant < atlas.variant_count(); ++variant) {
      const std::size_t width = std::max<std::size_t>(10, atlas.specs()[static_cast<std::size_t>(variant)].name.size());
      text += "  " + right(cell(atlas, variant, id), width);
    }
    text += "\n";
  }
  return text;
}

std::string captures(const AtlasReport& report) {
  const GraphAtlas& atlas = *report.atlas;
  std::string text = "captures, in the order of all ranks:\n";
  for (std::size_t i = 0; i < atlas.captures().size(); ++i) {
    const CaptureKey& key = atlas.captures()[i];
    text += right(std::to_string(i), 4) + "  " + padded(std::string(graph_id_name(key.id)), 28) +
            padded(key.shape.str(), 18) + atlas.specs()[static_cast<std::size_t>(key.plan)].name +
            (key.collective ? "  collective" : "") + "\n";
  }
  return text;
}

std::string percent(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100.0 * ratio);
  return text;
}

std::string memory(const MemoryPlan& plan) {
  std::string text = "memory, the same places in every variant:\n";
  for (const Region& region : outer_regions(plan)) {
    text += "  " + padded(region.name, 16) + right(format_bytes(region.size_bytes), 12) + "  at " +
            std::to_string(region.offset_bytes) + "\n";
  }
  text += "  " + padded("arena (peak)", 16) + right(format_bytes(plan.arena_bytes), 12) + "\n";
  text += "  transient without slot reuse " + format_bytes(plan.transient_no_reuse_bytes) + "; with it " +
          format_bytes(plan.transient_bytes) + " (" + percent(reuse_ratio(plan)) + ")\n";
  return text;
}

}  // namespace

std::string print_table(const AtlasReport& report) {
  const GraphAtlas& atlas = *report.atlas;
  const AtlasCounts counts = count_atlas(atlas);
  std::string text = "atlas of " + report.graph->model().name + " on backend " + report.book->backend;
  if (!report.device.empty()) text += ", " + report.device;
  text += "\nkernel plan " + hex64(kernel_plan_hash(*report.book)) + "\n\nvariants:\n" + print(atlas.specs()) + "\n" +
          grid(report) + "\n(N: captured here as number N; =N: reuses it; .: empty)\n\n" + captures(report) + "\n";
  text += "slots " + std::to_string(counts.slots) + ", filled " + std::to_string(counts.used) + ", captures " +
          std::to_string(counts.captures) + " (" + std::to_string(counts.collective) + " collective), reused " +
          std::to_string(counts.reused) + "\n";
  if (report.capture_seconds >= 0) {
    char line[64];
    std::snprintf(line, sizeof line, "capture time %.3f s\n", report.capture_seconds);
    text += line;
  }
  if (!report.plans.empty()) text += "\n" + memory(report.plans[0]);
  return text;
}

}  // namespace renai
