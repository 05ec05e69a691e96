#include "renai/model/adjust.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "renai/base/error.hpp"
#include "renai/base/text.hpp"

namespace renai {
namespace {

constexpr std::string_view kTorchvision = "torchvision";
constexpr std::array<std::pair<std::string_view, InitRule>, 5> kWords{{
    {"kaiming-normal", InitRule::kaiming_normal},
    {"kaiming-uniform", InitRule::kaiming_uniform},
    {"xavier-normal", InitRule::xavier_normal},
    {"xavier-uniform", InitRule::xavier_uniform},
    {"trunc-normal", InitRule::trunc_normal},
}};

/// Networks of the zoo that torchvision has too, by the beginning of their names.
constexpr std::array<std::pair<std::string_view, InitRule>, 8> kFamilies{{
    {"resnet18", InitRule::torchvision_resnet},
    {"resnet34", InitRule::torchvision_resnet},
    {"resnet50", InitRule::torchvision_resnet},
    {"resnet101", InitRule::torchvision_resnet},
    {"resnet152", InitRule::torchvision_resnet},
    {"wide_resnet", InitRule::torchvision_resnet},
    {"resnext", InitRule::torchvision_resnet},
    {"vgg", InitRule::torchvision_vgg},
}};

/// Layers on the longest way from the network's input to each layer, itself included.
std::map<std::string, int> depths(const ModelSpec& model) {
  std::map<std::string, int> result;
  for (const LayerSpec& layer : model.layers) {
    int deepest = 0;
    for (const std::string& input : layer.inputs) {
      if (const auto found = result.find(input); found != result.end()) deepest = std::max(deepest, found->second);
    }
    result[layer.name] = deepest + 1;
  }
  return result;
}

std::string free_name(const ModelSpec& model) {
  std::set<std::string> taken;
  for (const LayerSpec& layer : model.layers) taken.insert(layer.name);
  std::string name = "dropout";
  for (int i = 1; taken.contains(name); ++i) name = "dropout." + std::to_string(i);
  return name;
}

/// The last batch norm of each residual block; see set_zero_gamma.
std::vector<LayerSpec*> last_norms_of_blocks(ModelSpec& model) {
  const std::map<std::string, int> depth = depths(model);
  std::map<std::string, LayerSpec*> norms;
  for (LayerSpec& layer : model.layers) {
    if (layer.kind == LayerKind::batch_norm) norms[layer.name] = &layer;
  }
  std::vector<LayerSpec*> all;
  for (const LayerSpec& layer : model.layers) {
    if (layer.kind != LayerKind::add) continue;
    LayerSpec* last = nullptr;
    for (const std::string& input : layer.inputs) {
      const auto norm = norms.find(input);
      if (norm == norms.end()) continue;
      if (last == nullptr || depth.at(input) > depth.at(last->name)) last = norm->second;
    }
    if (last != nullptr) all.push_back(last);
  }
  return all;
}

}  // namespace

std::vector<std::string> init_words() {
  std::vector<std::string> words;
  for (const auto& entry : kWords) words.emplace_back(entry.first);
  words.emplace_back(kTorchvision);
  return words;
}

void set_init(ModelSpec& model, const std::string& word) {
  if (word == kTorchvision) {
    model.init = InitRule::torch_default;
    for (const auto& [prefix, rule] : kFamilies) {
      if (model.name.starts_with(prefix)) model.init = rule;
    }
    return;
  }
  const auto found = std::find_if(kWords.begin(), kWords.end(), [&](const auto& entry) { return entry.first == word; });
  if (found == kWords.end()) {
    throw UserError("initialisation '" + word + "'", "there is no such rule", suggest_name(word, init_words()));
  }
  model.init = found->second;
}

void set_dropout(ModelSpec& model, float rate) {
  bool found = false;
  for (LayerSpec& layer : model.layers) {
    if (layer.kind != LayerKind::dropout) continue;
    layer.p = rate;
    found = true;
  }
  if (found || rate == 0.0f) return;
  const auto last = std::find_if(model.layers.rbegin(), model.layers.rend(),
                                 [](const LayerSpec& layer) { return layer.kind == LayerKind::linear; });
  if (last == model.layers.rend()) {
    throw UserError("--dropout", "model '" + model.name + "' has neither a dropout nor a linear layer",
                    "leave --dropout out, or put a dropout layer into the model's file");
  }
  LayerSpec dropout;
  dropout.name = free_name(model);
  dropout.kind = LayerKind::dropout;
  dropout.inputs = last->inputs;
  dropout.p = rate;
  dropout.stage = last->stage;
  last->inputs = {dropout.name};
  model.layers.insert(std::prev(last.base()), dropout);
}

bool ends_blocks_in_norms(const ModelSpec& model) {
  ModelSpec copy = model;
  return !last_norms_of_blocks(copy).empty();
}

void set_zero_gamma(ModelSpec& model) {
  const std::vector<LayerSpec*> last = last_norms_of_blocks(model);
  if (last.empty()) {
    throw UserError("--zero-gamma", "model '" + model.name + "' has no residual block that ends in a batch norm",
                    "leave --zero-gamma out");
  }
  for (LayerSpec* norm : last) norm->zero_init = true;
}

}  // namespace renai
