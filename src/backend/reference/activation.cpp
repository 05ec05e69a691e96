// activation: element-wise functions and their derivatives.

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels.hpp"

namespace renai::reference {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double normal_cdf(double x) { return 0.5 * (1.0 + std::erf(x / std::numbers::sqrt2)); }

double value(const ActivationParams& params, double x) {
  switch (params.kind) {
    // A comparison that NaN passes through, so that a broken step is seen.
    case Activation::relu: return x < 0 ? 0 : x;
    case Activation::leaky_relu: return x < 0 ? x * double{params.slope} : x;
    case Activation::relu6: return x < 0 ? 0 : x > 6 ? 6 : x;
    case Activation::silu: return x * sigmoid(x);
    case Activation::hard_swish: return x * std::clamp(x + 3, 0.0, 6.0) / 6;
    case Activation::gelu: return x * normal_cdf(x);
    case Activation::sigmoid: return sigmoid(x);
    case Activation::tanh: return std::tanh(x);
  }
  return x;
}

/// Derivative from `v`: the output where backward_reads_output says so, else the input.
double slope(const ActivationParams& params, double v) {
  switch (params.kind) {
    case Activation::relu: return v > 0 ? 1 : 0;
    case Activation::leaky_relu: return v > 0 ? 1 : double{params.slope};
    case Activation::relu6: return v > 0 && v < 6 ? 1 : 0;
    case Activation::silu: {
      const double s = sigmoid(v);
      return s * (1 + v * (1 - s));
    }
    case Activation::hard_swish: return v <= -3 ? 0 : v >= 3 ? 1 : (2 * v + 3) / 6;
    case Activation::gelu: {
      const double density = std::exp(-0.5 * v * v) / std::sqrt(2 * std::numbers::pi);
      return normal_cdf(v) + v * density;
    }
    case Activation::sigmoid: return v * (1 - v);
    case Activation::tanh: return 1 - v * v;
  }
  return 1;
}

struct Forward {
  View x, y;
  ActivationParams params;
  void operator()() const {
    for (std::int64_t i = 0; i < x.elems(); ++i) y.data[i] = static_cast<float>(value(params, double{x.data[i]}));
  }
};

struct Backward {
  View v, dy, dx;
  ActivationParams params;
  void operator()() const {
    for (std::int64_t i = 0; i < v.elems(); ++i) {
      dx.data[i] = static_cast<float>(double{dy.data[i]} * slope(params, double{v.data[i]}));
    }
  }
};

}  // namespace

Kernel bind_activation(const Operands& operands) {
  const auto& params = operands.params<ActivationParams>();
  switch (operands.node().pass) {
    case Pass::forward: return Forward{operands.in(0), operands.out(0), params};
    case Pass::backward: return Backward{operands.in(0), operands.in(1), operands.out(0), params};
    default: refuse_pass(operands.node());
  }
}

}  // namespace renai::reference
