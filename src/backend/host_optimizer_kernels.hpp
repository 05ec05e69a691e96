#pragma once
// Loops of the optimizers' RANGE operations on host memory, as host_range_kernels.hpp.

#include <cstdint>

#include "renai/graph/op.hpp"

namespace renai::host_range {

/// What the count of updates makes of Adam's step; see kScalarAdam* in renai/graph/region_name.hpp.
struct AdamCorrections {
  float step_size = 0, correction = 1;
};
/// step_size = lr / (1 - beta1^updates), correction = sqrt(1 - beta2^updates), in fp64, rounded once. `updates` counts
/// from 1. Determinism: powers by repeated squaring, so that every device gets the same bits.
AdamCorrections adam_corrections(double lr, const AdamParams& adam, float updates);

/// Constants of an Adam step, each computed in fp64 and rounded once.
struct AdamStep {
  float step_size = 0, correction = 1;
  float beta1 = 0, beta2 = 0, rest1 = 1, rest2 = 1;  ///< rest = 1 - beta
  float eps = 0;
  float l2 = 0;    ///< Added to the gradient times the weight; 0 in AdamW.
  float keep = 1;  ///< AdamW: 1 - lr * weight_decay.
};
/// `range` is that of the node.
AdamStep adam_step(const RangeParams& range, const AdamCorrections& corrections, float lr);

/// g += l2 * w; w *= keep; m = beta1 * m + rest1 * g; v = beta2 * v + rest2 * g * g;
/// w -= step_size * m / (sqrt(v) / correction + eps).
/// Source: Kingma and Ba 2015, Loshchilov and Hutter 2019, in the arrangement of PyTorch's Adam and AdamW.
void adam(const float* grad, float* weights, float* momentum, float* second_moment, std::int64_t elems,
          const AdamStep& step);

/// Rate of one tensor: lr * eta |w| / (|g| + weight_decay |w| + eps), and lr itself where |w| or |g| is zero. In fp64,
/// rounded once.
float lars_rate(double weight_norm, double grad_norm, const RangeParams& range, float lr);

/// One tensor: u = rate * (g + weight_decay * w); buf = momentum * buf + u; w -= nesterov ? u + momentum * buf : buf.
/// Norms: sum_of_squares. Source: You, Gitman and Ginsburg 2017, algorithm 1; the Nesterov form looks ahead as SGD's.
void lars(const float* grad, float* weights, float* momentum, std::int64_t elems, const RangeParams& range, float lr);

}  // namespace renai::host_range
