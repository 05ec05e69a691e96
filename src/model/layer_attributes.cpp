#include "layer_attributes.hpp"

#include <array>
#include <utility>

#include "renai/base/check.hpp"

namespace renai {
namespace {

constexpr std::array<std::pair<InitRule, std::string_view>, 8> kInitRules{{
    {InitRule::torch_default, "torch_default"},
    {InitRule::kaiming_normal, "kaiming_normal"},
    {InitRule::xavier_uniform, "xavier_uniform"},
    {InitRule::kaiming_uniform, "kaiming_uniform"},
    {InitRule::xavier_normal, "xavier_normal"},
    {InitRule::trunc_normal, "trunc_normal"},
    {InitRule::torchvision_resnet, "torchvision_resnet"},
    {InitRule::torchvision_vgg, "torchvision_vgg"},
}};

std::vector<LayerAttributes> make_table() {
  using enum LayerKind;
  return {
      {conv2d, "conv2d", {"out", "kernel", "stride", "padding", "dilation", "groups", "bias"}, "kernel"},
      {linear, "linear", {"out", "bias"}, ""},
      {batch_norm, "batch_norm", {"eps", "momentum", "zero_init"}, ""},
      {relu, "relu", {}, ""},
      {leaky_relu, "leaky_relu", {"slope"}, ""},
      {relu6, "relu6", {}, ""},
      {silu, "silu", {}, ""},
      {hard_swish, "hard_swish", {}, ""},
      {gelu, "gelu", {}, ""},
      {sigmoid, "sigmoid", {}, ""},
      {tanh, "tanh", {}, ""},
      {max_pool, "max_pool", {"kernel", "stride", "padding", "ceil_mode"}, "kernel"},
      {avg_pool, "avg_pool", {"kernel", "stride", "padding", "ceil_mode", "count_include_pad"}, "kernel"},
      {global_avg_pool, "global_avg_pool", {}, ""},
      {adaptive_avg_pool, "adaptive_avg_pool", {"size"}, "size"},
      {add, "add", {}, "inputs"},
      {concat, "concat", {}, "inputs"},
      {flatten, "flatten", {}, ""},
      {dropout, "dropout", {"p"}, ""},
  };
}

}  // namespace

std::span<const LayerAttributes> layer_attributes() {
  static const std::vector<LayerAttributes> kTable = make_table();
  return kTable;
}

const LayerAttributes& attributes_of(LayerKind kind) {
  const auto index = static_cast<std::size_t>(kind);
  RENAI_CHECK(index < layer_attributes().size(), "layer kind out of range");
  return layer_attributes()[index];
}

std::optional<LayerKind> find_layer_kind(std::string_view name) {
  for (const LayerAttributes& entry : layer_attributes()) {
    if (entry.name == name) return entry.kind;
  }
  return std::nullopt;
}

std::string layer_kind_name(LayerKind kind) { return std::string(attributes_of(kind).name); }

std::string_view init_rule_name(InitRule rule) {
  for (const auto& [value, name] : kInitRules) {
    if (value == rule) return name;
  }
  throw InternalError("naming an initialisation rule", "value out of range");
}

std::optional<InitRule> find_init_rule(std::string_view name) {
  for (const auto& [value, text] : kInitRules) {
    if (text == name) return value;
  }
  return std::nullopt;
}

std::vector<std::string> init_rule_names() {
  std::vector<std::string> names;
  for (const auto& entry : kInitRules) names.emplace_back(entry.second);
  return names;
}

}  // namespace renai
