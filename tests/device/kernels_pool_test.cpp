// Pooling on the GPU against fp64 loops.

#include <functional>

#include "../../src/backend/cuda/kernels/pool.hpp"
#include "tensor_case.hpp"

namespace renai::cuda {
namespace {

using testing::DeviceArray;
using testing::DeviceTensor;
using testing::expect_close;
using testing::kFloatTypes;
using testing::rounded;
using testing::same_bits;

class PoolKernels : public testing::KernelTest {};

PoolShape make_shape(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c, const WindowParams& window,
                     bool ceil_mode = false, bool count_include_pad = true) {
  PoolShape s;
  s.n = n;
  s.h = h;
  s.w = w;
  s.c = c;
  s.params = {window, ceil_mode, count_include_pad};
  const auto out = [&](std::int64_t size, std::int64_t kernel, std::int64_t stride, std::int64_t pad,
                       std::int64_t dilation) {
    const std::int64_t span = size + 2 * pad - dilation * (kernel - 1) - 1;
    std::int64_t count = (span + (ceil_mode ? stride - 1 : 0)) / stride + 1;
    if (ceil_mode && (count - 1) * stride >= size + pad) --count;  // no window starts in the right padding
    return count;
  };
  s.out_h = out(h, window.kernel_h, window.stride_h, window.pad_h, window.dilation_h);
  s.out_w = out(w, window.kernel_w, window.stride_w, window.pad_w, window.dilation_w);
  return s;
}

std::string text(const PoolShape& s) {
  const WindowParams& p = s.params.window;
  return std::string(dtype_name(s.dtype)) + " [" + std::to_string(s.n) + ", " + std::to_string(s.h) + ", " +
         std::to_string(s.w) + ", " + std::to_string(s.c) + "] " + std::to_string(p.kernel_h) + "x" +
         std::to_string(p.kernel_w) + "/" + std::to_string(p.stride_h) + " p" + std::to_string(p.pad_h) + " d" +
         std::to_string(p.dilation_h) + (s.params.ceil_mode ? " ceil" : "");
}

std::size_t inputs(const PoolShape& s) { return static_cast<std::size_t>(s.n * s.h * s.w * s.c); }
std::size_t outputs(const PoolShape& s) { return static_cast<std::size_t>(s.n * s.out_h * s.out_w * s.c); }

/// Calls f(output, oh, ow, taps) with taps = (input index, tap) pairs in row order, for every output element.
using Taps = std::vector<std::pair<std::size_t, std::uint8_t>>;
void for_each_output(const PoolShape& s,
                     const std::function<void(std::size_t, std::int64_t, std::int64_t, const Taps&)>& f) {
  const WindowParams& p = s.params.window;
  std::size_t index = 0;
  for (std::int64_t n = 0; n < s.n; ++n) {
    for (std::int64_t oh = 0; oh < s.out_h; ++oh) {
      for (std::int64_t ow = 0; ow < s.out_w; ++ow) {
        for (std::int64_t c = 0; c < s.c; ++c) {
          Taps taps;
          for (std::int64_t tap = 0; tap < p.kernel_h * p.kernel_w; ++tap) {
            const std::int64_t ih = oh * p.stride_h - p.pad_h + tap / p.kernel_w * p.dilation_h;
            const std::int64_t iw = ow * p.stride_w - p.pad_w + tap % p.kernel_w * p.dilation_w;
            if (ih < 0 || ih >= s.h || iw < 0 || iw >= s.w) continue;
            taps.emplace_back(static_cast<std::size_t>(((n * s.h + ih) * s.w + iw) * s.c + c),
                              static_cast<std::uint8_t>(tap));
          }
          f(index++, oh, ow, taps);
        }
      }
    }
  }
}

const WindowParams kResNet{3, 3, 2, 2, 1, 1, 1, 1}, kVgg{2, 2, 2, 2, 0, 0, 1, 1};

/// Fast paths and their neighbours: odd sizes, odd channels, no padding, dilation, other strides, overlaps, ceil mode.
std::vector<PoolShape> shapes() {
  std::vector<PoolShape> all;
  for (const std::int64_t c : {1, 3, 8, 10, 64}) {
    all.push_back(make_shape(2, 9, 12, c, kResNet));
    all.push_back(make_shape(3, 8, 7, c, kVgg));
    all.push_back(make_shape(2, 9, 10, c, {3, 3, 2, 2, 0, 0, 1, 1}, true));
    all.push_back(make_shape(2, 7, 6, c, {3, 3, 1, 1, 1, 1, 1, 1}));
    all.push_back(make_shape(1, 11, 13, c, {3, 2, 2, 3, 1, 0, 2, 1}));
    all.push_back(make_shape(1, 9, 9, c, {2, 2, 2, 2, 0, 0, 1, 1}, true));
    all.push_back(make_shape(1, 9, 9, c, {2, 2, 2, 2, 1, 1, 1, 1}));
    all.push_back(make_shape(1, 6, 6, c, {5, 5, 3, 3, 2, 2, 1, 1}, true));
  }
  all.push_back(make_shape(1, 1, 1, 8, kResNet));
  all.push_back(make_shape(2, 5, 3, 2048, kResNet));
  all.push_back(make_shape(2, 56, 56, 64, kResNet));
  return all;
}

/// Few different values, so that most windows have ties.
std::vector<float> tied_values(std::size_t count) {
  std::mt19937 random(21);
  std::vector<float> values(count);
  for (float& value : values) value = 0.5f * static_cast<float>(static_cast<int>(random() % 7) - 3);
  return values;
}

struct MaxResult {
  std::vector<std::byte> y;
  std::vector<std::uint8_t> places;
};

MaxResult run_max(const PoolShape& s, const std::vector<float>& in, std::size_t shift = 0) {
  DeviceTensor x(in, s.dtype, shift), y(outputs(s), s.dtype, shift), alone(outputs(s), s.dtype, shift);
  DeviceArray<std::uint8_t> places(static_cast<std::size_t>(max_pool_places_bytes(s)));
  launch_max_pool(s, x.data(), y.data(), places.data(), nullptr);
  launch_max_pool(s, x.data(), alone.data(), nullptr, nullptr);
  testing::require_cuda(cudaDeviceSynchronize(), "a max pool");
  EXPECT_TRUE(y.fences_hold() && places.fences_hold() && alone.fences_hold()) << text(s);
  EXPECT_TRUE(same_bits(y.bytes(), alone.bytes())) << text(s) << ": without places";
  return {y.bytes(), places.get()};
}

void check_max(const PoolShape& s, const std::vector<float>& in, std::size_t shift = 0) {
  std::vector<float> want_y(outputs(s));
  std::vector<std::uint8_t> want_places(outputs(s));
  for_each_output(s, [&](std::size_t index, std::int64_t, std::int64_t, const Taps& taps) {
    const std::pair<std::size_t, std::uint8_t>* best = nullptr;
    for (const auto& tap : taps) {
      const float value = in[tap.first];
      const bool wins =
          best != nullptr && (value > in[best->first] || (std::isnan(value) && !std::isnan(in[best->first])));
      if (best == nullptr || wins) best = &tap;
    }
    want_y[index] = in[best->first];
    want_places[index] = best->second;
  });
  const MaxResult got = run_max(s, in, shift);
  const std::vector<float> y = testing::decode(got.y, s.dtype);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < y.size(); ++i)
    wrong += !(y[i] == want_y[i] || (std::isnan(y[i]) && std::isnan(want_y[i])));
  EXPECT_EQ(wrong, 0u) << text(s) << ", maxima";
  EXPECT_EQ(got.places, want_places) << text(s) << ", places";
}

TEST_F(PoolKernels, MaximaAndTheirFirstPlaces) {
  for (const DType dtype : kFloatTypes) {
    for (PoolShape s : shapes()) {
      s.dtype = dtype;
      check_max(s, tied_values(inputs(s)));
    }
    PoolShape s = make_shape(2, 9, 12, 16, kResNet);
    s.dtype = dtype;
    check_max(s, tied_values(inputs(s)), 1);
  }
}

TEST_F(PoolKernels, NotANumberWinsAndInfinitiesCompare) {
  for (const DType dtype : kFloatTypes) {
    for (const WindowParams& window : {kResNet, kVgg, WindowParams{3, 3, 1, 1, 1, 1, 1, 1}}) {
      for (const std::int64_t c : {3, 8}) {
        PoolShape s = make_shape(2, 10, 10, c, window);
        s.dtype = dtype;
        std::vector<float> in = tied_values(inputs(s));
        for (std::size_t i = 0; i < in.size(); i += 11) in[i] = std::nanf("");
        for (std::size_t i = 0; i < in.size(); i += 7) in[i] = std::numeric_limits<float>::infinity();
        for (std::size_t i = 0; i < in.size() / 2; ++i) {
          if (!std::isnan(in[i])) in[i] = -std::numeric_limits<float>::infinity();
        }
        check_max(s, in);
      }
    }
  }
}

void check_max_grad(const PoolShape& s, std::size_t shift) {
  std::mt19937 random(22);
  std::vector<std::uint8_t> taken(outputs(s));
  const std::vector<float> dy_values = rounded(testing::random_floats(random, outputs(s)), s.dtype);
  std::vector<double> want(inputs(s)), noise(inputs(s));
  for_each_output(s, [&](std::size_t index, std::int64_t, std::int64_t, const Taps& taps) {
    const auto& [input, tap] = taps[random() % taps.size()];
    taken[index] = tap;
    want[input] += dy_values[index];
    noise[input] += 1e-6 * std::abs(dy_values[index]);
  });
  std::vector<std::byte> first;
  for (int run = 0; run < 2; ++run) {
    DeviceTensor dy(dy_values, s.dtype, shift), dx(inputs(s), s.dtype, shift);
    DeviceArray<std::uint8_t> places(taken);
    launch_max_pool_grad(s, places.data(), dy.data(), dx.data(), nullptr);
    testing::require_cuda(cudaDeviceSynchronize(), "a max pool's gradient");
    EXPECT_TRUE(dx.fences_hold()) << text(s);
    expect_close(dx.get(), want, noise, s.dtype, text(s) + ", max pool's gradient");
    if (run == 1) {
      EXPECT_TRUE(same_bits(first, dx.bytes())) << text(s) << ": two runs differ";
    }
    first = dx.bytes();
  }
}

TEST_F(PoolKernels, GradientsGoToThePlaces) {
  for (const DType dtype : kFloatTypes) {
    for (PoolShape s : shapes()) {
      s.dtype = dtype;
      check_max_grad(s, 0);
    }
    PoolShape s = make_shape(2, 9, 12, 16, kResNet);
    s.dtype = dtype;
    check_max_grad(s, 1);
  }
}

double divisor(const PoolShape& s, std::int64_t oh, std::int64_t ow) {
  const WindowParams& p = s.params.window;
  const auto cells = [&](std::int64_t start, std::int64_t kernel, std::int64_t size, std::int64_t pad) {
    const std::int64_t end = std::min(start + kernel, size + pad);
    return s.params.count_include_pad ? end - start : std::min(end, size) - std::max<std::int64_t>(start, 0);
  };
  return static_cast<double>(cells(oh * p.stride_h - p.pad_h, p.kernel_h, s.h, p.pad_h) *
                             cells(ow * p.stride_w - p.pad_w, p.kernel_w, s.w, p.pad_w));
}

void check_average(const PoolShape& s, std::size_t shift) {
  std::mt19937 random(23);
  const std::vector<float> in = rounded(testing::random_floats(random, inputs(s)), s.dtype);
  const std::vector<float> gradient = rounded(testing::random_floats(random, outputs(s)), s.dtype);
  std::vector<double> want_y(outputs(s)), y_noise(outputs(s)), want_dx(inputs(s)), dx_noise(inputs(s));
  for_each_output(s, [&](std::size_t index, std::int64_t oh, std::int64_t ow, const Taps& taps) {
    const double share = 1 / divisor(s, oh, ow);
    for (const auto& [input, tap] : taps) {
      want_y[index] += share * in[input];
      y_noise[index] += 1e-6 * share * std::abs(in[input]);
      want_dx[input] += share * gradient[index];
      dx_noise[input] += 1e-6 * share * std::abs(gradient[index]);
    }
  });
  DeviceTensor x(in, s.dtype, shift), y(outputs(s), s.dtype, shift);
  DeviceTensor dy(gradient, s.dtype, shift), dx(inputs(s), s.dtype, shift);
  launch_avg_pool(s, x.data(), y.data(), nullptr);
  launch_avg_pool_grad(s, dy.data(), dx.data(), nullptr);
  testing::require_cuda(cudaDeviceSynchronize(), "an average pool");
  expect_close(y.get(), want_y, y_noise, s.dtype, text(s) + ", average");
  expect_close(dx.get(), want_dx, dx_noise, s.dtype, text(s) + ", average's gradient");
  EXPECT_TRUE(y.fences_hold() && dx.fences_hold()) << text(s);
}

TEST_F(PoolKernels, AveragesAndTheirGradients) {
  for (const DType dtype : kFloatTypes) {
    for (PoolShape s : shapes()) {
      if (s.params.window.dilation_h != 1) continue;  // an average has no dilation
      s.dtype = dtype;
      check_average(s, 0);
      s.params.count_include_pad = false;
      check_average(s, 1);
    }
  }
}

TEST_F(PoolKernels, GlobalAveragesAndTheirGradients) {
  for (const DType dtype : kFloatTypes) {
    for (const auto& [n, h, w, c] : {std::array<std::int64_t, 4>{1, 1, 1, 1},
                                     {3, 7, 7, 64},
                                     {2, 5, 3, 10},
                                     {5, 7, 7, 2048},
                                     {2, 31, 29, 7},
                                     {300, 2, 2, 3}}) {
      PoolShape s = make_shape(n, h, w, c, {h, w, 1, 1, 0, 0, 1, 1});
      s.dtype = dtype;
      std::mt19937 random(24);
      const std::vector<float> in = rounded(testing::random_floats(random, inputs(s)), dtype);
      const std::vector<float> gradient = rounded(testing::random_floats(random, outputs(s)), dtype);
      std::vector<double> want_y(outputs(s)), y_noise(outputs(s)), want_dx(inputs(s)), dx_noise(inputs(s));
      const double share = 1 / static_cast<double>(h * w);
      const auto channels = static_cast<std::size_t>(c), sample = static_cast<std::size_t>(h * w * c);
      for (std::size_t i = 0; i < in.size(); ++i) {
        const std::size_t o = i / sample * channels + i % channels;
        want_y[o] += share * in[i];
        y_noise[o] += 1e-6 * share * std::abs(in[i]);
        want_dx[i] = share * gradient[o];
        dx_noise[i] = 1e-6 * std::abs(want_dx[i]);
      }
      DeviceTensor x(in, dtype), y(outputs(s), dtype), dy(gradient, dtype), dx(inputs(s), dtype);
      launch_global_avg_pool(s, x.data(), y.data(), nullptr);
      launch_global_avg_pool_grad(s, dy.data(), dx.data(), nullptr);
      synchronize();
      expect_close(y.get(), want_y, y_noise, dtype, text(s) + ", global average");
      expect_close(dx.get(), want_dx, dx_noise, dtype, text(s) + ", global average's gradient");
      EXPECT_TRUE(y.fences_hold() && dx.fences_hold()) << text(s);
    }
  }
}

}  // namespace
}  // namespace renai::cuda
