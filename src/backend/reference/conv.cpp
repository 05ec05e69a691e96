// conv2d: forward, backward_data, backward_weights. Weights K R S C with C = channels per group.

#include <algorithm>
#include <vector>

#include "kernels.hpp"

namespace renai::reference {
namespace {

/// Extents that all three passes share. The small tensor of a window position is w[k, r, s, :].
struct Conv {
  View x, y;
  const float* w = nullptr;
  const float* bias = nullptr;
  Conv2dParams params;

  std::int64_t group_c() const { return x.c / params.groups; }
  std::int64_t group_k() const { return y.c / params.groups; }
  std::int64_t weight_at(std::int64_t k, std::int64_t r, std::int64_t s) const {
    return ((k * params.window.kernel_h + r) * params.window.kernel_w + s) * group_c();
  }
};

/// Input position of a window tap; may lie in the padding.
std::int64_t tap(std::int64_t out, std::int64_t stride, std::int64_t pad, std::int64_t k, std::int64_t dilation) {
  return out * stride - pad + k * dilation;
}

/// Output position whose tap `k` reads input `in`; -1 when there is none below `extent`.
std::int64_t reader(std::int64_t in, std::int64_t stride, std::int64_t pad, std::int64_t k, std::int64_t dilation,
                    std::int64_t extent) {
  const std::int64_t shifted = in + pad - k * dilation;
  if (shifted < 0 || shifted % stride != 0 || shifted / stride >= extent) return -1;
  return shifted / stride;
}

struct Forward : Conv {
  double dot(std::int64_t n, std::int64_t oh, std::int64_t ow, std::int64_t k) const {
    const WindowParams& p = params.window;
    const std::int64_t first_c = k / group_k() * group_c();
    double sum = bias != nullptr ? double{bias[k]} : 0.0;
    for (std::int64_t r = 0; r < p.kernel_h; ++r) {
      const std::int64_t ih = tap(oh, p.stride_h, p.pad_h, r, p.dilation_h);
      if (ih < 0 || ih >= x.h) continue;
      for (std::int64_t s = 0; s < p.kernel_w; ++s) {
        const std::int64_t iw = tap(ow, p.stride_w, p.pad_w, s, p.dilation_w);
        if (iw < 0 || iw >= x.w) continue;
        const float* pixel = x.at(n, ih, iw) + first_c;
        const float* weight = w + weight_at(k, r, s);
        for (std::int64_t c = 0; c < group_c(); ++c) sum += double{pixel[c]} * double{weight[c]};
      }
    }
    return sum;
  }

  void operator()() const {
    for (std::int64_t n = 0; n < y.n; ++n) {
      for (std::int64_t oh = 0; oh < y.h; ++oh) {
        for (std::int64_t ow = 0; ow < y.w; ++ow) {
          for (std::int64_t k = 0; k < y.c; ++k) y.at(n, oh, ow)[k] = static_cast<float>(dot(n, oh, ow, k));
        }
      }
    }
  }
};

/// x is dx, y is dy.
struct BackwardData : Conv {
  void add_taps(std::int64_t n, std::int64_t ih, std::int64_t iw, std::int64_t group, double* to) const {
    const WindowParams& p = params.window;
    for (std::int64_t r = 0; r < p.kernel_h; ++r) {
      const std::int64_t oh = reader(ih, p.stride_h, p.pad_h, r, p.dilation_h, y.h);
      if (oh < 0) continue;
      for (std::int64_t s = 0; s < p.kernel_w; ++s) {
        const std::int64_t ow = reader(iw, p.stride_w, p.pad_w, s, p.dilation_w, y.w);
        if (ow < 0) continue;
        const float* dy = y.at(n, oh, ow);
        for (std::int64_t k = group * group_k(); k < (group + 1) * group_k(); ++k) {
          const float* weight = w + weight_at(k, r, s);
          for (std::int64_t c = 0; c < group_c(); ++c) to[c] += double{dy[k]} * double{weight[c]};
        }
      }
    }
  }

  std::vector<double> sums = std::vector<double>(static_cast<std::size_t>(group_c()));

  void operator()() {
    for (std::int64_t n = 0; n < x.n; ++n) {
      for (std::int64_t ih = 0; ih < x.h; ++ih) {
        for (std::int64_t iw = 0; iw < x.w; ++iw) {
          for (std::int64_t group = 0; group < params.groups; ++group) {
            std::fill(sums.begin(), sums.end(), 0.0);
            add_taps(n, ih, iw, group, sums.data());
            float* dx = x.at(n, ih, iw) + group * group_c();
            for (std::int64_t c = 0; c < group_c(); ++c) dx[c] = static_cast<float>(sums[static_cast<std::size_t>(c)]);
          }
        }
      }
    }
  }
};

/// y is dy.
struct BackwardWeights : Conv {
  float* dw = nullptr;
  float* db = nullptr;

  void add_positions(std::int64_t k, std::int64_t r, std::int64_t s, double* to) const {
    const WindowParams& p = params.window;
    const std::int64_t first_c = k / group_k() * group_c();
    for (std::int64_t n = 0; n < y.n; ++n) {
      for (std::int64_t oh = 0; oh < y.h; ++oh) {
        const std::int64_t ih = tap(oh, p.stride_h, p.pad_h, r, p.dilation_h);
        if (ih < 0 || ih >= x.h) continue;
        for (std::int64_t ow = 0; ow < y.w; ++ow) {
          const std::int64_t iw = tap(ow, p.stride_w, p.pad_w, s, p.dilation_w);
          if (iw < 0 || iw >= x.w) continue;
          const double dy = y.at(n, oh, ow)[k];
          const float* pixel = x.at(n, ih, iw) + first_c;
          for (std::int64_t c = 0; c < group_c(); ++c) to[c] += dy * double{pixel[c]};
        }
      }
    }
  }

  double sum_of_channel(std::int64_t k) const {
    double sum = 0;
    for (std::int64_t row = 0; row < y.rows(); ++row) sum += double{y.data[row * y.c + k]};
    return sum;
  }

  std::vector<double> sums = std::vector<double>(static_cast<std::size_t>(group_c()));

  void operator()() {
    for (std::int64_t k = 0; k < y.c; ++k) {
      for (std::int64_t r = 0; r < params.window.kernel_h; ++r) {
        for (std::int64_t s = 0; s < params.window.kernel_w; ++s) {
          std::fill(sums.begin(), sums.end(), 0.0);
          add_positions(k, r, s, sums.data());
          std::transform(sums.begin(), sums.end(), dw + weight_at(k, r, s),
                         [](double sum) { return static_cast<float>(sum); });
        }
      }
      if (db != nullptr) db[k] = static_cast<float>(sum_of_channel(k));
    }
  }
};

/// The weight's own stored shape is not NHWC, so only its address is taken.
const float* weight_of(const Operands& operands, std::size_t i) {
  return reinterpret_cast<const float*>(operands.in_bytes(i));
}

}  // namespace

Kernel bind_conv2d(const Operands& operands) {
  const auto& params = operands.params<Conv2dParams>();
  switch (operands.node().pass) {
    case Pass::forward: {
      const float* bias = params.bias ? operands.in(2).data : nullptr;
      return Forward{{operands.in(0), operands.out(0), weight_of(operands, 1), bias, params}};
    }
    case Pass::backward_data:
      return BackwardData{{operands.out(0), operands.in(0), weight_of(operands, 1), nullptr, params}};
    case Pass::backward_weights: {
      auto* dw = reinterpret_cast<float*>(operands.out_bytes(0));
      float* db = params.bias ? operands.out(1).data : nullptr;
      return BackwardWeights{{operands.in(0), operands.in(1), nullptr, nullptr, params}, dw, db};
    }
    default: refuse_pass(operands.node());
  }
}

}  // namespace renai::reference
