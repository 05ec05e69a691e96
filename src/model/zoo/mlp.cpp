#include "../layer_chain.hpp"
#include "zoo.hpp"

namespace renai::zoo {

ModelSpec mlp() {
  LayerChain net("mlp");
  net.layer("flatten", LayerKind::flatten).linear("fc1", 1024).layer("relu1", LayerKind::relu);
  net.stage(1).linear("fc2", 512).layer("relu2", LayerKind::relu);
  net.stage(2).linear("fc3", 256).layer("relu3", LayerKind::relu);
  net.stage(3).linear("fc4", 0);
  return net.finish();
}

}  // namespace renai::zoo
