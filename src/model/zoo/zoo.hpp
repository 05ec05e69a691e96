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
/// Residual networks of 6 n + 2 weighted layers for 32x32 images, with widths of 16, 32 and 64. Where the image narrows
/// the shortcut is a 1x1 convolution with batch norm (the paper's option B), not option A's padding with zero channels:
/// graphs have no padding of channels. That is 2,752 parameters more than option A, in any depth.
/// Source: He et al., "Deep Residual Learning for Image Recognition", 2016, section 4.2.
ModelSpec resnet20();
ModelSpec resnet32();
ModelSpec resnet44();
ModelSpec resnet56();
/// Residual networks, version 1.5: the stride of a bottleneck lies in its 3x3 convolution.
/// Source: He et al., "Deep Residual Learning for Image Recognition", 2016; layer names and order as in torchvision.
ModelSpec resnet18();
ModelSpec resnet34();
ModelSpec resnet50();
ModelSpec resnet101();
ModelSpec resnet152();
/// resnet50 with twice the channels in every 3x3 convolution.
/// Source: Zagoruyko and Komodakis, "Wide Residual Networks", 2016; layer names as in torchvision.
ModelSpec wide_resnet50_2();
/// resnet50 whose 3x3 convolutions have 32 groups, of four channels each in the first stage.
/// Source: Xie et al., "Aggregated Residual Transformations for Deep Neural Networks", 2017; names as in torchvision.
ModelSpec resnext50_32x4d();
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
