// VGG networks (224x224 images unless asked otherwise), with and without batch norm, with torchvision's layer names.

#include <span>
#include <vector>

#include "../layer_chain.hpp"
#include "zoo.hpp"

namespace renai::zoo {
namespace {

/// Widths of the 3x3 convolutions; 0 is a 2x2 max pool.
const std::vector<std::int64_t> kVgg11{64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0};
const std::vector<std::int64_t> kVgg13{64, 64, 0, 128, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0};
const std::vector<std::int64_t> kVgg16{64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0};
const std::vector<std::int64_t> kVgg19{64,  64,  0,   128, 128, 0,   256, 256, 256, 256, 0,
                                       512, 512, 512, 512, 0,   512, 512, 512, 512, 0};

ModelSpec vgg(const char* name, std::span<const std::int64_t> widths, bool norm) {
  LayerChain net(name);
  net.resolution(224);
  int index = 0, stage = 0;
  const auto next = [&index] { return "features." + std::to_string(index++); };
  for (const std::int64_t width : widths) {
    if (width == 0) {
      net.max_pool(next(), 2);
      net.stage(++stage);
      continue;
    }
    net.conv(next(), width, 3, 1, true);
    if (norm) net.layer(next(), LayerKind::batch_norm);
    net.layer(next(), LayerKind::relu);
  }
  // At 224x224 this changes nothing.
  net.adaptive_avg_pool("avgpool", 7).layer("flatten", LayerKind::flatten);
  net.linear("classifier.0", 4096).layer("classifier.1", LayerKind::relu).dropout("classifier.2", 0.5f);
  net.linear("classifier.3", 4096).layer("classifier.4", LayerKind::relu).dropout("classifier.5", 0.5f);
  return net.linear("classifier.6", 0).finish();
}

}  // namespace

ModelSpec vgg11() { return vgg("vgg11", kVgg11, false); }
ModelSpec vgg13() { return vgg("vgg13", kVgg13, false); }
ModelSpec vgg16() { return vgg("vgg16", kVgg16, false); }
ModelSpec vgg19() { return vgg("vgg19", kVgg19, false); }
ModelSpec vgg11_bn() { return vgg("vgg11_bn", kVgg11, true); }
ModelSpec vgg13_bn() { return vgg("vgg13_bn", kVgg13, true); }
ModelSpec vgg16_bn() { return vgg("vgg16_bn", kVgg16, true); }
ModelSpec vgg19_bn() { return vgg("vgg19_bn", kVgg19, true); }

}  // namespace renai::zoo
