#pragma once
// The zoo: one file per model.

#include "renai/model/model_spec.hpp"

namespace renai::zoo {

/// Flatten, then linear layers of 1024, 512 and 256 features with ReLU, then the classes. Any input size.
ModelSpec mlp();
/// LeNet-5 with ReLU and max pooling; 28x28 or 32x32 inputs.
/// Source: LeCun et al., "Gradient-Based Learning Applied to Document Recognition", 1998.
ModelSpec lenet5();
/// Three convolutions with batch norm, ReLU and max pooling: accurate on small grey images at little cost. The default.
ModelSpec cnn_small();
/// Residual network of nine weighted layers for 32x32 colour images.
/// Source: D. Page, "How to Train Your ResNet", 2018 (without the scaling of the logits).
ModelSpec resnet9();
/// Residual networks, version 1.5: the stride of a bottleneck lies in its 3x3 convolution.
/// Source: He et al., "Deep Residual Learning for Image Recognition", 2016; layer names and order as in torchvision.
ModelSpec resnet18();
ModelSpec resnet34();
ModelSpec resnet50();
ModelSpec resnet101();
ModelSpec resnet152();
/// Source: Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", 2015; layer
/// names as in torchvision. Inputs of 224x224.
ModelSpec vgg11();
ModelSpec vgg13();
ModelSpec vgg16();
ModelSpec vgg19();
ModelSpec vgg11_bn();
ModelSpec vgg13_bn();
ModelSpec vgg16_bn();
ModelSpec vgg19_bn();

}  // namespace renai::zoo
