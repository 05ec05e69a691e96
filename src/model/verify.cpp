#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "layer_attributes.hpp"
#include "model_problem.hpp"
#include "renai/base/error.hpp"
#include "renai/base/text.hpp"
#include "reserved_names.hpp"

namespace renai {
namespace {

struct IntegerRange {
  const char* attribute;
  std::int64_t value, lowest;
};

std::optional<ModelProblem> check_range(const IntegerRange& range) {
  if (range.value >= range.lowest && range.value <= kMaxAttribute) return std::nullopt;
  const std::string lowest = std::to_string(range.lowest), most = std::to_string(kMaxAttribute);
  return ModelProblem{0, range.attribute,
                      "value " + std::to_string(range.value) + " is outside " + lowest + " to " + most,
                      "give at least " + lowest + " and at most " + most};
}

std::optional<ModelProblem> check_window(const LayerSpec& layer) {
  const IntegerRange ranges[] = {
      {"kernel", layer.kernel_h, 1},     {"kernel", layer.kernel_w, 1},     {"stride", layer.stride_h, 1},
      {"stride", layer.stride_w, 1},     {"padding", layer.pad_h, 0},       {"padding", layer.pad_w, 0},
      {"dilation", layer.dilation_h, 1}, {"dilation", layer.dilation_w, 1}, {"groups", layer.groups, 1}};
  for (const IntegerRange& range : ranges) {
    if (auto problem = check_range(range)) return problem;
  }
  if (layer.kind != LayerKind::conv2d && (2 * layer.pad_h > layer.kernel_h || 2 * layer.pad_w > layer.kernel_w)) {
    return ModelProblem{0, "padding", "a pool's padding may be at most half its kernel",
                        "use less padding or a larger kernel"};
  }
  return std::nullopt;
}

std::optional<ModelProblem> check_conv(const LayerSpec& layer) {
  if (layer.out == 0)
    return ModelProblem{0, "out", "the number of output channels is missing", "add for example out = 64"};
  if (auto problem = check_range({"out", layer.out, 1})) return problem;
  if (auto problem = check_window(layer)) return problem;
  if (layer.out % layer.groups != 0) {
    return ModelProblem{
        0, "groups",
        std::to_string(layer.out) + " output channels are not divisible by " + std::to_string(layer.groups) + " groups",
        "change out or groups"};
  }
  return std::nullopt;
}

bool in_open_unit(float value) { return value > 0.0f && value <= 1.0f; }

std::optional<ModelProblem> check_inputs(const LayerSpec& layer) {
  const std::size_t count = layer.inputs.size();
  const std::string have = "has " + std::to_string(count) + (count == 1 ? " input" : " inputs");
  if (layer.kind == LayerKind::add && count != 2)
    return ModelProblem{0, "inputs", have + "; add takes 2", "name two earlier layers"};
  if (layer.kind == LayerKind::concat && count < 2) {
    return ModelProblem{0, "inputs", have + "; concat takes at least 2", "name two or more earlier layers"};
  }
  if (layer.kind != LayerKind::add && layer.kind != LayerKind::concat && count != 1) {
    return ModelProblem{0, "inputs", have + "; " + layer_kind_name(layer.kind) + " takes 1",
                        "name one earlier layer, or leave `inputs` out: then it is the layer before"};
  }
  return std::nullopt;
}

std::optional<ModelProblem> check_model(const ModelSpec& spec) {
  const std::size_t whole = spec.layers.size();
  if (spec.name.empty())
    return ModelProblem{whole, "name", "the model has no name", "add a line name = \"...\" before the layers"};
  if (spec.layers.empty())
    return ModelProblem{whole, "layers", "the model has no layers", "add one [[layers]] table for each layer"};
  if (whole > kMaxLayers) {
    return ModelProblem{whole, "layers", "more than " + std::to_string(kMaxLayers) + " layers", "leave some out"};
  }
  for (const IntegerRange& range :
       {IntegerRange{"input_channels", spec.input_channels, 0}, IntegerRange{"resolution", spec.resolution, 0},
        IntegerRange{"classes", spec.classes, 0}}) {
    if (auto problem = check_range(range)) {
      problem->layer = whole;
      return problem;
    }
  }
  return std::nullopt;
}

/// Names become names of tensors in checkpoints, so they hold no separator of paths and no control character.
std::optional<ModelProblem> check_name(const std::string& name) {
  if (name.empty()) return ModelProblem{0, "name", "the layer has no name", "add name = \"...\""};
  if (name == kNetworkInput || name == kPrevious || name == kBlockInput) {
    return ModelProblem{0, "name", "'" + name + "' has a meaning of its own in `inputs`", "choose another"};
  }
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  };
  if (!std::all_of(name.begin(), name.end(), allowed) || name.front() == '.' || name.back() == '.' ||
      name.find("..") != std::string::npos) {
    return ModelProblem{0, "name", "'" + name + "' is no path of letters, digits, '_' and '-' joined by single dots",
                        "choose another"};
  }
  return std::nullopt;
}

/// Names are unique and every input names an earlier layer; marks the layers that are read in `consumed`.
std::optional<ModelProblem> check_edges(const ModelSpec& spec, std::vector<bool>& consumed) {
  std::map<std::string, std::size_t, std::less<>> earlier;
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerSpec& layer = spec.layers[i];
    if (auto problem = check_name(layer.name)) {
      problem->layer = i;
      return problem;
    }
    for (const std::string& input : layer.inputs) {
      if (input == "input") continue;
      const auto found = earlier.find(input);
      if (found == earlier.end()) {
        std::vector<std::string> known{"input"};
        for (const auto& entry : earlier) known.push_back(entry.first);
        return ModelProblem{i, "inputs", "no earlier layer is named '" + input + "'", suggest_name(input, known)};
      }
      consumed[found->second] = true;
    }
    if (!earlier.emplace(layer.name, i).second) {
      return ModelProblem{i, "name", "'" + layer.name + "' is already taken by an earlier layer", "choose another"};
    }
  }
  return std::nullopt;
}

std::optional<ModelProblem> check_ends(const ModelSpec& spec, const std::vector<bool>& consumed) {
  const std::size_t last = spec.layers.size() - 1;
  for (std::size_t i = 0; i < last; ++i) {
    if (consumed[i]) continue;
    return ModelProblem{i, "inputs", "no layer reads the output of '" + spec.layers[i].name + "'",
                        "only the last layer, which yields the logits, may stay unread"};
  }
  for (std::size_t i = 0; i < last; ++i) {
    if (spec.layers[i].kind == LayerKind::linear && spec.layers[i].out == 0) {
      return ModelProblem{i, "out", "the number of output features is missing",
                          "only the last layer may leave it out: there it is the class count"};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<ModelProblem> find_attribute_problem(const LayerSpec& layer) {
  switch (layer.kind) {
    case LayerKind::conv2d:
      if (auto problem = check_conv(layer)) return problem;
      break;
    case LayerKind::linear:
      if (auto problem = check_range({"out", layer.out, 0})) return problem;
      break;
    case LayerKind::max_pool:
    case LayerKind::avg_pool:
      if (auto problem = check_window(layer)) return problem;
      break;
    case LayerKind::adaptive_avg_pool:
      if (auto problem = check_range({"size", layer.size_h, 1})) return problem;
      if (auto problem = check_range({"size", layer.size_w, 1})) return problem;
      break;
    case LayerKind::batch_norm:
      if (!(layer.eps > 0.0f) || !std::isfinite(layer.eps))
        return ModelProblem{0, "eps", "must be above 0", "use for example 1e-5"};
      if (!in_open_unit(layer.bn_momentum))
        return ModelProblem{0, "momentum", "must be above 0 and at most 1", "use for example 0.1"};
      break;
    case LayerKind::leaky_relu:
      // A slope of zero or below would make the sign of the input unreadable from the output, which backward uses.
      if (!(layer.slope > 0.0f) || !std::isfinite(layer.slope))
        return ModelProblem{0, "slope", "must be above 0", "use for example 0.01"};
      break;
    case LayerKind::dropout:
      if (!(layer.p >= 0.0f && layer.p < 1.0f))
        return ModelProblem{0, "p", "must be at least 0 and below 1", "use for example 0.5"};
      break;
    default: break;
  }
  return check_range({"stage", layer.stage, 0});
}

std::optional<ModelProblem> find_problem(const ModelSpec& spec) {
  if (auto problem = check_model(spec)) return problem;
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    auto problem = find_attribute_problem(spec.layers[i]);
    if (!problem) problem = check_inputs(spec.layers[i]);
    if (problem) {
      problem->layer = i;
      return problem;
    }
  }
  std::vector<bool> consumed(spec.layers.size(), false);
  if (auto problem = check_edges(spec, consumed)) return problem;
  return check_ends(spec, consumed);
}

void verify(const ModelSpec& spec) {
  const auto problem = find_problem(spec);
  if (!problem) return;
  std::string where = "model '" + spec.name + "' (" + spec.source + ")";
  if (problem->layer < spec.layers.size()) where += ", layer '" + spec.layers[problem->layer].name + "'";
  throw UserError(where + ", attribute '" + problem->attribute + "'", problem->why, problem->remedy);
}

}  // namespace renai
