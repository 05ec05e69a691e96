// adaptive_avg_pool.

#include "kernels.hpp"

namespace renai::reference {
namespace {

/// Calls f(n, i, j, c) for every element of `view`.
template <typename F>
void for_each_element(const View& view, F&& f) {
  for (std::int64_t n = 0; n < view.n; ++n) {
    for (std::int64_t i = 0; i < view.h; ++i) {
      for (std::int64_t j = 0; j < view.w; ++j) {
        for (std::int64_t c = 0; c < view.c; ++c) f(n, i, j, c);
      }
    }
  }
}

struct AdaptiveForward {
  View x, y;
  void operator()() const {
    for_each_element(y, [this](std::int64_t n, std::int64_t i, std::int64_t j, std::int64_t c) {
      const AdaptiveBin rows = adaptive_bin(i, x.h, y.h), columns = adaptive_bin(j, x.w, y.w);
      double sum = 0;
      for (std::int64_t h = rows.begin; h < rows.end; ++h) {
        for (std::int64_t w = columns.begin; w < columns.end; ++w) sum += double{x.at(n, h, w)[c]};
      }
      const std::int64_t count = (rows.end - rows.begin) * (columns.end - columns.begin);
      y.at(n, i, j)[c] = static_cast<float>(sum / static_cast<double>(count));
    });
  }
};

struct AdaptiveBackward {
  View dy, dx;
  void operator()() const {
    for_each_element(dx, [this](std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c) {
      const AdaptiveBin above = adaptive_bin(h, dy.h, dx.h), beside = adaptive_bin(w, dy.w, dx.w);
      double sum = 0;
      for (std::int64_t i = above.begin; i < above.end; ++i) {
        for (std::int64_t j = beside.begin; j < beside.end; ++j) {
          const AdaptiveBin rows = adaptive_bin(i, dx.h, dy.h), columns = adaptive_bin(j, dx.w, dy.w);
          const std::int64_t count = (rows.end - rows.begin) * (columns.end - columns.begin);
          sum += double{dy.at(n, i, j)[c]} / static_cast<double>(count);
        }
      }
      dx.at(n, h, w)[c] = static_cast<float>(sum);
    });
  }
};

}  // namespace

Kernel bind_adaptive_avg_pool(const Operands& operands) {
  switch (operands.node().pass) {
    case Pass::forward: return AdaptiveForward{operands.in(0), operands.out(0)};
    case Pass::backward: return AdaptiveBackward{operands.in(0), operands.out(0)};
    default: refuse_pass(operands.node());
  }
}

}  // namespace renai::reference
