// Activations and their derivatives, element by element.

#include <cmath>
#include <numbers>

#include "loops/loops.hpp"
#include "parallel.hpp"
#include "tables.hpp"

namespace renai::cpu {
namespace {

const ActivationParams* activation_of(const ComputeNode* node, Pass pass) {
  const bool fits = node != nullptr && node->op == OpKind::activation && node->pass == pass;
  return fits ? &std::get<ActivationParams>(node->params) : nullptr;
}

/// The output takes over the storage of the input at `reused` where nobody reads that any more.
Match in_place_match(const Scope& scope, std::size_t first, std::size_t reused) {
  const ComputeNode& node = *scope.node(first);
  Match match{1, node.inputs, node.outputs, {}};
  if (scope.last_use(node.inputs[reused], first)) match.aliases.push_back({node.outputs[0], node.inputs[reused]});
  return match;
}

Offer<Match> match_forward(const Scope& scope, std::size_t first) {
  if (activation_of(scope.node(first), Pass::forward) == nullptr) return Offer<Match>::refuse("not an activation");
  return in_place_match(scope, first, 0);
}

Offer<Match> match_backward(const Scope& scope, std::size_t first) {
  if (activation_of(scope.node(first), Pass::backward) == nullptr) {
    return Offer<Match>::refuse("not an activation's gradient");
  }
  return in_place_match(scope, first, 1);
}

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
float normal_cdf(float x) { return 0.5f * std::erfc(-x * (1.0f / std::numbers::sqrt2_v<float>)); }

/// f(x). Comparisons let NaN pass, so that a broken step is seen.
template <Activation kKind>
float value(float x, float slope) {
  if constexpr (kKind == Activation::relu) return x < 0 ? 0 : x;
  if constexpr (kKind == Activation::leaky_relu) return x < 0 ? x * slope : x;
  if constexpr (kKind == Activation::relu6) return x < 0 ? 0 : x > 6 ? 6 : x;
  if constexpr (kKind == Activation::silu) return x * sigmoid(x);
  if constexpr (kKind == Activation::hard_swish) return x <= -3 ? 0 : x >= 3 ? x : x * (x + 3) * (1.0f / 6);
  if constexpr (kKind == Activation::gelu) return x * normal_cdf(x);
  if constexpr (kKind == Activation::sigmoid) return sigmoid(x);
  if constexpr (kKind == Activation::tanh) return std::tanh(x);
}

/// f' from `v`: the output where backward_reads_output says so, else the input.
template <Activation kKind>
float derivative(float v, float slope) {
  if constexpr (kKind == Activation::relu) return v > 0 ? 1 : 0;
  if constexpr (kKind == Activation::leaky_relu) return v > 0 ? 1 : slope;
  if constexpr (kKind == Activation::relu6) return v > 0 && v < 6 ? 1 : 0;
  if constexpr (kKind == Activation::silu) {
    const float s = sigmoid(v);
    return s * (1 + v * (1 - s));
  }
  if constexpr (kKind == Activation::hard_swish) return v <= -3 ? 0 : v >= 3 ? 1 : (2 * v + 3) * (1.0f / 6);
  if constexpr (kKind == Activation::gelu) {
    constexpr float kDensity = 0.3989422804f;  // 1 / sqrt(2 pi)
    return normal_cdf(v) + v * kDensity * std::exp(-0.5f * v * v);
  }
  if constexpr (kKind == Activation::sigmoid) return v * (1 - v);
  if constexpr (kKind == Activation::tanh) return 1 - v * v;
}

/// Loops over [begin, end) of x, y or of v, dy, dx.
struct Functions {
  void (*forward)(const float* x, float* y, std::int64_t elems, float slope) = nullptr;
  void (*backward)(const float* v, const float* dy, float* dx, std::int64_t elems, float slope) = nullptr;
};

template <Activation kKind>
Functions functions_of_kind() {
  Functions functions;
  functions.forward = [](const float* x, float* y, std::int64_t elems, float slope) {
    for (std::int64_t i = 0; i < elems; ++i) y[i] = value<kKind>(x[i], slope);
  };
  functions.backward = [](const float* v, const float* dy, float* dx, std::int64_t elems, float slope) {
    for (std::int64_t i = 0; i < elems; ++i) dx[i] = dy[i] * derivative<kKind>(v[i], slope);
  };
  return functions;
}

Functions functions_of(Activation kind) {
  switch (kind) {
    case Activation::relu:
      return {[](const float* x, float* y, std::int64_t elems, float) { machine_loops().relu(x, y, elems); },
              [](const float* v, const float* dy, float* dx, std::int64_t elems, float) {
                machine_loops().relu_grad(v, dy, dx, elems);
              }};
    case Activation::leaky_relu: return functions_of_kind<Activation::leaky_relu>();
    case Activation::relu6: return functions_of_kind<Activation::relu6>();
    case Activation::silu: return functions_of_kind<Activation::silu>();
    case Activation::hard_swish: return functions_of_kind<Activation::hard_swish>();
    case Activation::gelu: return functions_of_kind<Activation::gelu>();
    case Activation::sigmoid: return functions_of_kind<Activation::sigmoid>();
    case Activation::tanh: return functions_of_kind<Activation::tanh>();
  }
  return {};
}

Offer<Kernel> make_forward(const Site& site) {
  const std::int64_t elems = site.shape(site.node().outputs[0]).elems();
  const ActivationParams params = *activation_of(&site.node(), Pass::forward);
  Kernel kernel;
  kernel.detail = activation_name(params.kind);
  kernel.bind = [=, threads = site.threads()](const Operands& at) -> Call {
    return [=, functions = functions_of(params.kind), x = at.in(0), y = at.out(0)] {
      parallel_elems(threads, elems, [&](std::int64_t begin, std::int64_t end) {
        functions.forward(x + begin, y + begin, end - begin, params.slope);
      });
    };
  };
  return kernel;
}

Offer<Kernel> make_backward(const Site& site) {
  const std::int64_t elems = site.shape(site.node().outputs[0]).elems();
  const ActivationParams params = *activation_of(&site.node(), Pass::backward);
  Kernel kernel;
  kernel.detail = activation_name(params.kind);
  kernel.bind = [=, threads = site.threads()](const Operands& at) -> Call {
    return [=, functions = functions_of(params.kind), v = at.in(0), dy = at.in(1), dx = at.out(0)] {
      parallel_elems(threads, elems, [&](std::int64_t begin, std::int64_t end) {
        functions.backward(v + begin, dy + begin, dx + begin, end - begin, params.slope);
      });
    };
  };
  return kernel;
}

}  // namespace

std::vector<Implementation> activation_implementations() {
  return {{"own.activation", match_forward, make_forward}, {"own.activation_grad", match_backward, make_backward}};
}

}  // namespace renai::cpu
