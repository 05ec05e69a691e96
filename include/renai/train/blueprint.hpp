#pragma once
// Blueprint: everything that is fixed before memory exists: graph, variants, kernel book, plans, atlas. Equal on every
// rank.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "renai/backend/backend.hpp"
#include "renai/data/dataset.hpp"
#include "renai/plan/graph_atlas.hpp"
#include "renai/train/recipe.hpp"

namespace renai {

/// What the data sets say about shapes.
struct DataShape {
  std::int64_t train_samples = 0, val_samples = 0;
  std::int64_t h = 0, w = 0, c = 0;
  bool encoded = false;  ///< Images differ in size; h and w are the network input that the set is meant for.
  std::int64_t classes = 0;
  InputParams normalization;
};
/// What a manifest and the numbers of samples say.
DataShape describe_data(const Manifest& manifest, std::int64_t train_samples, std::int64_t val_samples);

/// The results of compile phases 1 to 5, each immutable from then on.
struct Blueprint {
  ComputationGraph graph;
  std::vector<CompileSpec> specs;
  ShapeTable shapes;
  KernelBook book;
  std::vector<MemoryPlan> plans;
  GraphAtlas atlas;
  SlotLayout slot;

  /// Variant of a training step: resolution phase and whether it is the epoch's partial batch.
  int training_variant(int phase, bool last) const { return 2 * phase + (last ? 1 : 0); }
  int validation_variant(bool last) const;
};

/// What is compiled otherwise than a training asks for.
struct BlueprintOptions {
  bool dedup = true;
  bool reuse_slots = true;
  bool training = true;            ///< false: validation variants only (eval).
  std::optional<ModelSpec> model;  ///< Instead of the recipe's.
};

/// Errors: UserError with the nearest known name.
OptimizerKind optimizer_of(const Recipe& recipe);
/// Errors: UserError with the nearest known name.
Precision precision_of(const Recipe& recipe);
/// The recipe's model with what its options change: --dropout, --init, --zero-gamma. Errors: UserError.
ModelSpec model_of(const Recipe& recipe);

/// Compile phases 1 to 5. Errors: UserError (model, recipe), BackendError (no kernel).
Blueprint make_blueprint(const Recipe& recipe, const DataShape& data, Backend& backend,
                         const Communicator& communicator, const BlueprintOptions& options = {});

/// Index of the resolution phase that an epoch belongs to.
int phase_of_epoch(std::span<const ResolutionPhase> phases, std::int64_t epoch);
/// The recipe's phases, or one phase with the model's or the data set's resolution.
std::vector<ResolutionPhase> resolution_phases(const Recipe& recipe, const ModelSpec& model, const DataShape& data);

}  // namespace renai
