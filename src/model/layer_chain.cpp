#include "layer_chain.hpp"

#include <utility>

namespace renai {

LayerChain::LayerChain(std::string name) {
  spec_.name = std::move(name);
  spec_.source = "zoo";
}

LayerSpec& LayerChain::append(const std::string& name, LayerKind kind) {
  LayerSpec layer;
  layer.name = name;
  layer.kind = kind;
  layer.inputs = {last_};
  layer.stage = stage_;
  last_ = name;
  return spec_.layers.emplace_back(std::move(layer));
}

LayerChain& LayerChain::conv(const std::string& name, std::int64_t out, std::int64_t kernel, std::int64_t padding,
                             bool bias) {
  LayerSpec& layer = append(name, LayerKind::conv2d);
  layer.out = out;
  layer.kernel_h = layer.kernel_w = kernel;
  layer.pad_h = layer.pad_w = padding;
  layer.bias = bias;
  return *this;
}

LayerChain& LayerChain::linear(const std::string& name, std::int64_t out) {
  append(name, LayerKind::linear).out = out;
  return *this;
}

LayerChain& LayerChain::layer(const std::string& name, LayerKind kind) {
  append(name, kind);
  return *this;
}

LayerChain& LayerChain::max_pool(const std::string& name, std::int64_t kernel) {
  return max_pool(name, kernel, kernel, 0);
}

LayerChain& LayerChain::max_pool(const std::string& name, std::int64_t kernel, std::int64_t stride,
                                 std::int64_t padding) {
  LayerSpec& layer = append(name, LayerKind::max_pool);
  layer.kernel_h = layer.kernel_w = kernel;
  layer.stride_h = layer.stride_w = stride;
  layer.pad_h = layer.pad_w = padding;
  return *this;
}

LayerChain& LayerChain::adaptive_avg_pool(const std::string& name, std::int64_t size) {
  LayerSpec& layer = append(name, LayerKind::adaptive_avg_pool);
  layer.size_h = layer.size_w = size;
  return *this;
}

LayerChain& LayerChain::dropout(const std::string& name, float p) {
  append(name, LayerKind::dropout).p = p;
  return *this;
}

LayerChain& LayerChain::stride(std::int64_t stride) {
  LayerSpec& layer = spec_.layers.back();
  layer.stride_h = layer.stride_w = stride;
  return *this;
}

LayerChain& LayerChain::groups(std::int64_t groups) {
  spec_.layers.back().groups = groups;
  return *this;
}

LayerChain& LayerChain::from(const std::string& name) {
  last_ = name;
  return *this;
}

LayerChain& LayerChain::resolution(std::int64_t size) {
  spec_.resolution = size;
  return *this;
}

LayerChain& LayerChain::conv_bn_relu(const std::string& prefix, std::int64_t out) {
  conv(prefix + ".conv", out, 3, 1, false);
  layer(prefix + ".bn", LayerKind::batch_norm);
  return layer(prefix + ".relu", LayerKind::relu);
}

LayerChain& LayerChain::add(const std::string& name, const std::string& other) {
  append(name, LayerKind::add).inputs.insert(spec_.layers.back().inputs.begin(), other);
  return *this;
}

LayerChain& LayerChain::stage(int stage) {
  stage_ = stage;
  return *this;
}

ModelSpec LayerChain::finish() const {
  verify(spec_);
  return spec_;
}

}  // namespace renai
