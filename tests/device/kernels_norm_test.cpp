// Batch norm on the GPU, forward, against fp64 loops on the same rounded values.

#include "../../src/backend/cuda/kernels/norm.hpp"
#include "norm_case.hpp"

namespace renai::cuda {
namespace {

using testing::DeviceArray;
using testing::DeviceTensor;
using testing::expect_close;
using testing::kFloatTypes;
using testing::NormData;
using testing::same_bits;

class NormKernels : public testing::KernelTest {};

struct Outputs {
  std::vector<std::byte> y;
  std::vector<float> mean, var_unbiased, var_biased;
  std::vector<std::uint32_t> mask;

  bool same(const Outputs& o) const {
    return same_bits(y, o.y) && same_bits(mean, o.mean) && same_bits(var_unbiased, o.var_unbiased) &&
           same_bits(var_biased, o.var_biased) && same_bits(mask, o.mask);
  }
};

Outputs run_forward(const NormData& data, NormTail tail, bool masked, std::size_t shift) {
  const std::size_t count = data.count(), c = data.c;
  DeviceTensor x(data.x, data.dtype, shift), other(data.other, data.dtype, shift), y(count, data.dtype, shift);
  DeviceArray<float> scale(data.scale), bias(data.bias), mean(c), var_unbiased(c), var_biased(c);
  DeviceArray<std::uint32_t> mask((count + 31) / 32);
  DeviceArray<std::byte> workspace(static_cast<std::size_t>(norm_workspace_bytes(data.n(), data.channels())));
  NormForward norm;
  norm.x = x.data();
  norm.scale = scale.data();
  norm.bias = bias.data();
  norm.other = tail == NormTail::add_relu || tail == NormTail::relu_add ? other.data() : nullptr;
  norm.y = y.data();
  norm.mean = mean.data();
  norm.var_unbiased = var_unbiased.data();
  norm.var_biased = var_biased.data();
  norm.mask = masked ? mask.data() : nullptr;
  norm.workspace = workspace.data();
  norm.rows = data.n();
  norm.c = data.channels();
  norm.eps = data.eps;
  norm.tail = tail;
  norm.dtype = data.dtype;
  launch(norm, nullptr);
  testing::require_cuda(cudaDeviceSynchronize(), "batch norm");
  EXPECT_TRUE(y.fences_hold() && mean.fences_hold() && var_unbiased.fences_hold() && var_biased.fences_hold());
  EXPECT_TRUE(mask.fences_hold() && workspace.fences_hold() && x.fences_hold());
  return {y.bytes(), mean.get(), var_unbiased.get(), var_biased.get(), mask.get()};
}

void expect_statistics(const NormData& data, const Outputs& got, const std::string& what) {
  std::vector<double> mean, var, unbiased, noise, var_noise;
  for (const testing::Moments& m : data.moments()) {
    const double n = static_cast<double>(data.rows);
    mean.push_back(m.mean);
    var.push_back(m.var);
    unbiased.push_back(data.rows > 1 ? m.var * n / (n - 1) : std::nan(""));
    noise.push_back(2e-6 * std::sqrt(m.var));
    var_noise.push_back(1e-5 * m.var);
  }
  expect_close(got.mean, mean, noise, DType::f32, what + ", mean");
  expect_close(got.var_biased, var, var_noise, DType::f32, what + ", biased variance");
  expect_close(got.var_unbiased, unbiased, var_noise, DType::f32, what + ", unbiased variance");
}

double with_tail(NormTail tail, double v, double other) {
  const auto relu = [](double value) { return value < 0 ? 0 : value; };
  switch (tail) {
    case NormTail::none: return v;
    case NormTail::relu: return relu(v);
    case NormTail::add_relu: return relu(v + other);
    case NormTail::relu_add: return relu(v) + other;
  }
  return v;
}

/// y of the map x * a[c] + b[c] with the tail, in fp64; `noise` is what f32 may add.
void expect_map(const NormData& data, NormTail tail, const std::vector<double>& a, const std::vector<double>& b,
                const std::vector<std::byte>& y, const std::string& what) {
  std::vector<double> want(data.count()), noise(data.count());
  for (std::size_t i = 0; i < data.count(); ++i) {
    const double x = data.x[i], other = data.other[i], slope = a[i % data.c], offset = b[i % data.c];
    want[i] = with_tail(tail, x * slope + offset, other);
    noise[i] = 4e-6 * (std::abs(x * slope) + std::abs(offset) + std::abs(data.bias[i % data.c]) + std::abs(other));
  }
  expect_close(testing::decode(y, data.dtype), want, noise, data.dtype, what + ", y");
}

void expect_forward(const NormData& data, NormTail tail, const Outputs& got, const std::string& what) {
  expect_statistics(data, got, what);
  std::vector<double> a, b;
  const std::vector<testing::Moments> moments = data.moments();
  for (std::size_t k = 0; k < data.c; ++k) {
    a.push_back(double{data.scale[k]} / std::sqrt(moments[k].var + double{data.eps}));
    b.push_back(double{data.bias[k]} - moments[k].mean * a[k]);
  }
  expect_map(data, tail, a, b, got.y, what);
}

void expect_mask(const NormData& data, const Outputs& got, const std::string& what) {
  const std::vector<float> y = testing::decode(got.y, data.dtype);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < y.size(); ++i) wrong += (got.mask[i / 32] >> (i % 32) & 1u) != (y[i] > 0 ? 1u : 0u);
  EXPECT_EQ(wrong, 0u) << what << ", bits of the mask";
}

void check_forward(std::size_t rows, std::size_t c, DType dtype, NormTail tail, std::size_t shift = 0) {
  const NormData data(rows, c, dtype);
  const std::string what = data.str() + ", tail " + std::to_string(static_cast<int>(tail));
  const bool masked = tail == NormTail::add_relu;
  const Outputs got = run_forward(data, tail, masked, shift);
  expect_forward(data, tail, got, what);
  if (masked) expect_mask(data, got, what);
  // The bits past the last element are nobody's.
  Outputs again = run_forward(data, tail, masked, shift);
  if (masked && data.count() % 32 != 0) again.mask.back() = got.mask.back();
  EXPECT_TRUE(got.same(again)) << what << ": two runs differ";
}

constexpr std::array<NormTail, 4> kTails{NormTail::none, NormTail::relu, NormTail::add_relu, NormTail::relu_add};

TEST_F(NormKernels, ForwardAgreesWithDoubles) {
  for (const DType dtype : kFloatTypes) {
    for (const auto& [rows, c] : testing::kNormShapes) {
      for (const NormTail tail : kTails) check_forward(rows, c, dtype, tail);
    }
  }
}

/// Every block takes several row tiles; several column tiles.
TEST_F(NormKernels, ForwardOfLargeTensors) {
  check_forward(70001, 64, DType::bf16, NormTail::add_relu);
  check_forward(2503, 2048, DType::bf16, NormTail::relu);
  check_forward(70001, 12, DType::f32, NormTail::add_relu);
  check_forward(150001, 7, DType::f16, NormTail::none);
}

TEST_F(NormKernels, ForwardOfUnalignedTensors) {
  for (const DType dtype : kFloatTypes) check_forward(53, 16, dtype, NormTail::add_relu, 1);
}

/// The mean is 10^5 standard deviations off zero: sums of x and x * x in f32 would leave nothing of the variance.
TEST_F(NormKernels, StatisticsSurviveALargeMean) {
  for (const std::size_t c : {7, 8}) {
    NormData data(4099, c, DType::f32);
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0.0f, 0.01f);
    for (float& value : data.x) value = 1000.0f + normal(random);
    const Outputs got = run_forward(data, NormTail::none, false, 0);
    for (std::size_t k = 0; k < c; ++k) {
      EXPECT_NEAR(got.mean[k], data.moments()[k].mean, 1e-4);
      EXPECT_NEAR(got.var_biased[k], data.moments()[k].var, 1e-4 * data.moments()[k].var);
    }
  }
}

/// Shards of equal size in one process: each with the statistics of all rows, the same bits in each.
TEST_F(NormKernels, ShardsShareTheStatisticsOfAllRows) {
  for (const int shards : {2, 4}) {
    for (const auto& [rows, c] : {std::pair<std::size_t, std::size_t>{52, 7}, {1032, 64}}) {
      const NormData data(rows, c, DType::f32);
      const std::size_t own = rows / static_cast<std::size_t>(shards) * c;
      const auto own_rows = static_cast<std::int64_t>(rows) / shards;
      DeviceArray<double> blocks(2 * c * static_cast<std::size_t>(shards));
      DeviceArray<float> scale(data.scale), bias(data.bias);
      DeviceArray<std::byte> workspace(static_cast<std::size_t>(norm_workspace_bytes(own_rows, data.channels())));
      std::vector<double> gathered;
      std::vector<Outputs> outputs;
      for (const bool gathers : {true, false}) {
        for (int shard = 0; shard < shards; ++shard) {
          const auto first = data.x.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(shard) * own);
          DeviceTensor x(std::vector<float>(first, first + static_cast<std::ptrdiff_t>(own)), DType::f32),
              y(own, DType::f32);
          DeviceArray<float> mean(c), var_unbiased(c), var_biased(c);
          NormForward norm;
          norm.x = x.data();
          norm.y = y.data();
          norm.scale = scale.data();
          norm.bias = bias.data();
          norm.mean = mean.data();
          norm.var_unbiased = var_unbiased.data();
          norm.var_biased = var_biased.data();
          norm.workspace = workspace.data();
          norm.rows = own_rows;
          norm.c = data.channels();
          norm.eps = data.eps;
          norm.shards = {blocks.data(), shards, shard};
          if (!gathers) blocks.set(gathered);
          gathers ? launch_own_sums(norm, nullptr) : launch_shared(norm, nullptr);
          testing::require_cuda(cudaDeviceSynchronize(), "batch norm of a shard");
          EXPECT_TRUE(blocks.fences_hold() && workspace.fences_hold() && y.fences_hold());
          if (!gathers) outputs.push_back({y.bytes(), mean.get(), var_unbiased.get(), var_biased.get(), {}});
        }
        gathered = blocks.get();
      }
      const std::vector<float> whole = testing::decode(run_forward(data, NormTail::none, false, 0).y, DType::f32);
      std::vector<float> together;
      for (const Outputs& got : outputs) {
        expect_statistics(data, got, std::to_string(shards) + " shards of " + data.str());
        EXPECT_TRUE(same_bits(got.mean, outputs[0].mean) && same_bits(got.var_biased, outputs[0].var_biased));
        const std::vector<float> y = testing::decode(got.y, DType::f32);
        together.insert(together.end(), y.begin(), y.end());
      }
      for (std::size_t k = 0; k < whole.size(); ++k) ASSERT_NEAR(together[k], whole[k], 2e-5) << k;
    }
  }
}

TEST_F(NormKernels, ConstantChannelsHaveNoVariance) {
  NormData data(257, 8, DType::bf16);
  std::fill(data.x.begin(), data.x.end(), 3.0f);
  const Outputs got = run_forward(data, NormTail::none, false, 0);
  for (std::size_t k = 0; k < data.c; ++k) {
    EXPECT_EQ(got.mean[k], 3.0f);
    EXPECT_EQ(got.var_biased[k], 0.0f);
  }
}

/// A broken value breaks its channel, visibly, and no other.
TEST_F(NormKernels, NotANumberPassesThroughTheRelu) {
  for (const NormTail tail : {NormTail::relu, NormTail::add_relu}) {
    NormData data(64, 16, DType::bf16);
    data.x[5 * 16 + 3] = std::nanf("");
    const std::vector<float> y = testing::decode(run_forward(data, tail, false, 0).y, data.dtype);
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i % 16 == 3) << i;
  }
}

TEST_F(NormKernels, FoldedAgreesWithDoubles) {
  for (const DType dtype : kFloatTypes) {
    for (const auto& [rows, c] : testing::kNormShapes) {
      for (const NormTail tail : kTails) {
        const NormData data(rows, c, dtype);
        DeviceTensor x(data.x, dtype), other(data.other, dtype), y(data.count(), dtype);
        DeviceArray<float> scale(data.scale), bias(data.bias);
        NormFolded norm;
        norm.x = x.data();
        norm.scale = scale.data();
        norm.bias = bias.data();
        norm.other = other.data();
        norm.y = y.data();
        norm.rows = data.n();
        norm.c = data.channels();
        norm.tail = tail;
        norm.dtype = dtype;
        launch(norm, nullptr);
        synchronize();
        EXPECT_TRUE(y.fences_hold());
        expect_map(data, tail, {data.scale.begin(), data.scale.end()}, {data.bias.begin(), data.bias.end()}, y.bytes(),
                   "folded " + data.str());
      }
    }
  }
}

}  // namespace
}  // namespace renai::cuda
