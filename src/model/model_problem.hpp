#pragma once
// What is wrong with a model, as a value, so that the caller can say where (a file's line or a layer's name).

#include <cstddef>
#include <optional>
#include <string>

#include "renai/model/model_spec.hpp"

namespace renai {

/// Limits that keep every product of attributes inside 64 bits and a typing error from taking all memory.
inline constexpr std::int64_t kMaxAttribute = 1 << 20;
inline constexpr std::size_t kMaxLayers = 10'000;

/// The first mistake in a model. `layer` is an index into spec.layers, or the number of layers for the model as a
/// whole.
struct ModelProblem {
  std::size_t layer = 0;
  std::string attribute;
  std::string why;
  std::string remedy;
};

/// Determinism: the first problem in the order of the layers. Nothing when the model is sound.
std::optional<ModelProblem> find_problem(const ModelSpec& spec);

/// The mistake in one attribute's value, whatever the other layers are; nothing when all are in range.
std::optional<ModelProblem> find_attribute_problem(const LayerSpec& layer);

}  // namespace renai
