#pragma once
// ModelSpec: what the user asks for. A named list of layers forming a DAG; no shapes, no memory, no device.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace renai {

enum class LayerKind {
  conv2d,
  linear,
  batch_norm,
  relu,
  leaky_relu,
  relu6,
  silu,
  hard_swish,
  gelu,
  sigmoid,
  tanh,
  max_pool,
  avg_pool,
  global_avg_pool,
  adaptive_avg_pool,
  add,
  concat,
  flatten,
  dropout
};

std::string layer_kind_name(LayerKind kind);

/// One layer. `name` is its torchvision-style path ("layer1.0.conv1"): parameters are "<name>.weight", "<name>.bias".
/// `inputs` name earlier layers or "input". Unused attributes keep their defaults.
struct LayerSpec {
  std::string name;
  LayerKind kind = LayerKind::relu;
  std::vector<std::string> inputs;

  std::int64_t out = 0;  ///< conv2d: output channels K; linear: output features. 0 on the last linear: class count.
  std::int64_t kernel_h = 0, kernel_w = 0;
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t pad_h = 0, pad_w = 0;
  std::int64_t dilation_h = 1, dilation_w = 1;
  std::int64_t groups = 1;
  std::int64_t size_h = 0, size_w = 0;  ///< adaptive_avg_pool: extents of the output.
  bool bias = true;                     ///< conv2d, linear.
  bool ceil_mode = false;               ///< pools: round the output extent up.
  bool count_include_pad = true;        ///< avg_pool.
  float eps = 1e-5f;                    ///< batch_norm.
  float bn_momentum = 0.1f;             ///< batch_norm: weight of the new statistics in the running update.
  float slope = 0.01f;                  ///< leaky_relu.
  float p = 0.5f;                       ///< dropout: probability of zero.
  bool zero_init = false;               ///< batch_norm: scale starts at 0 (last of a residual block).
  int stage = 0;                        ///< For freezing: 0 = first layer, rising with depth.
};

/// How weights start; biases are zero but for torch_default and the linear layers of torchvision_resnet, batch norms
/// are 1 and 0 (or 0 and 0 where zero_init says so). fan_in and fan_out are a weight's inputs and outputs for each unit
/// of the other side, times the kernel's area.
enum class InitRule {
  torch_default,       ///< Kaiming uniform with a = sqrt(5): weights and biases uniform in +-1/sqrt(fan_in).
  kaiming_normal,      ///< Normal with deviation sqrt(2 / fan_out).
  xavier_uniform,      ///< Uniform in +-sqrt(6 / (fan_in + fan_out)).
  kaiming_uniform,     ///< Uniform in +-sqrt(6 / fan_out).
  xavier_normal,       ///< Normal with deviation sqrt(2 / (fan_in + fan_out)).
  trunc_normal,        ///< Normal with deviation 0.02, drawn again beyond two deviations.
  torchvision_resnet,  ///< Convolutions kaiming_normal, linear layers torch_default.
  torchvision_vgg      ///< Convolutions kaiming_normal, linear layers normal with deviation 0.01.
};

/// A model. `input_channels` and `classes` of 0 are taken from the data set. The last layer yields the logits.
struct ModelSpec {
  std::string name;
  std::string source;  ///< "zoo" or the file's path, for messages.
  std::int64_t input_channels = 0;
  std::int64_t resolution = 0;  ///< Default network input size; 0: the data set's.
  std::int64_t classes = 0;
  InitRule init = InitRule::torch_default;
  std::vector<LayerSpec> layers;
};

/// Names of the zoo's models, in the order of `renai train --help`.
std::vector<std::string> zoo_model_names();

/// A zoo model by name, or the model in a TOML file when `name_or_path` ends in ".toml".
/// Errors: UserError with the nearest known name, or file, line and key of the mistake.
ModelSpec load_model(const std::string& name_or_path);

/// The model in a TOML text; `source` names it in messages. Errors: UserError naming source, line and key.
ModelSpec parse_model(std::string_view toml_text, const std::string& source);

/// The model as TOML with one flat list of layers. parse_model gives the same layers back, so a checkpoint that holds
/// this text needs no other file.
std::string to_toml(const ModelSpec& spec);

/// Checks names, inputs (every layer refers to earlier ones), attribute ranges, and that exactly one layer is not
/// consumed. Errors: UserError naming the model's source, the layer and the attribute.
void verify(const ModelSpec& spec);

/// One line a layer: name, kind, inputs, attributes (shapes and parameter counts are added by `graph`).
std::string print(const ModelSpec& spec);

}  // namespace renai
