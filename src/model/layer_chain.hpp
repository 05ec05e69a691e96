#pragma once
// LayerChain: writes the zoo's models as chains of layers with named branch points.

#include <string>

#include "renai/model/model_spec.hpp"

namespace renai {

/// Appends layers to a ModelSpec; each reads the one before it unless `from` moved the reading point.
class LayerChain {
 public:
  explicit LayerChain(std::string name);

  LayerChain& conv(const std::string& name, std::int64_t out, std::int64_t kernel, std::int64_t padding, bool bias);
  LayerChain& linear(const std::string& name, std::int64_t out);
  LayerChain& layer(const std::string& name, LayerKind kind);
  /// Max pool with stride = kernel.
  LayerChain& max_pool(const std::string& name, std::int64_t kernel);
  LayerChain& max_pool(const std::string& name, std::int64_t kernel, std::int64_t stride, std::int64_t padding);
  /// Average pool to size x size.
  LayerChain& adaptive_avg_pool(const std::string& name, std::int64_t size);
  LayerChain& dropout(const std::string& name, float p);
  /// Stride of the layer just appended.
  LayerChain& stride(std::int64_t stride);
  /// Groups of the convolution just appended.
  LayerChain& groups(std::int64_t groups);
  /// The next layer reads the output of the layer `name`.
  LayerChain& from(const std::string& name);
  /// Default network input size. Units: pixels.
  LayerChain& resolution(std::int64_t size);
  /// "<prefix>.conv" 3x3 without bias, "<prefix>.bn", "<prefix>.relu".
  LayerChain& conv_bn_relu(const std::string& prefix, std::int64_t out);
  /// Adds the current output to that of `other`.
  LayerChain& add(const std::string& name, const std::string& other);

  /// Later layers belong to this stage.
  LayerChain& stage(int stage);
  /// Name of the layer whose output the next one reads ("input" at the start).
  const std::string& last() const { return last_; }
  /// The finished model. Errors: as verify().
  ModelSpec finish() const;

 private:
  LayerSpec& append(const std::string& name, LayerKind kind);

  ModelSpec spec_;
  std::string last_ = "input";
  int stage_ = 0;
};

}  // namespace renai
