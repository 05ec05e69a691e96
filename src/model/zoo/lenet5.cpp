#include "../layer_chain.hpp"
#include "zoo.hpp"

namespace renai::zoo {

ModelSpec lenet5() {
  LayerChain net("lenet5");
  net.conv("conv1", 6, 5, 2, true).layer("relu1", LayerKind::relu).max_pool("pool1", 2);
  net.stage(1).conv("conv2", 16, 5, 0, true).layer("relu2", LayerKind::relu).max_pool("pool2", 2);
  net.stage(2).layer("flatten", LayerKind::flatten).linear("fc1", 120).layer("relu3", LayerKind::relu);
  net.stage(3).linear("fc2", 84).layer("relu4", LayerKind::relu);
  net.stage(4).linear("fc3", 0);
  return net.finish();
}

}  // namespace renai::zoo
