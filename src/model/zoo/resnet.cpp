// Residual networks for 224x224 images, version 1.5 (the stride of a bottleneck in its 3x3 convolution), their wide and
// grouped variants, with torchvision's layer names.

#include <array>

#include "../layer_chain.hpp"
#include "zoo.hpp"

namespace renai::zoo {
namespace {

struct Design {
  const char* name;
  std::array<int, 4> blocks;
  bool bottleneck;
  std::int64_t base_width = 64;  ///< Bottleneck: channels of its 3x3 convolution for each group in the first stage.
  std::int64_t groups = 1;       ///< Bottleneck: groups of its 3x3 convolution.
};

class ResNet {
 public:
  explicit ResNet(const Design& design) : design_(design), net_(design.name) {}

  ModelSpec make() {
    net_.resolution(224);
    net_.conv("conv1", 64, 7, 3, false).stride(2);
    net_.layer("bn1", LayerKind::batch_norm).layer("relu", LayerKind::relu).max_pool("maxpool", 3, 2, 1);
    channels_ = 64;
    for (int stage = 0; stage < 4; ++stage) {
      net_.stage(stage + 1);
      for (int i = 0; i < design_.blocks[static_cast<std::size_t>(stage)]; ++i) {
        const std::string prefix = "layer" + std::to_string(stage + 1) + "." + std::to_string(i);
        block(prefix, std::int64_t{64} << stage, i == 0 && stage > 0 ? 2 : 1);
      }
    }
    return net_.stage(5)
        .layer("avgpool", LayerKind::global_avg_pool)
        .layer("flatten", LayerKind::flatten)
        .linear("fc", 0)
        .finish();
  }

 private:
  void norm_relu(const std::string& prefix, const std::string& index) {
    net_.layer(prefix + ".bn" + index, LayerKind::batch_norm).layer(prefix + ".relu" + index, LayerKind::relu);
  }

  /// relu(path(x) + shortcut(x)); the shortcut is a convolution where the extent or the channels change.
  void block(const std::string& prefix, std::int64_t width, std::int64_t stride) {
    const std::int64_t out = design_.bottleneck ? width * 4 : width;
    const std::string entry = net_.last();
    std::string shortcut = entry;
    if (stride != 1 || channels_ != out) {
      net_.conv(prefix + ".downsample.0", out, 1, 0, false).stride(stride);
      net_.layer(prefix + ".downsample.1", LayerKind::batch_norm);
      shortcut = net_.last();
      net_.from(entry);
    }
    if (design_.bottleneck) {
      const std::int64_t inner = width * design_.base_width / 64 * design_.groups;
      net_.conv(prefix + ".conv1", inner, 1, 0, false);
      norm_relu(prefix, "1");
      net_.conv(prefix + ".conv2", inner, 3, 1, false).stride(stride).groups(design_.groups);
      norm_relu(prefix, "2");
      net_.conv(prefix + ".conv3", out, 1, 0, false).layer(prefix + ".bn3", LayerKind::batch_norm);
    } else {
      net_.conv(prefix + ".conv1", width, 3, 1, false).stride(stride);
      norm_relu(prefix, "1");
      net_.conv(prefix + ".conv2", out, 3, 1, false).layer(prefix + ".bn2", LayerKind::batch_norm);
    }
    net_.add(prefix + ".add", shortcut).layer(prefix + ".relu", LayerKind::relu);
    channels_ = out;
  }

  Design design_;
  LayerChain net_;
  std::int64_t channels_ = 0;
};

}  // namespace

ModelSpec resnet18() { return ResNet({"resnet18", {2, 2, 2, 2}, false}).make(); }
ModelSpec resnet34() { return ResNet({"resnet34", {3, 4, 6, 3}, false}).make(); }
ModelSpec resnet50() { return ResNet({"resnet50", {3, 4, 6, 3}, true}).make(); }
ModelSpec resnet101() { return ResNet({"resnet101", {3, 4, 23, 3}, true}).make(); }
ModelSpec resnet152() { return ResNet({"resnet152", {3, 8, 36, 3}, true}).make(); }
ModelSpec wide_resnet50_2() { return ResNet({"wide_resnet50_2", {3, 4, 6, 3}, true, 128}).make(); }
ModelSpec resnext50_32x4d() { return ResNet({"resnext50_32x4d", {3, 4, 6, 3}, true, 4, 32}).make(); }

}  // namespace renai::zoo
