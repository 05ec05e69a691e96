// The atlas as JSON.

#include <nlohmann/json.hpp>

#include "renai/base/text.hpp"
#include "report_parts.hpp"

namespace renai {
namespace {

using namespace plan_detail;
using Json = nlohmann::ordered_json;

Json shape_json(const ShapeId& shape) { return Json::array({shape.n, shape.h, shape.w, shape.c}); }

Json variants_json(const GraphAtlas& atlas) {
  Json list = Json::array();
  for (const CompileSpec& spec : atlas.specs()) {
    list.push_back({{"name", spec.name},
                    {"kind", spec.kind == VariantKind::training ? "training" : "validation"},
                    {"shape", shape_json(spec.shape)},
                    {"last", spec.last}});
  }
  return list;
}

Json graphs_json(const AtlasReport& report) {
  Json list = Json::array();
  for (int i = 0; i < kGraphIdCount; ++i) {
    const auto id = static_cast<GraphId>(i);
    const bool empty = report.graph->empty(id);
    list.push_back({{"id", graph_id_name(id)},
                    {"invariant", is_shape_invariant(id)},
                    {"stream", stream_name(graph_stream(id))},
                    {"collective", has_collectives(*report.graph, id)},
                    {"nodes", report.graph->nodes(id).size()},
                    {"entries", report.book->of(id).size()},
                    {"parts", empty ? 0 : report.graph->part_count(id)}});
  }
  return list;
}

Json slots_json(const GraphAtlas& atlas) {
  Json rows = Json::array();
  for (int variant = 0; variant < atlas.variant_count(); ++variant) {
    Json row = Json::array();
    for (int i = 0; i < kGraphIdCount; ++i) {
      const auto id = static_cast<GraphId>(i);
      const AtlasSlot& slot = atlas.slot(variant, id);
      if (!slot.used) {
        row.push_back(nullptr);
        continue;
      }
      row.push_back({{"graph", slot.graph},
                     {"plan", slot.plan},
                     {"shape", shape_json(slot.shape)},
                     {"stream", stream_name(slot.stream)},
                     {"capture", slot.capture},
                     {"reused", is_reuse(atlas, variant, id)}});
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Json captures_json(const GraphAtlas& atlas) {
  Json list = Json::array();
  for (const CaptureKey& key : atlas.captures()) {
    list.push_back({{"graph", key.graph},
                    {"id", graph_id_name(key.id)},
                    {"shape", shape_json(key.shape)},
                    {"plan", key.plan},
                    {"collective", key.collective}});
  }
  return list;
}

Json memory_json(const AtlasReport& report) {
  const MemoryPlan& plan = report.plans[0];
  Json regions = Json::array();
  for (const Region& region : plan.regions) {
    regions.push_back(
        {{"name", region.name}, {"offset_bytes", region.offset_bytes}, {"size_bytes", region.size_bytes}});
  }
  return {{"arena_bytes", plan.arena_bytes},
          {"transient_bytes", plan.transient_bytes},
          {"transient_no_reuse_bytes", plan.transient_no_reuse_bytes},
          {"reuse_ratio", reuse_ratio(plan)},
          {"slot_bytes", plan.slot.size_bytes},
          {"regions", std::move(regions)}};
}

/// Tensors of each variant: the same places, other shapes.
Json tensors_json(const AtlasReport& report, const MemoryPlan& plan) {
  Json list = Json::array();
  const std::size_t graph_tensors = report.graph->tensors().size();
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const DTensor& tensor = plan.tensors[i];
    if (!tensor.placed()) continue;
    Json extents = Json::array();
    for (int axis = 0; axis < tensor.shape.rank(); ++axis) extents.push_back(tensor.shape[axis]);
    list.push_back(
        {{"id", i},
         {"name", i < graph_tensors ? report.graph->tensors()[i].name : report.book->tensors[i - graph_tensors].name},
         {"shape", std::move(extents)},
         {"dtype", dtype_name(tensor.dtype)},
         {"region", plan.regions[static_cast<std::size_t>(tensor.region)].name},
         {"offset_bytes", tensor.offset_bytes},
         {"size_bytes", tensor.size_bytes}});
  }
  return list;
}

}  // namespace

std::string to_json(const AtlasReport& report) {
  const AtlasCounts counts = count_atlas(*report.atlas);
  Json json;
  json["model"] = report.graph->model().name;
  json["backend"] = report.book->backend;
  json["device"] = report.device;
  json["kernel_plan_hash"] = hex64(kernel_plan_hash(*report.book));
  json["counts"] = {{"slots", counts.slots},
                    {"used", counts.used},
                    {"captures", counts.captures},
                    {"collective", counts.collective},
                    {"reused", counts.reused}};
  json["capture_seconds"] = report.capture_seconds < 0 ? Json(nullptr) : Json(report.capture_seconds);
  json["variants"] = variants_json(*report.atlas);
  json["graphs"] = graphs_json(report);
  json["slots"] = slots_json(*report.atlas);
  json["captures"] = captures_json(*report.atlas);
  json["memory"] = report.plans.empty() ? Json(nullptr) : memory_json(report);
  Json plans = Json::array();
  for (const MemoryPlan& plan : report.plans) {
    plans.push_back({{"variant", plan.spec.name}, {"tensors", tensors_json(report, plan)}});
  }
  json["plans"] = std::move(plans);
  return json.dump(2) + "\n";
}

}  // namespace renai
