#pragma once
// Which attributes each layer kind has: one table for the parser, the verifier and the printer.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "renai/model/model_spec.hpp"

namespace renai {

/// The attributes of a kind, beside `type`, `name`, `inputs` and `stage`, which every layer has.
struct LayerAttributes {
  LayerKind kind;
  std::string_view name;
  std::vector<std::string_view> keys;
  std::string_view required;  ///< The attribute that has no default; "" for none.
};

/// Every kind once, in the order of LayerKind. Determinism: a constant.
std::span<const LayerAttributes> layer_attributes();

/// Errors: InternalError for a value outside the enumeration.
const LayerAttributes& attributes_of(LayerKind kind);

/// The kind with this name; nothing when there is none.
std::optional<LayerKind> find_layer_kind(std::string_view name);

/// "torch_default", "kaiming_normal", "xavier_uniform".
std::string_view init_rule_name(InitRule rule);
std::optional<InitRule> find_init_rule(std::string_view name);
std::vector<std::string> init_rule_names();

}  // namespace renai
