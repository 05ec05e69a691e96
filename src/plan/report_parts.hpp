#pragma once
// What all forms of the atlas report share: counts, and what happens in a slot.

#include <cstdint>
#include <string>
#include <vector>

#include "renai/plan/graph_atlas.hpp"

namespace renai::plan_detail {

struct AtlasCounts {
  int slots = 0, used = 0, captures = 0, reused = 0, collective = 0;
};
AtlasCounts count_atlas(const GraphAtlas& atlas);

/// True when another, earlier slot made the capture.
bool is_reuse(const GraphAtlas& atlas, int variant, GraphId id);

/// Regions that no other region holds, in the order of their offsets.
std::vector<Region> outer_regions(const MemoryPlan& plan);

/// Bytes of the transient region over what it would take without slot reuse; 1 when there are no transients.
double reuse_ratio(const MemoryPlan& plan);

/// A placed transient for drawings: entries of the family's first pass between which it is live.
struct Life {
  std::string name;
  TensorRole role = TensorRole::activation;
  bool workspace = false, book = false;
  std::int64_t offset_bytes = 0, size_bytes = 0;
  int first = 0, last = 0;
};
struct LifeChart {
  int steps = 0;
  std::vector<Life> lives;
};
/// Lives of a plan's transients over the entries of its family's first pass.
LifeChart chart_lives(const AtlasReport& report, const MemoryPlan& plan);

}  // namespace renai::plan_detail
