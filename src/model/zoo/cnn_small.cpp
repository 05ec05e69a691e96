#include "../layer_chain.hpp"
#include "zoo.hpp"

namespace renai::zoo {

ModelSpec cnn_small() {
  LayerChain net("cnn-small");
  net.conv_bn_relu("layer1", 16).max_pool("layer1.pool", 2);
  net.stage(1).conv_bn_relu("layer2", 32).max_pool("layer2.pool", 2);
  net.stage(2).conv_bn_relu("layer3", 64).max_pool("layer3.pool", 2);
  net.stage(3).layer("flatten", LayerKind::flatten).linear("fc", 0);
  return net.finish();
}

}  // namespace renai::zoo
