#include <algorithm>
#include <cstdio>
#include <sstream>

#include "layer_attributes.hpp"
#include "renai/base/text.hpp"
#include "renai/model/model_spec.hpp"

namespace renai {
namespace {

const LayerSpec kDefaults{};

/// Shortest decimal that reads back as the same float; a decimal point or exponent keeps it a float in TOML.
std::string float_text(float value) {
  char text[48];
  for (int digits = 1; digits <= 9; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, static_cast<double>(value));
    if (std::strtof(text, nullptr) == value) break;
  }
  std::string result = text;
  if (result.find_first_of(".e") == std::string::npos) result += ".0";
  return result;
}

std::string bool_text(bool value) { return value ? "true" : "false"; }

std::string pair_text(std::int64_t h, std::int64_t w) {
  if (h == w) return std::to_string(h);
  return "[" + std::to_string(h) + ", " + std::to_string(w) + "]";
}

/// The value of one attribute as TOML text; "" where it is the layer's default.
std::string attribute_text(const LayerSpec& layer, std::string_view key) {
  const bool pool = layer.kind == LayerKind::max_pool || layer.kind == LayerKind::avg_pool;
  if (key == "out") return layer.out == 0 ? "" : std::to_string(layer.out);
  if (key == "size") return pair_text(layer.size_h, layer.size_w);
  if (key == "kernel") return pair_text(layer.kernel_h, layer.kernel_w);
  if (key == "stride") {
    const std::int64_t h = pool ? layer.kernel_h : 1, w = pool ? layer.kernel_w : 1;
    return layer.stride_h == h && layer.stride_w == w ? "" : pair_text(layer.stride_h, layer.stride_w);
  }
  if (key == "padding") return layer.pad_h == 0 && layer.pad_w == 0 ? "" : pair_text(layer.pad_h, layer.pad_w);
  if (key == "dilation") {
    return layer.dilation_h == 1 && layer.dilation_w == 1 ? "" : pair_text(layer.dilation_h, layer.dilation_w);
  }
  if (key == "groups") return layer.groups == 1 ? "" : std::to_string(layer.groups);
  if (key == "bias") return layer.bias == kDefaults.bias ? "" : bool_text(layer.bias);
  if (key == "ceil_mode") return layer.ceil_mode == kDefaults.ceil_mode ? "" : bool_text(layer.ceil_mode);
  if (key == "count_include_pad") {
    return layer.count_include_pad == kDefaults.count_include_pad ? "" : bool_text(layer.count_include_pad);
  }
  if (key == "eps") return layer.eps == kDefaults.eps ? "" : float_text(layer.eps);
  if (key == "momentum") return layer.bn_momentum == kDefaults.bn_momentum ? "" : float_text(layer.bn_momentum);
  if (key == "zero_init") return layer.zero_init == kDefaults.zero_init ? "" : bool_text(layer.zero_init);
  if (key == "slope") return layer.slope == kDefaults.slope ? "" : float_text(layer.slope);
  return layer.p == kDefaults.p ? "" : float_text(layer.p);
}

std::vector<std::string> attribute_texts(const LayerSpec& layer) {
  std::vector<std::string> texts;
  for (const std::string_view key : attributes_of(layer.kind).keys) {
    const std::string value = attribute_text(layer, key);
    if (!value.empty()) texts.push_back(std::string(key) + " = " + value);
  }
  return texts;
}

/// A TOML basic string.
std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04X", byte);
      result += escape;
    } else {
      result += c;
    }
  }
  return result + "\"";
}

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

}  // namespace

std::string print(const ModelSpec& spec) {
  std::size_t name_width = 0, kind_width = 0, inputs_width = 0;
  for (const LayerSpec& layer : spec.layers) {
    name_width = std::max(name_width, layer.name.size());
    kind_width = std::max(kind_width, layer_kind_name(layer.kind).size());
    inputs_width = std::max(inputs_width, join(layer.inputs, " ").size());
  }
  std::ostringstream out;
  out << "model " << spec.name << " (" << spec.source << "), " << spec.layers.size() << " layers, init "
      << init_rule_name(spec.init) << ", input channels " << spec.input_channels << ", resolution " << spec.resolution
      << ", classes " << spec.classes << "\n";
  for (const LayerSpec& layer : spec.layers) {
    const std::vector<std::string> attributes = attribute_texts(layer);
    std::string line = "  " + padded(layer.name, name_width) + "  " + padded(layer_kind_name(layer.kind), kind_width) +
                       "  <- " + padded(join(layer.inputs, " "), inputs_width) + "  stage " +
                       std::to_string(layer.stage);
    if (!attributes.empty()) line += "  " + join(attributes, ", ");
    out << line << "\n";
  }
  return out.str();
}

std::string to_toml(const ModelSpec& spec) {
  std::ostringstream out;
  out << "name = " << quoted(spec.name) << "\n";
  if (spec.input_channels != 0) out << "input_channels = " << spec.input_channels << "\n";
  if (spec.resolution != 0) out << "resolution = " << spec.resolution << "\n";
  if (spec.classes != 0) out << "classes = " << spec.classes << "\n";
  if (spec.init != InitRule::torch_default) out << "init = " << quoted(init_rule_name(spec.init)) << "\n";
  for (const LayerSpec& layer : spec.layers) {
    std::vector<std::string> inputs;
    for (const std::string& input : layer.inputs) inputs.push_back(quoted(input));
    out << "\n[[layers]]\nname = " << quoted(layer.name) << "\ntype = " << quoted(layer_kind_name(layer.kind))
        << "\ninputs = [" << join(inputs, ", ") << "]\nstage = " << layer.stage << "\n";
    for (const std::string& attribute : attribute_texts(layer)) out << attribute << "\n";
  }
  return out.str();
}

}  // namespace renai
