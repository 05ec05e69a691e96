#pragma once
// What `renai train --dry-run` tells of a run that does not take place.

#include <span>
#include <string>

#include "renai/plan/graph_atlas.hpp"
#include "renai/tensor/batch_split.hpp"
#include "renai/train/blueprint.hpp"

namespace renai {

/// The learning rate of every step as a plot of 64 columns: each column spans the rates of its steps (of 32 of them
/// where there are more). The vertical axis starts at 0. Needs `total` > 0.
std::string plot_learning_rate(const Recipe& recipe, std::int64_t total, std::int64_t batches);

/// Batches of an epoch, steps, warm-up, resolutions, first, highest and last learning rate, and their plot.
std::string print_schedule(const Recipe& recipe, const BatchSplit& split, std::span<const ResolutionPhase> phases);

/// The whole plan: resolved recipe, model, atlas, memory of a rank, schedule. Effects: none.
std::string print_plan(const Recipe& recipe, const Blueprint& blueprint, const DataShape& data,
                       const AtlasReport& report);

}  // namespace renai
