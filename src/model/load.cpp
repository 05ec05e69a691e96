#include "renai/base/error.hpp"
#include "renai/base/text.hpp"
#include "renai/base/text_file.hpp"
#include "renai/model/model_spec.hpp"
#include "zoo/zoo.hpp"

namespace renai {
namespace {

struct ZooEntry {
  const char* name;
  ModelSpec (*make)();
};

constexpr ZooEntry kZoo[] = {{"cnn-small", zoo::cnn_small},
                             {"mlp", zoo::mlp},
                             {"lenet5", zoo::lenet5},
                             {"resnet9", zoo::resnet9},
                             {"resnet20", zoo::resnet20},
                             {"resnet32", zoo::resnet32},
                             {"resnet44", zoo::resnet44},
                             {"resnet56", zoo::resnet56},
                             {"resnet18", zoo::resnet18},
                             {"resnet34", zoo::resnet34},
                             {"resnet50", zoo::resnet50},
                             {"resnet101", zoo::resnet101},
                             {"resnet152", zoo::resnet152},
                             {"wide_resnet50_2", zoo::wide_resnet50_2},
                             {"resnext50_32x4d", zoo::resnext50_32x4d},
                             {"vgg11", zoo::vgg11},
                             {"vgg13", zoo::vgg13},
                             {"vgg16", zoo::vgg16},
                             {"vgg19", zoo::vgg19},
                             {"vgg11_bn", zoo::vgg11_bn},
                             {"vgg13_bn", zoo::vgg13_bn},
                             {"vgg16_bn", zoo::vgg16_bn},
                             {"vgg19_bn", zoo::vgg19_bn}};

ModelSpec load_model_file(const std::string& path) {
  return parse_model(read_named_text("reading model file " + path, path, "check the path of --model"), path);
}

}  // namespace

std::vector<std::string> zoo_model_names() {
  std::vector<std::string> names;
  for (const ZooEntry& entry : kZoo) names.emplace_back(entry.name);
  return names;
}

ModelSpec load_model(const std::string& name_or_path) {
  if (name_or_path.ends_with(".toml")) return load_model_file(name_or_path);
  for (const ZooEntry& entry : kZoo) {
    if (name_or_path == entry.name) return entry.make();
  }
  const std::vector<std::string> names = zoo_model_names();
  throw UserError("model '" + name_or_path + "'", "there is no model of this name",
                  suggest_name(name_or_path, names) + " (own models: a path ending in .toml)");
}

}  // namespace renai
