// max_pool, avg_pool, global_avg_pool.

#include <algorithm>
#include <vector>

#include "kernels.hpp"

namespace renai::reference {
namespace {

/// Extents of a pooling; x is dx and y is dy in backward.
struct Pool {
  View x, y;
  PoolParams params;

  /// Calls f(ih, iw) for the taps inside the input, in row order.
  template <typename F>
  void for_each_tap(std::int64_t oh, std::int64_t ow, F&& f) const {
    const WindowParams& p = params.window;
    for (std::int64_t r = 0; r < p.kernel_h; ++r) {
      const std::int64_t ih = oh * p.stride_h - p.pad_h + r * p.dilation_h;
      if (ih < 0 || ih >= x.h) continue;
      for (std::int64_t s = 0; s < p.kernel_w; ++s) {
        const std::int64_t iw = ow * p.stride_w - p.pad_w + s * p.dilation_w;
        if (iw >= 0 && iw < x.w) f(ih, iw);
      }
    }
  }

  template <typename F>
  void for_each_output(F&& f) const {
    for (std::int64_t n = 0; n < y.n; ++n) {
      for (std::int64_t oh = 0; oh < y.h; ++oh) {
        for (std::int64_t ow = 0; ow < y.w; ++ow) {
          for (std::int64_t c = 0; c < y.c; ++c) f(n, oh, ow, c);
        }
      }
    }
  }

  /// What an average divides by. With count_include_pad the window's cells in input and padding; in ceil mode what
  /// hangs over the padded input does not count.
  std::int64_t divisor(std::int64_t oh, std::int64_t ow) const {
    const WindowParams& p = params.window;
    std::int64_t start_h = oh * p.stride_h - p.pad_h, start_w = ow * p.stride_w - p.pad_w;
    std::int64_t end_h = std::min(start_h + p.kernel_h, x.h + p.pad_h);
    std::int64_t end_w = std::min(start_w + p.kernel_w, x.w + p.pad_w);
    if (!params.count_include_pad) {
      start_h = std::max<std::int64_t>(start_h, 0);
      start_w = std::max<std::int64_t>(start_w, 0);
      end_h = std::min(end_h, x.h);
      end_w = std::min(end_w, x.w);
    }
    return (end_h - start_h) * (end_w - start_w);
  }
};

struct MaxForward : Pool {
  void operator()() const {
    for_each_output([this](std::int64_t n, std::int64_t oh, std::int64_t ow, std::int64_t c) {
      bool first = true;
      float best = 0;
      for_each_tap(oh, ow, [&](std::int64_t ih, std::int64_t iw) {
        const float candidate = x.at(n, ih, iw)[c];
        // NaN wins and stays, so that a broken step is seen.
        if (first || candidate > best || candidate != candidate) best = candidate;
        first = false;
      });
      y.at(n, oh, ow)[c] = best;
    });
  }
};

/// `x` of the base is dx; the forward input decides which position gets the gradient: the first maximum in row order.
struct MaxBackward : Pool {
  View input;
  std::vector<double> sums = std::vector<double>(static_cast<std::size_t>(x.elems()));

  void operator()() {
    std::fill(sums.begin(), sums.end(), 0.0);
    for_each_output([&](std::int64_t n, std::int64_t oh, std::int64_t ow, std::int64_t c) {
      const float* best = nullptr;
      for_each_tap(oh, ow, [&](std::int64_t ih, std::int64_t iw) {
        const float* candidate = input.at(n, ih, iw) + c;
        if (best == nullptr || *candidate > *best) best = candidate;
      });
      sums[static_cast<std::size_t>(best - input.data)] += double{y.at(n, oh, ow)[c]};
    });
    std::transform(sums.begin(), sums.end(), x.data, [](double sum) { return static_cast<float>(sum); });
  }
};

struct AvgForward : Pool {
  void operator()() const {
    for_each_output([this](std::int64_t n, std::int64_t oh, std::int64_t ow, std::int64_t c) {
      double sum = 0;
      for_each_tap(oh, ow, [&](std::int64_t ih, std::int64_t iw) { sum += double{x.at(n, ih, iw)[c]}; });
      y.at(n, oh, ow)[c] = static_cast<float>(sum / static_cast<double>(divisor(oh, ow)));
    });
  }
};

struct AvgBackward : Pool {
  std::vector<double> sums = std::vector<double>(static_cast<std::size_t>(x.elems()));

  void operator()() {
    std::fill(sums.begin(), sums.end(), 0.0);
    for_each_output([&](std::int64_t n, std::int64_t oh, std::int64_t ow, std::int64_t c) {
      const double share = double{y.at(n, oh, ow)[c]} / static_cast<double>(divisor(oh, ow));
      for_each_tap(oh, ow, [&](std::int64_t ih, std::int64_t iw) {
        sums[static_cast<std::size_t>(x.at(n, ih, iw) + c - x.data)] += share;
      });
    });
    std::transform(sums.begin(), sums.end(), x.data, [](double sum) { return static_cast<float>(sum); });
  }
};

struct GlobalForward {
  View x, y;
  void operator()() const {
    const std::int64_t positions = x.h * x.w;
    for (std::int64_t n = 0; n < x.n; ++n) {
      for (std::int64_t c = 0; c < x.c; ++c) {
        double sum = 0;
        for (std::int64_t i = 0; i < positions; ++i) sum += double{x.data[(n * positions + i) * x.c + c]};
        y.data[n * x.c + c] = static_cast<float>(sum / static_cast<double>(positions));
      }
    }
  }
};

struct GlobalBackward {
  View dy, dx;
  void operator()() const {
    const std::int64_t positions = dx.h * dx.w;
    for (std::int64_t n = 0; n < dx.n; ++n) {
      for (std::int64_t i = 0; i < positions; ++i) {
        for (std::int64_t c = 0; c < dx.c; ++c) {
          const double share = double{dy.data[n * dx.c + c]} / static_cast<double>(positions);
          dx.data[(n * positions + i) * dx.c + c] = static_cast<float>(share);
        }
      }
    }
  }
};

}  // namespace

Kernel bind_max_pool(const Operands& operands) {
  const auto& params = operands.params<PoolParams>();
  switch (operands.node().pass) {
    case Pass::forward: return MaxForward{{operands.in(0), operands.out(0), params}};
    case Pass::backward: return MaxBackward{{operands.out(0), operands.in(1), params}, operands.in(0)};
    default: refuse_pass(operands.node());
  }
}

Kernel bind_avg_pool(const Operands& operands) {
  const auto& params = operands.params<PoolParams>();
  switch (operands.node().pass) {
    case Pass::forward: return AvgForward{{operands.in(0), operands.out(0), params}};
    case Pass::backward: return AvgBackward{{operands.out(0), operands.in(0), params}};
    default: refuse_pass(operands.node());
  }
}

Kernel bind_global_avg_pool(const Operands& operands) {
  switch (operands.node().pass) {
    case Pass::forward: return GlobalForward{operands.in(0), operands.out(0)};
    case Pass::backward: return GlobalBackward{operands.in(0), operands.out(0)};
    default: refuse_pass(operands.node());
  }
}

}  // namespace renai::reference
