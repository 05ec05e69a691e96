// Residual networks of 6 n + 2 weighted layers for 32x32 images.

#include "../layer_chain.hpp"
#include "zoo.hpp"

namespace renai::zoo {
namespace {

/// relu(bn(conv(relu(bn(conv(x))))) + shortcut(x)); the shortcut is a convolution where the image narrows.
void block(LayerChain& net, const std::string& prefix, std::int64_t width, bool narrows) {
  const std::int64_t stride = narrows ? 2 : 1;
  const std::string entry = net.last();
  std::string shortcut = entry;
  if (narrows) {
    net.conv(prefix + ".downsample.0", width, 1, 0, false).stride(stride);
    net.layer(prefix + ".downsample.1", LayerKind::batch_norm);
    shortcut = net.last();
    net.from(entry);
  }
  net.conv(prefix + ".conv1", width, 3, 1, false).stride(stride);
  net.layer(prefix + ".bn1", LayerKind::batch_norm).layer(prefix + ".relu1", LayerKind::relu);
  net.conv(prefix + ".conv2", width, 3, 1, false).layer(prefix + ".bn2", LayerKind::batch_norm);
  net.add(prefix + ".add", shortcut).layer(prefix + ".relu", LayerKind::relu);
}

ModelSpec resnet_cifar(const char* name, int blocks) {
  LayerChain net(name);
  net.conv("conv1", 16, 3, 1, false).layer("bn1", LayerKind::batch_norm).layer("relu", LayerKind::relu);
  for (int stage = 1; stage <= 3; ++stage) {
    net.stage(stage);
    for (int i = 0; i < blocks; ++i) {
      const std::string prefix = "layer" + std::to_string(stage) + "." + std::to_string(i);
      block(net, prefix, std::int64_t{8} << stage, stage > 1 && i == 0);
    }
  }
  net.stage(4).layer("avgpool", LayerKind::global_avg_pool).layer("flatten", LayerKind::flatten);
  return net.linear("fc", 0).finish();
}

}  // namespace

ModelSpec resnet20() { return resnet_cifar("resnet20", 3); }
ModelSpec resnet32() { return resnet_cifar("resnet32", 5); }
ModelSpec resnet44() { return resnet_cifar("resnet44", 7); }
ModelSpec resnet56() { return resnet_cifar("resnet56", 9); }

}  // namespace renai::zoo
