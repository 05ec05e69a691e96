// linear: y = x w^T + b. Weights K x C with C over the input's H, W, C.

#include <vector>

#include "kernels.hpp"

namespace renai::reference {
namespace {

struct Linear {
  std::int64_t n = 0, c = 0, k = 0;
  const float *x = nullptr, *w = nullptr, *bias = nullptr, *dy = nullptr;
  float *y = nullptr, *dx = nullptr, *dw = nullptr, *db = nullptr;
};

struct Forward : Linear {
  void operator()() const {
    for (std::int64_t in = 0; in < n; ++in) {
      for (std::int64_t ik = 0; ik < k; ++ik) {
        double sum = bias != nullptr ? double{bias[ik]} : 0.0;
        for (std::int64_t ic = 0; ic < c; ++ic) sum += double{x[in * c + ic]} * double{w[ik * c + ic]};
        y[in * k + ik] = static_cast<float>(sum);
      }
    }
  }
};

struct BackwardData : Linear {
  std::vector<double> sums = std::vector<double>(static_cast<std::size_t>(c));

  void operator()() {
    for (std::int64_t in = 0; in < n; ++in) {
      sums.assign(sums.size(), 0.0);
      for (std::int64_t ik = 0; ik < k; ++ik) {
        const double factor = dy[in * k + ik];
        for (std::int64_t ic = 0; ic < c; ++ic) sums[static_cast<std::size_t>(ic)] += factor * double{w[ik * c + ic]};
      }
      for (std::int64_t ic = 0; ic < c; ++ic) dx[in * c + ic] = static_cast<float>(sums[static_cast<std::size_t>(ic)]);
    }
  }
};

struct BackwardWeights : Linear {
  std::vector<double> sums = std::vector<double>(static_cast<std::size_t>(c));

  void operator()() {
    for (std::int64_t ik = 0; ik < k; ++ik) {
      sums.assign(sums.size(), 0.0);
      double bias_sum = 0;
      for (std::int64_t in = 0; in < n; ++in) {
        const double factor = dy[in * k + ik];
        bias_sum += factor;
        for (std::int64_t ic = 0; ic < c; ++ic) sums[static_cast<std::size_t>(ic)] += factor * double{x[in * c + ic]};
      }
      for (std::int64_t ic = 0; ic < c; ++ic) dw[ik * c + ic] = static_cast<float>(sums[static_cast<std::size_t>(ic)]);
      if (db != nullptr) db[ik] = static_cast<float>(bias_sum);
    }
  }
};

}  // namespace

Kernel bind_linear(const Operands& operands) {
  const bool bias = operands.params<LinearParams>().bias;
  Linear linear;
  switch (operands.node().pass) {
    case Pass::forward: {
      const View x = operands.in(0), y = operands.out(0);
      linear.n = x.n;
      linear.c = x.elems() / x.n;
      linear.k = y.c;
      linear.x = x.data;
      linear.w = operands.in(1).data;
      linear.bias = bias ? operands.in(2).data : nullptr;
      linear.y = y.data;
      return Forward{linear};
    }
    case Pass::backward_data: {
      const View dy = operands.in(0), dx = operands.out(0);
      linear.n = dx.n;
      linear.c = dx.elems() / dx.n;
      linear.k = dy.c;
      linear.dy = dy.data;
      linear.w = operands.in(1).data;
      linear.dx = dx.data;
      return BackwardData{linear};
    }
    case Pass::backward_weights: {
      const View x = operands.in(0), dy = operands.in(1);
      linear.n = x.n;
      linear.c = x.elems() / x.n;
      linear.k = dy.c;
      linear.x = x.data;
      linear.dy = dy.data;
      linear.dw = operands.out(0).data;
      linear.db = bias ? operands.out(1).data : nullptr;
      return BackwardWeights{linear};
    }
    default: refuse_pass(operands.node());
  }
}

}  // namespace renai::reference
