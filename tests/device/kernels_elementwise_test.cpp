// Element-wise operators on the GPU against fp64 loops, or bit for bit where they are one f32 operation.

#include <limits>
#include <numbers>

#include "../../src/backend/cuda/kernels/elementwise.hpp"
#include "../../src/backend/dropout_key.hpp"
#include "tensor_case.hpp"

namespace renai::cuda {
namespace {

using testing::DeviceArray;
using testing::DeviceTensor;
using testing::expect_close;
using testing::kFloatTypes;
using testing::rounded;
using testing::same_bits;

class ElementwiseKernels : public testing::KernelTest {};

constexpr std::array<std::size_t, 7> kCounts{1, 7, 8, 9, 257, 8191, 100003};
constexpr std::array<Activation, 8> kActivations{Activation::relu,    Activation::leaky_relu, Activation::relu6,
                                                 Activation::silu,    Activation::hard_swish, Activation::gelu,
                                                 Activation::sigmoid, Activation::tanh};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

double value(const ActivationParams& params, double x) {
  switch (params.kind) {
    case Activation::relu: return x < 0 ? 0 : x;
    case Activation::leaky_relu: return x < 0 ? x * double{params.slope} : x;
    case Activation::relu6: return x < 0 ? 0 : x > 6 ? 6 : x;
    case Activation::silu: return x * sigmoid(x);
    case Activation::hard_swish: return x * std::clamp(x + 3, 0.0, 6.0) / 6;
    case Activation::gelu: return x * normal_cdf(x);
    case Activation::sigmoid: return sigmoid(x);
    case Activation::tanh: return std::tanh(x);
  }
  return x;
}

double slope(const ActivationParams& params, double v) {
  switch (params.kind) {
    case Activation::relu: return v > 0 ? 1 : 0;
    case Activation::leaky_relu: return v > 0 ? 1 : double{params.slope};
    case Activation::relu6: return v > 0 && v < 6 ? 1 : 0;
    case Activation::silu: return sigmoid(v) * (1 + v * (1 - sigmoid(v)));
    case Activation::hard_swish: return v <= -3 ? 0 : v >= 3 ? 1 : (2 * v + 3) / 6;
    case Activation::gelu: return normal_cdf(v) + v * std::exp(-0.5 * v * v) / std::sqrt(2 * std::numbers::pi);
    case Activation::sigmoid: return v * (1 - v);
    case Activation::tanh: return 1 - v * v;
  }
  return 1;
}

/// Random values, with the special ones in front where there is room.
std::vector<float> inputs(std::mt19937& random, std::size_t count, DType dtype) {
  std::vector<float> values = testing::random_floats(random, count, -9, 9);
  const float special[] = {std::nanf(""), 0.0f, -0.0f, 3.0f, -3.0f, 6.0f, 20.0f, -20.0f};
  if (count > 8) std::copy(std::begin(special), std::end(special), values.begin());
  return rounded(values, dtype);
}

void check_activation(std::size_t count, Activation kind, DType dtype, std::size_t shift) {
  std::mt19937 random(5);
  const ActivationParams params{kind, 0.2f};
  const std::string what = std::string(activation_name(kind)) + " of " + std::to_string(count) + " " +
                           std::string(dtype_name(dtype)) + (shift != 0 ? ", unaligned" : "");
  const std::vector<float> in = inputs(random, count, dtype);
  const std::vector<float> gradient = rounded(testing::random_floats(random, count), dtype);
  DeviceTensor x(in, dtype, shift), dy(gradient, dtype, shift), y(count, dtype, shift), dx(count, dtype, shift);
  const auto elems = static_cast<std::int64_t>(count);
  launch_activation(x.data(), y.data(), elems, params, dtype, nullptr);
  launch_activation_grad(x.data(), dy.data(), dx.data(), elems, params, dtype, nullptr);
  testing::require_cuda(cudaDeviceSynchronize(), "an activation");
  std::vector<double> want, noise, want_dx, noise_dx;
  for (std::size_t i = 0; i < count; ++i) {
    const double v = in[i], g = gradient[i];
    want.push_back(value(params, v));
    noise.push_back(1e-6 * std::abs(want[i]) + 1e-12);
    want_dx.push_back(g * slope(params, v));
    noise_dx.push_back(2e-6 * std::abs(g) * (std::isnan(v) ? 1 : 1 + v * v));
  }
  expect_close(y.get(), want, noise, dtype, what);
  expect_close(dx.get(), want_dx, noise_dx, dtype, what + ", gradient");
  EXPECT_TRUE(y.fences_hold() && dx.fences_hold()) << what;
}

TEST_F(ElementwiseKernels, ActivationsAgreeWithDoubles) {
  for (const DType dtype : kFloatTypes) {
    for (const Activation kind : kActivations) {
      for (const std::size_t count : kCounts) check_activation(count, kind, dtype, 0);
      check_activation(1001, kind, dtype, 1);
    }
  }
}

TEST_F(ElementwiseKernels, AddIsOneRounding) {
  std::mt19937 random(6);
  for (const DType dtype : kFloatTypes) {
    for (const std::size_t count : kCounts) {
      for (const std::size_t shift : {0, 1}) {
        const std::vector<float> left = inputs(random, count, dtype), right = inputs(random, count, dtype);
        std::vector<float> want(count);
        for (std::size_t i = 0; i < count; ++i) want[i] = std::isnan(left[i]) ? left[i] : left[i] + right[i];
        DeviceTensor a(left, dtype, shift), b(right, dtype, shift), y(count, dtype, shift);
        const auto elems = static_cast<std::int64_t>(count);
        launch_add(a.data(), b.data(), y.data(), elems, dtype, nullptr);
        launch_add(a.data(), b.data(), b.data(), elems, dtype, nullptr);
        synchronize();
        const std::vector<double> wide(want.begin(), want.end()), none(count, 0.0);
        expect_close(y.get(), wide, none, dtype, "a sum of " + std::to_string(count));
        EXPECT_TRUE(same_bits(y.bytes(), b.bytes())) << "in place, " << count;
        EXPECT_TRUE(y.fences_hold() && b.fences_hold());
      }
    }
  }
}

TEST_F(ElementwiseKernels, DropoutHasTheMaskOfItsKey) {
  std::mt19937 random(7);
  ControlBlock key;
  key.seed = 0x0123456789ABCDEFull;
  key.step = 41;
  key.shard = 3;
  DeviceArray<ControlBlock> control(std::vector<ControlBlock>{key});
  for (const DType dtype : kFloatTypes) {
    for (const std::size_t count : kCounts) {
      for (const float p : {0.0f, 0.3f, 1.0f}) {
        for (const std::size_t shift : {0, 1}) {
          const DropoutParams params{p, 9};
          const std::vector<float> in = rounded(testing::random_floats(random, count), dtype);
          std::vector<float> want(count);
          for (std::size_t i = 0; i < count; ++i) {
            const PhiloxBlock words = dropout_block(key, params.layer, static_cast<std::int64_t>(i) / 4);
            want[i] = dropout_keeps(words[i % 4], p) ? in[i] * dropout_scale(p) : 0.0f;
          }
          DeviceTensor from(in, dtype, shift), to(count, dtype, shift);
          const auto elems = static_cast<std::int64_t>(count);
          launch_dropout(from.data(), to.data(), elems, params, control.data(), dtype, nullptr);
          synchronize();
          EXPECT_TRUE(same_bits(to.bytes(), testing::encode(want, dtype))) << dtype_name(dtype) << ' ' << count;
          EXPECT_TRUE(to.fences_hold());
        }
      }
    }
  }
}

TEST_F(ElementwiseKernels, CastsRoundToNearestEven) {
  std::mt19937 random(8);
  for (const DType dtype : kFloatTypes) {
    for (const std::size_t count : kCounts) {
      for (const std::size_t shift : {0, 1}) {
        std::vector<float> in = testing::random_floats(random, count, -4, 4);
        for (std::size_t i = 0; i < count; i += 3) in[i] = std::ldexp(in[i], static_cast<int>(random() % 60) - 30);
        if (count > 2) in[1] = 1.0f + 0x1p-8f;  // a tie for bf16
        if (count > 2) in[2] = std::numeric_limits<float>::infinity();
        DeviceTensor from(in, DType::f32, shift), half(count, dtype, shift), back(count, DType::f32, shift);
        const auto elems = static_cast<std::int64_t>(count);
        launch_cast(static_cast<const float*>(from.data()), half.data(), elems, dtype, nullptr);
        launch_cast_to_f32(half.data(), static_cast<float*>(back.data()), elems, dtype, nullptr);
        synchronize();
        EXPECT_TRUE(same_bits(half.bytes(), testing::encode(in, dtype))) << dtype_name(dtype) << ' ' << count;
        EXPECT_TRUE(same_bits(back.get(), rounded(in, dtype))) << dtype_name(dtype) << ' ' << count;
        EXPECT_TRUE(half.fences_hold() && back.fences_hold());
      }
    }
  }
}

/// What lies beside the copied columns stays.
void check_copy(const ColumnCopy& copy, DType dtype) {
  std::mt19937 random(9);
  const auto size = [](std::int64_t value) { return static_cast<std::size_t>(value); };
  const std::vector<float> in = rounded(testing::random_floats(random, size(copy.rows * copy.from_pitch)), dtype);
  std::vector<float> want = rounded(testing::random_floats(random, size(copy.rows * copy.to_pitch)), dtype);
  DeviceTensor from(in, dtype), to(want, dtype);
  for (std::int64_t row = 0; row < copy.rows; ++row) {
    for (std::int64_t k = 0; k < copy.columns; ++k) {
      want[size(row * copy.to_pitch + copy.to_column + k)] = in[size(row * copy.from_pitch + copy.from_column + k)];
    }
  }
  ColumnCopy asked = copy;
  asked.from = from.data();
  asked.to = to.data();
  asked.dtype = dtype;
  launch(asked, nullptr);
  testing::require_cuda(cudaDeviceSynchronize(), "a copy of columns");
  EXPECT_TRUE(same_bits(to.get(), want)) << dtype_name(dtype) << ' ' << copy.rows << " x " << copy.columns;
  EXPECT_TRUE(to.fences_hold());
}

TEST_F(ElementwiseKernels, ColumnsAreCopiedBetweenPitches) {
  for (const DType dtype : kFloatTypes) {
    check_copy({nullptr, nullptr, 1, 1, 1, 0, 1, 0, dtype}, dtype);
    check_copy({nullptr, nullptr, 13, 3, 7, 2, 5, 1, dtype}, dtype);
    check_copy({nullptr, nullptr, 101, 16, 16, 0, 48, 24, dtype}, dtype);
    check_copy({nullptr, nullptr, 997, 64, 128, 64, 64, 0, dtype}, dtype);
    check_copy({nullptr, nullptr, 31, 16, 40, 4, 16, 0, dtype}, dtype);
    check_copy({nullptr, nullptr, 7, 1024, 1024, 0, 2048, 1000, dtype}, dtype);
  }
}

constexpr std::array<std::pair<std::size_t, std::size_t>, 9> kMatrices{
    {{1, 1}, {2, 3}, {13, 7}, {31, 8}, {256, 10}, {101, 64}, {5, 2048}, {256, 1000}, {70001, 24}}};

TEST_F(ElementwiseKernels, ColumnSumsAgreeWithDoubles) {
  std::mt19937 random(10);
  for (const DType dtype : kFloatTypes) {
    for (const auto& [rows, columns] : kMatrices) {
      const std::vector<float> in = rounded(testing::random_floats(random, rows * columns, -1, 2), dtype);
      std::vector<double> want(columns), noise(columns);
      for (std::size_t i = 0; i < in.size(); ++i) want[i % columns] += in[i];
      for (std::size_t i = 0; i < in.size(); ++i) noise[i % columns] += 4e-6 * std::abs(in[i]);
      const auto n = static_cast<std::int64_t>(rows), c = static_cast<std::int64_t>(columns);
      std::vector<float> first;
      for (const std::size_t shift : {0, 0, 1}) {
        DeviceTensor values(in, dtype, shift);
        DeviceArray<float> out(columns);
        DeviceArray<std::byte> workspace(static_cast<std::size_t>(column_sums_workspace_bytes(n, c)));
        launch_column_sums(values.data(), out.data(), n, c, workspace.data(), dtype, nullptr);
        synchronize();
        const std::string what = std::to_string(rows) + " x " + std::to_string(columns);
        expect_close(out.get(), want, noise, DType::f32, "column sums of " + what);
        EXPECT_TRUE(out.fences_hold() && workspace.fences_hold()) << what;
        if (shift == 0 && !first.empty()) {
          EXPECT_TRUE(same_bits(first, out.get())) << what << ": two runs differ";
        }
        first = out.get();
      }
    }
  }
}

}  // namespace
}  // namespace renai::cuda
