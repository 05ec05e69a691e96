#pragma once
// How far a backend may be from the reference, and differences from derivatives. u = 2^-24 is the rounding unit of f32.
//
// Sums of products (conv2d, linear, averages). The reference is exact but for one rounding. Any order of summation of n
// products in fp32 errs by at most gamma(n + 1) * sum|a b|, gamma(k) = k u / (1 - k u) (Higham, Accuracy and Stability
// of Numerical Algorithms, section 3.1); fused multiply-adds only lower it. sum|a b| is measured: the reference run on
// absolute values. The bound holds for each element, with one more rounding for the division of an average.
//
// Everything else is bounded by factor * (n + 8) * u * max(1, max|reference|) with n the length of the operator's sums
// and a factor for the operator's amplification:
//   batch_norm       8: the sums' error n u passes through 1 / sqrt(var + eps), scale 0.5..1.5 and three terms of dx.
//   activation       4: exp, erf and tanh of vector libraries err by up to 4 units in the last place; n + 8 = 9 covers
//                       the products around them.
//   max_pool         4: dx is a sum of at most n of the dy, each at most 1, whose partial sums may exceed the result.
//   normalize_input  8: four taps; their weights come from a coordinate with an error of u times the crop's extent. A
//                       mixed pixel is an average of two, with a weight that is off by u.
//   softmax ...      8: exp and log as above in a sum over classes.
//
// Other precisions add to these bounds. tf32 rounds each factor of a product to 11 bits: 2 * 2^-11 * sum|a b|. bf16 and
// fp16 store what a kernel writes, and what it reads of its own forward pass, with u = 2^-8 or 2^-11: one rounding of
// an element of a sum of products (two for gradients of weights, which are made in half precision and widened),
// amplified as above elsewhere. What lies below the smallest normal fp16 value errs by half of the smallest subnormal
// one.
//
// Differences: L is the fp64 sum of dy * y over f32 outputs y, each off by u |y|. The five-point formula
// (8 (L(h) - L(-h)) - (L(2h) - L(-2h))) / 12h amplifies that noise by at most 18 / 12h = 1.5 / h and has the truncation
// error h^4 / 30 * |L^(5)|, zero where L is linear in the input. The noise is measured (sum |dy y|); the truncation of
// the smooth operators stays below kTruncation of the greatest gradient at the step below.

#include <algorithm>
#include <cmath>
#include <string>

#include "renai/backend/backend.hpp"
#include "renai/base/error.hpp"

namespace renai::test {

inline constexpr double kUnitRoundoff = 0x1.0p-24;

/// True where the tolerance is measured on absolute values.
inline bool is_sum_of_products(const std::string& op) {
  return op == "conv2d" || op == "linear" || op == "avg_pool" || op == "global_avg_pool" || op == "adaptive_avg_pool";
}

/// `absolute_sum` = sum|a b| of one element with n products.
inline double product_sum_tolerance(std::int64_t n, double absolute_sum) {
  const double k = static_cast<double>(n) + 2;
  return k * kUnitRoundoff / (1 - k * kUnitRoundoff) * absolute_sum;
}

inline double amplification(const std::string& op) {
  if (op == "activation" || op == "max_pool") return 4;
  if (op == "batch_norm" || op == "normalize_input" || op == "softmax_cross_entropy") return 8;
  throw InternalError("looking up a tolerance", "operator '" + op + "' has none");
}

/// `greatest` = max|reference| over the tensor.
inline double scaled_tolerance(const std::string& op, std::int64_t n, double greatest) {
  return amplification(op) * (static_cast<double>(n) + 8) * kUnitRoundoff * std::max(1.0, greatest);
}

/// What a precision adds to the tolerance of an element; `absolute_sum` is 0 where the operator sums no products.
inline double precision_tolerance(Precision precision, const std::string& op, double reference, double greatest,
                                  double absolute_sum) {
  if (precision == Precision::fp32) return 0;
  if (precision == Precision::tf32) return 0x1.0p-10 * absolute_sum;
  const double unit = precision == Precision::bf16 ? 0x1.0p-8 : 0x1.0p-11;
  // A bias, at most 1 here, may be added to the product after it was rounded.
  if (op == "linear" || op == "conv2d") return unit * (2 * std::abs(reference) + 1) + 0x1.0p-24;
  if (is_sum_of_products(op)) return 2 * unit * std::abs(reference) + 0x1.0p-24;
  const bool amplifies = op != "add" && op != "concat" && op != "flatten" && op != "dropout" && op != "unpack_slot";
  return (amplifies ? amplification(op) : 2) * unit * std::max(1.0, greatest) + 0x1.0p-24;
}

inline constexpr double kDifferenceStep = 1.0 / 32;
inline constexpr double kTruncation = 1e-4;

/// `noise_scale` = sum|dy y|, `greatest` = max|gradient|.
inline double difference_tolerance(double noise_scale, double greatest, bool linear) {
  const double noise = 1.5 / kDifferenceStep * kUnitRoundoff * noise_scale;
  return noise + kUnitRoundoff * greatest + (linear ? 0.0 : kTruncation * greatest);
}

}  // namespace renai::test
