#include "renai/plan/memory_plan.hpp"

#include <algorithm>
#include <numeric>

#include "placement.hpp"
#include "region_layout.hpp"
#include "renai/base/check.hpp"
#include "renai/base/text.hpp"
#include "renai/graph/shape_inference.hpp"
#include "storages.hpp"

namespace renai {
namespace {

using namespace plan_detail;

std::int64_t total_bytes(const std::vector<Storage>& storages) {
  return std::accumulate(storages.begin(), storages.end(), std::int64_t{0},
                         [](std::int64_t sum, const Storage& storage) { return sum + storage.size_bytes; });
}

class Planner {
 public:
  explicit Planner(const PlanRequest& request)
      : request_(request), graph_(*request.graph), book_(*request.book), layout_(lay_out_regions(request)) {}

  std::vector<MemoryPlan> run() {
    place_transients();
    std::vector<MemoryPlan> plans;
    for (std::size_t spec = 0; spec < request_.specs.size(); ++spec) plans.push_back(make_plan(spec));
    return plans;
  }

 private:
  /// The families overlay each other at the region's start; what lasts comes after the largest of them.
  void place_transients() {
    maxima_ = compute_max_slot_bytes(request_);
    const StorageSet set = collect_storages(request_, maxima_);
    Region& region = layout_.regions[static_cast<std::size_t>(layout_.transient)];
    const std::int64_t start = region.offset_bytes;
    offsets_.assign(graph_.tensors().size() + book_.tensors.size(), -1);
    workspaces_.resize(kGraphIdCount);
    for (int i = 0; i < kGraphIdCount; ++i) {
      workspaces_[static_cast<std::size_t>(i)].resize(book_.of(static_cast<GraphId>(i)).size());
    }
    std::int64_t peak = 0, no_reuse = 0;
    for (int f = 0; f < kFamilyCount; ++f) {
      const std::vector<Storage>& storages = set.by_family[f];
      const Placement placement = place(storages, static_cast<Family>(f));
      store(storages, placement, start);
      peak = std::max(peak, placement.size_bytes);
      no_reuse = std::max(no_reuse, total_bytes(storages));
    }
    store(set.lasting, place_in_sequence(set.lasting), start + peak);
    region.size_bytes = peak + total_bytes(set.lasting);
    no_reuse_bytes_ = no_reuse + total_bytes(set.lasting);
    for (const auto& [tensor, owner] : set.in_fixed) {
      const FixedPlace& place = layout_.tensors[static_cast<std::size_t>(owner)];
      offsets_[static_cast<std::size_t>(tensor)] = place.offset_bytes;
    }
  }

  Placement place(const std::vector<Storage>& storages, Family family) const {
    if (!request_.reuse_slots) return place_in_sequence(storages);
    Conflicts conflicts(storages.size());
    const std::vector<ShardPass>& passes = passes_of(family);
    for (std::size_t pass = 0; pass < passes.size(); ++pass) {
      conflicts.add_pass(storages, pass, ProgramOrder(graph_, book_, passes[pass]));
    }
    return place_by_lifetime(storages, conflicts);
  }

  void store(const std::vector<Storage>& storages, const Placement& placement, std::int64_t start) {
    for (std::size_t i = 0; i < storages.size(); ++i) {
      const Storage& storage = storages[i];
      const std::int64_t offset = start + placement.offsets[i];
      for (const TensorId tensor : storage.tensors) offsets_[static_cast<std::size_t>(tensor)] = offset;
      if (storage.tensors.empty()) workspaces_[static_cast<std::size_t>(storage.graph)][storage.entry] = {offset};
    }
  }

  bool used_by(VariantKind kind, std::size_t tensor) const {
    return (kind == VariantKind::training ? maxima_.training : maxima_.inference)[tensor] > 0 ||
           maxima_.simple[tensor] > 0 || maxima_.invariant[tensor] > 0;
  }

  DTensor describe(std::size_t spec, std::size_t index) const {
    DTensor tensor;
    const bool in_graph = index < graph_.tensors().size();
    tensor.size_bytes = tensor_bytes(request_, spec, static_cast<TensorId>(index));
    if (in_graph) {
      const TensorRole role = graph_.tensors()[index].role;
      tensor.dtype = stored_dtype(book_, graph_, static_cast<TensorId>(index));
      tensor.shape = request_.shapes->at(spec)[index];
      if (role == TensorRole::slot) tensor.shape = Shape{request_.slot.size_bytes};
      if (role == TensorRole::slot) tensor.size_bytes = request_.slot.size_bytes;
      if (tensor.shape.rank() > 0) tensor.padded_c = tensor.shape.c();
      if (!book_.padded_c.empty()) tensor.padded_c = std::max(tensor.padded_c, book_.padded_c[index]);
    } else {
      tensor.dtype = DType::u8;
      tensor.shape = Shape{tensor.size_bytes};
      tensor.padded_c = tensor.size_bytes;
    }
    if (in_graph && layout_.tensors[index].offset_bytes >= 0) {
      tensor.offset_bytes = layout_.tensors[index].offset_bytes;
      tensor.region = layout_.tensors[index].region;
    } else if (used_by(request_.specs[spec].kind, index) && tensor.size_bytes > 0) {
      tensor.offset_bytes = offsets_[index];
      tensor.region = region_at(tensor.offset_bytes);
    }
    return tensor;
  }

  /// The innermost region around an offset: transient, but for aliases of tensors with a place of their own.
  RegionIndex region_at(std::int64_t offset) const {
    const Region& transient = layout_.regions[static_cast<std::size_t>(layout_.transient)];
    if (offset >= transient.offset_bytes) return layout_.transient;
    RegionIndex best = layout_.transient;
    std::int64_t best_size = 0;
    for (std::size_t i = 0; i < layout_.regions.size(); ++i) {
      const Region& region = layout_.regions[i];
      if (offset < region.offset_bytes || offset >= region.offset_bytes + region.size_bytes) continue;
      if (best_size != 0 && region.size_bytes >= best_size) continue;
      best = static_cast<RegionIndex>(i);
      best_size = region.size_bytes;
    }
    return best;
  }

  MemoryPlan make_plan(std::size_t spec) const {
    MemoryPlan plan;
    plan.spec = request_.specs[spec];
    for (std::size_t i = 0; i < offsets_.size(); ++i) plan.tensors.push_back(describe(spec, i));
    plan.workspace_offset = workspaces_;
    for (int i = 0; i < kGraphIdCount; ++i) {
      const GraphFamily family = graph_family(static_cast<GraphId>(i));
      const bool foreign = (family == GraphFamily::training && plan.spec.kind != VariantKind::training) ||
                           (family == GraphFamily::inference && plan.spec.kind != VariantKind::validation);
      if (!foreign) continue;
      for (std::vector<std::int64_t>& offset : plan.workspace_offset[static_cast<std::size_t>(i)]) offset.clear();
    }
    plan.regions = layout_.regions;
    plan.slot = request_.slot;
    const Region& transient = layout_.regions[static_cast<std::size_t>(layout_.transient)];
    plan.arena_bytes = transient.offset_bytes + transient.size_bytes;
    plan.transient_bytes = transient.size_bytes;
    plan.transient_no_reuse_bytes = no_reuse_bytes_;
    return plan;
  }

  const PlanRequest& request_;
  const ComputationGraph& graph_;
  const KernelBook& book_;
  RegionLayout layout_;
  SlotMaxima maxima_;
  std::vector<std::int64_t> offsets_;  ///< By tensor: transients only.
  std::vector<std::vector<std::vector<std::int64_t>>> workspaces_;
  std::int64_t no_reuse_bytes_ = 0;
};

std::string tensor_name(const ComputationGraph& graph, std::size_t index) {
  if (index < graph.tensors().size()) return graph.tensors()[index].name;
  return "book" + std::to_string(index - graph.tensors().size());
}

}  // namespace

const Region& MemoryPlan::region(std::string_view name) const {
  for (const Region& candidate : regions) {
    if (candidate.name == name) return candidate;
  }
  throw InternalError("plan of variant " + spec.name, "there is no region '" + std::string(name) + "'");
}

bool MemoryPlan::has_region(std::string_view name) const {
  return std::any_of(regions.begin(), regions.end(), [&](const Region& candidate) { return candidate.name == name; });
}

std::vector<MemoryPlan> build_memory_plans(const PlanRequest& request) {
  RENAI_CHECK(request.graph != nullptr && request.book != nullptr && request.shapes != nullptr,
              "a plan needs a graph, a kernel book and shapes");
  RENAI_CHECK(request.shapes->size() == request.specs.size(), "one row of shapes for each variant");
  for (const CompileSpec& spec : request.specs) {
    RENAI_CHECK(request.graph->empty(GraphId::TRANSFER_A) || spec.shape.n <= request.slot.rows,
                "the slot has room for the rows of variant '" + spec.name + "'");
  }
  verify(*request.book, *request.graph, static_cast<int>(request.specs.size()));
  return Planner(request).run();
}

std::string print(const MemoryPlan& plan, const ComputationGraph& graph) {
  std::string text = "plan " + plan.spec.name + " " + plan.spec.shape.str() + " arena " +
                     std::to_string(plan.arena_bytes) + " transient " + std::to_string(plan.transient_bytes) + " of " +
                     std::to_string(plan.transient_no_reuse_bytes) + "\n" + plan.slot.str() + "\n";
  for (const Region& region : plan.regions) {
    text += "region " + region.name + " at " + std::to_string(region.offset_bytes) + "+" +
            std::to_string(region.size_bytes) + "\n";
  }
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const DTensor& tensor = plan.tensors[i];
    if (!tensor.placed()) continue;
    text += "%" + std::to_string(i) + " " + tensor_name(graph, i) + " " + tensor.str();
    if (tensor.shape.rank() > 0 && tensor.padded_c != tensor.shape.c()) {
      text += " padded to " + std::to_string(tensor.padded_c);
    }
    text += "\n";
  }
  for (std::size_t id = 0; id < plan.workspace_offset.size(); ++id) {
    for (std::size_t entry = 0; entry < plan.workspace_offset[id].size(); ++entry) {
      for (const std::int64_t offset : plan.workspace_offset[id][entry]) {
        text += "workspace " + std::string(graph_id_name(static_cast<GraphId>(id))) + " entry " +
                std::to_string(entry) + " at " + std::to_string(offset) + "\n";
      }
    }
  }
  return text;
}

}  // namespace renai
