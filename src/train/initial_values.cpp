#include "initial_values.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "renai/base/digest.hpp"
#include "renai/base/error.hpp"
#include "renai/base/philox.hpp"

namespace renai {
namespace {

constexpr double kTruncDeviation = 0.02, kTruncDeviations = 2.0, kVggDeviation = 0.01;

struct FanInOut {
  double in = 1, out = 1;
};

/// Of the weight of the parameter's layer.
FanInOut fan_of(const ComputationGraph& graph, std::span<const Shape> shapes, const ParamInfo& param) {
  for (const ParamInfo& other : graph.params()) {
    if (other.layer != param.layer) continue;
    if (other.kind != ParamKind::conv_weight && other.kind != ParamKind::linear_weight) continue;
    const Shape& shape = shapes[static_cast<std::size_t>(other.weight)];
    const double area = shape.rank() == 4 ? static_cast<double>(shape[1] * shape[2]) : 1.0;
    return {static_cast<double>(shape.elems()) / static_cast<double>(shape[0]), static_cast<double>(shape[0]) * area};
  }
  return {};
}

/// What the values of a tensor are drawn from. `size`: bound of the uniform, deviation of the normals.
struct Law {
  enum class Kind { zero, uniform, normal, truncated } kind = Kind::zero;
  double size = 0;
};

bool is_linear(const ComputationGraph& graph, const ParamInfo& param) {
  return graph.model().layers.at(static_cast<std::size_t>(param.layer)).kind == LayerKind::linear;
}

Law law_of(InitRule rule, bool linear, bool bias, const FanInOut& fan) {
  using enum Law::Kind;
  const Law torch{uniform, 1.0 / std::sqrt(fan.in)};
  if (rule == InitRule::torch_default || (rule == InitRule::torchvision_resnet && linear)) return torch;
  if (bias) return {};
  switch (rule) {
    case InitRule::torch_default: return torch;
    case InitRule::xavier_uniform: return {uniform, std::sqrt(6.0 / (fan.in + fan.out))};
    case InitRule::kaiming_uniform: return {uniform, std::sqrt(6.0 / fan.out)};
    case InitRule::xavier_normal: return {normal, std::sqrt(2.0 / (fan.in + fan.out))};
    case InitRule::trunc_normal: return {truncated, kTruncDeviation};
    case InitRule::torchvision_vgg:
      if (linear) return {normal, kVggDeviation};
      [[fallthrough]];
    case InitRule::torchvision_resnet:
    case InitRule::kaiming_normal: return {normal, std::sqrt(2.0 / fan.out)};
  }
  throw InternalError("choosing initial values", "there is no rule " + std::to_string(static_cast<int>(rule)));
}

/// Two words of an element: a block serves two of them.
struct Words {
  std::uint32_t first, second;
};
Words words_of(std::uint64_t seed, std::uint64_t name_key, std::size_t element) {
  const PhiloxBlock block = random_block(seed, RandomPurpose::init, name_key, static_cast<std::uint32_t>(element / 2));
  return element % 2 == 0 ? Words{block[0], block[1]} : Words{block[2], block[3]};
}

/// Source: Box and Muller, "A Note on the Generation of Random Normal Deviates", 1958.
double normal_of(double deviation, const Words& words) {
  const double u = (static_cast<double>(words.first) + 1.0) * 0x1.0p-32;
  return deviation * std::sqrt(-2.0 * std::log(u)) *
         std::cos(2.0 * std::numbers::pi * static_cast<double>(words.second) * 0x1.0p-32);
}

/// What lies beyond is drawn again, with a key of its own for each attempt.
double truncated_normal(double deviation, std::uint64_t seed, const std::string& name, std::uint64_t name_key,
                        std::size_t element) {
  double value = normal_of(deviation, words_of(seed, name_key, element));
  for (int again = 1; std::abs(value) > kTruncDeviations * deviation; ++again) {
    value = normal_of(deviation, words_of(seed, hash64(name + "#" + std::to_string(again)), element));
  }
  return value;
}

double draw(const Law& law, std::uint64_t seed, const std::string& name, std::uint64_t name_key, std::size_t element) {
  switch (law.kind) {
    case Law::Kind::zero: break;
    case Law::Kind::uniform:
      return law.size * (2.0 * static_cast<double>(uniform01(words_of(seed, name_key, element).first)) - 1.0);
    case Law::Kind::normal: return normal_of(law.size, words_of(seed, name_key, element));
    case Law::Kind::truncated: return truncated_normal(law.size, seed, name, name_key, element);
  }
  return 0.0;
}

}  // namespace

std::vector<float> initial_values(const ComputationGraph& graph, std::span<const Shape> shapes, const ParamInfo& param,
                                  std::uint64_t seed) {
  const Shape& shape = shapes[static_cast<std::size_t>(param.weight)];
  std::vector<float> values(static_cast<std::size_t>(shape.elems()));
  if (param.kind == ParamKind::bn_bias) return values;
  if (param.kind == ParamKind::bn_scale) {
    std::fill(values.begin(), values.end(), param.zero_init ? 0.0f : 1.0f);
    return values;
  }
  const Law law =
      law_of(graph.model().init, is_linear(graph, param), param.kind == ParamKind::bias, fan_of(graph, shapes, param));
  if (law.kind == Law::Kind::zero) return values;
  const std::uint64_t name_key = hash64(param.name);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(draw(law, seed, param.name, name_key, i));
  }
  return values;
}

}  // namespace renai
