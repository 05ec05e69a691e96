#include "verify_regions.hpp"

#include <set>

#include "renai/base/error.hpp"
#include "renai/graph/region_name.hpp"

namespace renai::plan_detail {
namespace {

/// Checks that need one plan and its regions only.
class RegionVerifier {
 public:
  explicit RegionVerifier(const MemoryPlan& plan) : plan_(plan) {}

  void run() const {
    std::set<std::string> names;
    for (const Region& region : plan_.regions) {
      if (!names.insert(region.name).second) fail_plan(plan_, "two regions are called '" + region.name + "'");
      if (region.offset_bytes % kSlotAlignment != 0 || region.size_bytes % kSlotAlignment != 0) {
        fail_plan(plan_, "region '" + region.name + "' is not aligned");
      }
      if (region.offset_bytes < 0 || region.size_bytes < 0 ||
          region.offset_bytes + region.size_bytes > plan_.arena_bytes) {
        fail_plan(plan_, "region '" + region.name + "' reaches out of the arena");
      }
      const std::size_t dot = region.name.rfind('.');
      if (dot != std::string::npos) check_inside(region);
    }
    check_nesting();
    check_inner_layouts();
  }

 private:
  bool contains(const Region& outer, const Region& inner) const {
    return inner.offset_bytes >= outer.offset_bytes &&
           inner.offset_bytes + inner.size_bytes <= outer.offset_bytes + outer.size_bytes;
  }

  /// "a.b.c" lies in the nearest named ancestor; "grad.first_values" goes on to the metrics, so it counts as the
  /// shard's.
  void check_inside(const Region& region) const {
    std::string name = region.name;
    while (true) {
      const std::size_t dot = name.rfind('.');
      if (dot == std::string::npos) return;
      name.resize(dot);
      const bool joint = region.name.ends_with("first_values") && name.ends_with(region_name::kGrad);
      if (joint || !plan_.has_region(name)) continue;
      if (!contains(plan_.region(name), region)) {
        fail_plan(plan_, "region '" + region.name + "' is not inside '" + name + "'");
      }
      return;
    }
  }

  /// Two regions are apart, or one holds the other; joint spans may cut across.
  void check_nesting() const {
    for (const Region& a : plan_.regions) {
      for (const Region& b : plan_.regions) {
        if (&a == &b || a.name.ends_with("first_values") || b.name.ends_with("first_values")) continue;
        const bool apart =
            a.offset_bytes + a.size_bytes <= b.offset_bytes || b.offset_bytes + b.size_bytes <= a.offset_bytes;
        if (apart || contains(a, b) || contains(b, a)) continue;
        fail_plan(plan_, "regions '" + a.name + "' and '" + b.name + "' cut across each other");
      }
    }
    const Region& shard = plan_.region(region_name::kShardValues);
    for (const std::string_view part : {region_name::kGrad, region_name::kMetrics, region_name::kBnBatch}) {
      if (!contains(shard, plan_.region(part))) fail_plan(plan_, "'" + std::string(part) + "' is not in the shard");
    }
  }

  /// Weights, gradients, moments and averages segment by segment; counters like the shard.
  void check_inner_layouts() const {
    for (const Region& region : plan_.regions) {
      const std::string weights = std::string(region_name::kWeights) + ".";
      if (region.name.starts_with(weights)) {
        for (const std::string_view twin :
             {region_name::kGrad, region_name::kMomentum, region_name::kSecondMoment, region_name::kEma}) {
          const bool optional = twin == region_name::kSecondMoment || twin == region_name::kEma;
          if (optional && !plan_.has_region(twin)) continue;
          check_twin(region, region_name::kWeights, region_name::child(twin, region.name.substr(weights.size())), twin);
        }
      }
      const std::size_t dot = region.name.find('.');
      const bool like_shard =
          region.name.starts_with(region_name::kCounter) || region.name.starts_with(region_name::kMicro);
      if (!like_shard || dot == std::string::npos) continue;
      const std::string inner = region.name.substr(dot + 1);
      check_twin(region, region.name.substr(0, dot), inner, region_name::kShardValues);
    }
  }

  void check_twin(const Region& region, std::string_view parent, const std::string& twin,
                  std::string_view twin_parent) const {
    const Region& other = plan_.region(twin);
    if (region.size_bytes == other.size_bytes && region.offset_bytes - plan_.region(parent).offset_bytes ==
                                                     other.offset_bytes - plan_.region(twin_parent).offset_bytes) {
      return;
    }
    fail_plan(plan_, "regions '" + region.name + "' and '" + twin + "' have different places in their parents");
  }

  const MemoryPlan& plan_;
};

}  // namespace

void fail_plan(const MemoryPlan& plan, const std::string& why) {
  throw InternalError("memory plan of variant " + plan.spec.name, why);
}

void verify_regions(const MemoryPlan& plan) { RegionVerifier(plan).run(); }

}  // namespace renai::plan_detail
