#pragma once
// Small hand-written models for tests.

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "renai/model/model_spec.hpp"

namespace renai::testing {

/// Builds a ModelSpec layer by layer; each call names the layer and its inputs.
class ModelBuilder {
 public:
  ModelBuilder() {
    spec_.name = "test";
    spec_.source = "test";
  }

  ModelBuilder& layer(LayerKind kind, std::string name, std::vector<std::string> inputs, LayerSpec attributes = {}) {
    attributes.name = std::move(name);
    attributes.kind = kind;
    attributes.inputs = std::move(inputs);
    spec_.layers.push_back(std::move(attributes));
    return *this;
  }

  /// A convolution with padding for stride 1 that keeps height and width.
  ModelBuilder& conv(std::string name, std::string input, std::int64_t out, std::int64_t kernel = 3,
                     bool bias = false) {
    LayerSpec attributes;
    attributes.out = out;
    attributes.kernel_h = attributes.kernel_w = kernel;
    attributes.pad_h = attributes.pad_w = kernel / 2;
    attributes.bias = bias;
    return layer(LayerKind::conv2d, std::move(name), {std::move(input)}, attributes);
  }

  /// out = 0: the class count.
  ModelBuilder& linear(std::string name, std::string input, std::int64_t out = 0) {
    LayerSpec attributes;
    attributes.out = out;
    return layer(LayerKind::linear, std::move(name), {std::move(input)}, attributes);
  }

  ModelBuilder& pool(LayerKind kind, std::string name, std::string input, std::int64_t kernel = 2) {
    LayerSpec attributes;
    attributes.kernel_h = attributes.kernel_w = attributes.stride_h = attributes.stride_w = kernel;
    return layer(kind, std::move(name), {std::move(input)}, attributes);
  }

  const ModelSpec& spec() const { return spec_; }

 private:
  ModelSpec spec_;
};

}  // namespace renai::testing
