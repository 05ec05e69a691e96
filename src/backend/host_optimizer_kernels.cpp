#include "host_optimizer_kernels.hpp"

#include <cmath>

#include "host_range_kernels.hpp"

namespace renai::host_range {
namespace {

double power(double base, std::uint32_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1u) != 0) result *= base;
    base *= base;
  }
  return result;
}

}  // namespace

AdamCorrections adam_corrections(double lr, const AdamParams& adam, float updates) {
  const auto count = static_cast<std::uint32_t>(updates);
  return {static_cast<float>(lr / (1.0 - power(adam.beta1, count))),
          static_cast<float>(std::sqrt(1.0 - power(adam.beta2, count)))};
}

AdamStep adam_step(const RangeParams& range, const AdamCorrections& corrections, float lr) {
  AdamStep step;
  step.step_size = corrections.step_size;
  step.correction = corrections.correction;
  step.beta1 = static_cast<float>(range.adam.beta1);
  step.beta2 = static_cast<float>(range.adam.beta2);
  step.rest1 = static_cast<float>(1.0 - range.adam.beta1);
  step.rest2 = static_cast<float>(1.0 - range.adam.beta2);
  step.eps = range.adam.eps;
  if (range.optimizer == OptimizerKind::adamw) {
    step.keep = static_cast<float>(1.0 - double{lr} * double{range.weight_decay});
  } else {
    step.l2 = range.weight_decay;
  }
  return step;
}

void adam(const float* __restrict grad, float* __restrict weights, float* __restrict momentum,
          float* __restrict second_moment, std::int64_t elems, const AdamStep& step) {
  const AdamStep s = step;
  for (std::int64_t i = 0; i < elems; ++i) {
    const float g = grad[i] + s.l2 * weights[i];
    const float w = weights[i] * s.keep;
    const float m = s.beta1 * momentum[i] + s.rest1 * g;
    const float v = s.beta2 * second_moment[i] + s.rest2 * g * g;
    momentum[i] = m;
    second_moment[i] = v;
    weights[i] = w - s.step_size * m / (std::sqrt(v) / s.correction + s.eps);
  }
}

float lars_rate(double weight_norm, double grad_norm, const RangeParams& range, float lr) {
  if (weight_norm == 0.0 || grad_norm == 0.0) return lr;
  const double decayed = double{range.weight_decay} * weight_norm;
  const double local = double{range.lars.eta} * weight_norm / (grad_norm + decayed + double{range.lars.eps});
  return static_cast<float>(double{lr} * local);
}

void lars(const float* __restrict grad, float* __restrict weights, float* __restrict momentum, std::int64_t elems,
          const RangeParams& range, float lr) {
  const float rate =
      lars_rate(std::sqrt(sum_of_squares(weights, elems)), std::sqrt(sum_of_squares(grad, elems)), range, lr);
  const float mu = range.momentum, decay = range.weight_decay;
  const bool nesterov = range.nesterov;
  for (std::int64_t i = 0; i < elems; ++i) {
    const float u = rate * (grad[i] + decay * weights[i]);
    const float buf = mu * momentum[i] + u;
    momentum[i] = buf;
    weights[i] -= nesterov ? u + mu * buf : buf;
  }
}

}  // namespace renai::host_range
