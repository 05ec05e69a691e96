// batch_norm: forward with the shard's own statistics, inference with folded ones, backward.

#include <cmath>

#include "kernels.hpp"

namespace renai::reference {
namespace {

struct Forward {
  View x, y;
  const float *scale, *bias;
  float *mean, *var_unbiased, *var_biased;
  double eps;

  /// Two passes over one channel: mean, then variance about it.
  void operator()() const {
    const std::int64_t rows = x.rows();
    for (std::int64_t c = 0; c < x.c; ++c) {
      double sum = 0, squares = 0;
      for (std::int64_t row = 0; row < rows; ++row) sum += double{x.data[row * x.c + c]};
      const double centre = sum / static_cast<double>(rows);
      for (std::int64_t row = 0; row < rows; ++row) {
        const double distance = double{x.data[row * x.c + c]} - centre;
        squares += distance * distance;
      }
      const double variance = squares / static_cast<double>(rows);
      mean[c] = static_cast<float>(centre);
      var_biased[c] = static_cast<float>(variance);
      var_unbiased[c] = static_cast<float>(squares / static_cast<double>(rows - 1));
      const double factor = double{scale[c]} / std::sqrt(variance + eps);
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t i = row * x.c + c;
        y.data[i] = static_cast<float>((double{x.data[i]} - centre) * factor + double{bias[c]});
      }
    }
  }
};

struct Inference {
  View x, y;
  const float *scale, *bias;

  void operator()() const {
    for (std::int64_t row = 0; row < x.rows(); ++row) {
      for (std::int64_t c = 0; c < x.c; ++c) {
        const std::int64_t i = row * x.c + c;
        y.data[i] = static_cast<float>(double{x.data[i]} * double{scale[c]} + double{bias[c]});
      }
    }
  }
};

/// dx = scale / sqrt(var + eps) * (dy - mean(dy) - xhat * mean(dy * xhat)).
struct Backward {
  View x, dy, dx;
  const float *scale, *mean, *var_biased;
  float *dscale, *dbias;
  double eps;

  void operator()() const {
    const std::int64_t rows = x.rows();
    const auto count = static_cast<double>(rows);
    for (std::int64_t c = 0; c < x.c; ++c) {
      const double centre = mean[c], inverse = 1.0 / std::sqrt(double{var_biased[c]} + eps);
      double sum = 0, sum_xhat = 0;
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t i = row * x.c + c;
        sum += double{dy.data[i]};
        sum_xhat += double{dy.data[i]} * (double{x.data[i]} - centre) * inverse;
      }
      dscale[c] = static_cast<float>(sum_xhat);
      dbias[c] = static_cast<float>(sum);
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t i = row * x.c + c;
        const double xhat = (double{x.data[i]} - centre) * inverse;
        const double centred = double{dy.data[i]} - sum / count - xhat * sum_xhat / count;
        dx.data[i] = static_cast<float>(double{scale[c]} * inverse * centred);
      }
    }
  }
};

}  // namespace

Kernel bind_batch_norm(const Operands& operands) {
  const double eps = operands.params<BatchNormParams>().eps;
  switch (operands.node().pass) {
    case Pass::forward:
      return Forward{operands.in(0),       operands.out(0),      operands.in(1).data,  operands.in(2).data,
                     operands.out(1).data, operands.out(2).data, operands.out(3).data, eps};
    case Pass::inference: return Inference{operands.in(0), operands.out(0), operands.in(1).data, operands.in(2).data};
    case Pass::backward:
      return Backward{operands.in(0),       operands.in(1),       operands.out(0),
                      operands.in(2).data,  operands.in(3).data,  operands.in(4).data,
                      operands.out(1).data, operands.out(2).data, eps};
    default: refuse_pass(operands.node());
  }
}

}  // namespace renai::reference
