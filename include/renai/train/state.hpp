#pragma once
// State: initial values, and the way between the arena and a StateDict.

#include <cstdint>
#include <string>
#include <vector>

#include "renai/checkpoint/state_dict.hpp"
#include "renai/train/engine.hpp"

namespace renai {

/// How a parameter's stored elements map to logical ones: filters R S C of a convolution, rows of a linear layer and
/// factors of a batch norm behind flattened maps H W C.
struct ParamLayout {
  std::vector<FeaturePart> parts;     ///< Of each row; empty: stored as they are saved.
  std::vector<std::int64_t> logical;  ///< torchvision extents.
  bool operator==(const ParamLayout&) const = default;
};
/// By parameter. `shapes`: of any variant.
std::vector<ParamLayout> param_layouts(const ComputationGraph& graph, std::span<const Shape> shapes);

/// Seeded per tensor by name: adding a layer leaves the others' values alone. The loss scale starts at
/// kInitialLossScale where the graph has a dynamic one, else it is 1. Determinism: a pure function of (seed,
/// name, element).
void initialize_state(Engine& engine, std::uint64_t seed);

/// Where training stands.
struct Progress {
  std::int64_t step = 0;
  double best_top1 = -1.0;
  std::int64_t skipped_steps = 0;
  bool validation_due = false;                  ///< A signal ended the run before the validation after `step`.
  double epoch_loss_sum = 0, epoch_images = 0;  ///< Over the epoch of the last step so far, skipped steps left out.
};

/// Weights, momentum, running statistics, their averages (group `ema`, where the graph has them) and progress (with the
/// loss scale), by torchvision names.
StateDict gather_state(Engine& engine, const Progress& progress);
/// Which weight, running statistic or average of such a state is no finite number; empty where none is.
std::string describe_useless(const StateDict& state);
/// Errors: DataError naming the first missing, surplus or misshapen tensor; with `weights_only` also the first that
/// holds a value that is no number. `weights_only` leaves optimizer and progress as they are and accepts files without
/// running statistics. Averages start as a copy of the weights and statistics then.
Progress restore_state(Engine& engine, const StateDict& state, const std::string& file, bool weights_only);

/// The state with the group `ema`, which holds weights and running statistics, in place of the weights.
/// Errors: UserError where there is no such group.
StateDict averages_as_weights(StateDict state, const std::string& file);

}  // namespace renai
