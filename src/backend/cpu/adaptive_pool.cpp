// Adaptive average pooling: each output pixel is the mean of its bin.

#include <algorithm>

#include "parallel.hpp"
#include "tables.hpp"

namespace renai::cpu {
namespace {

/// What forward and backward know: x and dx are [n, h, w, c], y and dy [n, out_h, out_w, c].
struct AdaptivePool {
  std::int64_t n, h, w, c, out_h, out_w;

  float share(std::int64_t i, std::int64_t j) const {
    const AdaptiveBin rows = adaptive_bin(i, h, out_h), columns = adaptive_bin(j, w, out_w);
    return 1.0f / static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
  }

  /// Adds in row order. One row of the output.
  void forward(const float* x, float* y, std::int64_t i) const {
    const AdaptiveBin rows = adaptive_bin(i, h, out_h);
    for (std::int64_t j = 0; j < out_w; ++j) {
      const AdaptiveBin columns = adaptive_bin(j, w, out_w);
      float* const out = y + (i * out_w + j) * c;
      std::fill_n(out, c, 0.0f);
      for (std::int64_t r = rows.begin; r < rows.end; ++r) {
        for (std::int64_t s = columns.begin; s < columns.end; ++s) add(x + (r * w + s) * c, 1.0f, out);
      }
      const float factor = share(i, j);
      for (std::int64_t k = 0; k < c; ++k) out[k] *= factor;
    }
  }

  /// Gathers what each bin that holds a pixel gives it, in row order. One row of the input.
  void backward(const float* dy, float* dx, std::int64_t r) const {
    const AdaptiveBin above = adaptive_bin(r, out_h, h);
    for (std::int64_t s = 0; s < w; ++s) {
      const AdaptiveBin beside = adaptive_bin(s, out_w, w);
      float* const out = dx + (r * w + s) * c;
      std::fill_n(out, c, 0.0f);
      for (std::int64_t i = above.begin; i < above.end; ++i) {
        for (std::int64_t j = beside.begin; j < beside.end; ++j) add(dy + (i * out_w + j) * c, share(i, j), out);
      }
    }
  }

  void add(const float* __restrict from, float factor, float* __restrict to) const {
    for (std::int64_t k = 0; k < c; ++k) to[k] += factor * from[k];
  }
};

template <Pass kPass>
Offer<Match> match_adaptive(const Scope& scope, std::size_t first) {
  const ComputeNode* node = scope.node(first);
  if (!is_op(node, OpKind::adaptive_avg_pool, kPass)) return Offer<Match>::refuse("another operator");
  return Match{1, node->inputs, node->outputs, {}};
}

template <Pass kPass>
Offer<Kernel> make_adaptive(const Site& site) {
  constexpr bool kForward = kPass == Pass::forward;
  const Shape &in = site.shape(site.node().inputs[0]), &out = site.shape(site.node().outputs[0]);
  const Shape &x = kForward ? in : out, &y = kForward ? out : in;
  const AdaptivePool pool{x.n(), x.h(), x.w(), x.c(), y.h(), y.w()};
  Kernel kernel;
  kernel.bind = [=, threads = site.threads()](const Operands& at) -> Call {
    return [=, from = at.in(0), to = at.out(0)] {
      const std::int64_t rows = kForward ? pool.out_h : pool.h;
      const std::int64_t x_elems = pool.h * pool.w * pool.c, y_elems = pool.out_h * pool.out_w * pool.c;
      parallel_ranges(threads, pool.n * rows, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t at_row = begin; at_row < end; ++at_row) {
          const std::int64_t image = at_row / rows, row = at_row % rows;
          if constexpr (kForward) {
            pool.forward(from + image * x_elems, to + image * y_elems, row);
          } else {
            pool.backward(from + image * y_elems, to + image * x_elems, row);
          }
        }
      });
    };
  };
  return kernel;
}

}  // namespace

std::vector<Implementation> adaptive_pool_implementations() {
  return {{"own.adaptive_avg_pool", match_adaptive<Pass::forward>, make_adaptive<Pass::forward>},
          {"own.adaptive_avg_pool_grad", match_adaptive<Pass::backward>, make_adaptive<Pass::backward>}};
}

}  // namespace renai::cpu
