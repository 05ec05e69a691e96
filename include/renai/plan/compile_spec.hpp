#pragma once
// CompileSpec: one shape variant. ShapeId: the explicit key of a captured graph.

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "renai/tensor/batch_split.hpp"
#include "renai/tensor/shape.hpp"

namespace renai {

/// (N, H, W, C) of a variant's network input. Comparable and collision-free.
struct ShapeId {
  std::int64_t n = 0, h = 0, w = 0, c = 0;
  auto operator<=>(const ShapeId&) const = default;
  Shape shape() const { return Shape{n, h, w, c}; }
  std::string str() const;  ///< "8x28x28x1", "invariant" for zeros.
};

/// Key of graphs whose work does not depend on the input's shape.
inline constexpr ShapeId kShapeInvariant{};

enum class VariantKind : std::uint8_t { training, validation };

/// A shape variant: what one capture of the training or inference graphs is for.
struct CompileSpec {
  std::string name;  ///< "train_base", "train_last", "train_lowres", "train_lowres_last", "val_base", "val_last".
  VariantKind kind = VariantKind::training;
  ShapeId shape;      ///< N = rows of one logical shard, or of a micro-batch of it.
  bool last = false;  ///< The partial batch.
  bool operator==(const CompileSpec&) const = default;
};

/// One phase of a resolution schedule: from `epoch` on, train at `size` x `size`.
struct ResolutionPhase {
  std::int64_t size = 0;
  int epoch = 0;
};

struct SpecRequest {
  std::int64_t train_samples = 0, val_samples = 0;
  std::int64_t global_batch = 0, val_global_batch = 0;
  int logical_shards = 8;
  int micro_batches = 1;  ///< K, in training: N of a variant is the rows of a micro-batch of a shard.
  std::vector<ResolutionPhase> resolutions;  ///< k phases, the first at epoch 0; equal sizes give equal ShapeIds.
  std::int64_t val_resolution = 0;
  std::int64_t channels = 1;
};

/// 2k + 2 variants: training base and last for each phase in order, then validation base and last. Where an epoch has
/// no partial batch, `*_last` repeats the base shape (equal ShapeIds collapse in the atlas); where it has no full
/// batch, base repeats last. A single phase stands for both the base and the "lowres" pair. Without training samples
/// there are no training variants, without validation samples no validation variants. A validation batch of 0 is the
/// training one, a validation resolution of 0 the first phase's. Errors: UserError and DataError of split_batches;
/// UserError for sizes below 1; DataError when there are no samples.
std::vector<CompileSpec> make_specs(const SpecRequest& request);

/// Unique names, no empty shape, equal channels. Errors: InternalError.
void verify(std::span<const CompileSpec> specs);
std::string print(std::span<const CompileSpec> specs);

}  // namespace renai
