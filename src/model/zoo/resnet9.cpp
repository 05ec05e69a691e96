#include "../layer_chain.hpp"
#include "zoo.hpp"

namespace renai::zoo {
namespace {

/// x + relu(bn(conv(relu(bn(conv(x)))))), without an activation after the sum.
void residual(LayerChain& net, const std::string& prefix, std::int64_t width) {
  const std::string entry = net.last();
  net.conv_bn_relu(prefix + ".res1", width).conv_bn_relu(prefix + ".res2", width).add(prefix + ".add", entry);
}

}  // namespace

ModelSpec resnet9() {
  LayerChain net("resnet9");
  net.conv_bn_relu("prep", 64);
  net.stage(1).conv_bn_relu("layer1", 128).max_pool("layer1.pool", 2);
  residual(net, "layer1", 128);
  net.stage(2).conv_bn_relu("layer2", 256).max_pool("layer2.pool", 2);
  net.stage(3).conv_bn_relu("layer3", 512).max_pool("layer3.pool", 2);
  residual(net, "layer3", 512);
  net.stage(4).max_pool("pool", 4).layer("flatten", LayerKind::flatten).linear("fc", 0);
  return net.finish();
}

}  // namespace renai::zoo
