// Batch norm on the GPU, backward, against fp64 loops on the same rounded values.

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

class NormGradKernels : public testing::KernelTest {};

/// What a gradient is asked for, and where its outputs go.
struct Wish {
  NormTail tail = NormTail::none;
  bool second = false;  ///< dy2
  bool keeps = false;   ///< dz
  bool dz_over_dy = false, dx_over_x = false, dx_over_dy = false;
  std::size_t shift = 0;

  std::string str() const {
    std::string text = ", tail " + std::to_string(static_cast<int>(tail));
    for (const auto& [on, name] : {std::pair{second, ", dy2"}, {keeps, ", dz"}, {dz_over_dy, " over dy"}}) {
      if (on) text += name;
    }
    return text + (dx_over_x ? ", dx over x" : dx_over_dy ? ", dx over dy" : "");
  }
};

/// Inputs of backward that forward would have left: f32 moments and a mask, here of random bits.
struct Saved {
  std::vector<float> mean, var;
  std::vector<std::uint32_t> mask;

  explicit Saved(const NormData& data) {
    for (const testing::Moments& m : data.moments()) {
      mean.push_back(static_cast<float>(m.mean));
      var.push_back(static_cast<float>(m.var));
    }
    std::mt19937 random(11);
    mask.resize((data.count() + 31) / 32);
    for (std::uint32_t& word : mask) word = static_cast<std::uint32_t>(random());
  }
};

struct Outputs {
  std::vector<std::byte> dx, dz;
  std::vector<float> dscale, dbias;

  bool same(const Outputs& o) const {
    return same_bits(dx, o.dx) && same_bits(dz, o.dz) && same_bits(dscale, o.dscale) && same_bits(dbias, o.dbias);
  }
};

Outputs run_backward(const NormData& data, const Saved& saved, const Wish& wish) {
  const std::size_t count = data.count(), c = data.c;
  DeviceTensor x(data.x, data.dtype, wish.shift), dy(data.dy, data.dtype, wish.shift);
  DeviceTensor dy2(data.dy2, data.dtype, wish.shift), dx(count, data.dtype, wish.shift);
  DeviceTensor dz(count, data.dtype, wish.shift);
  DeviceArray<float> scale(data.scale), bias(data.bias), mean(saved.mean), var(saved.var), dscale(c), dbias(c);
  DeviceArray<std::uint32_t> mask(saved.mask);
  DeviceArray<std::byte> workspace(static_cast<std::size_t>(norm_workspace_bytes(data.n(), data.channels())));
  DeviceTensor& to_dx = wish.dx_over_x ? x : wish.dx_over_dy ? dy : dx;
  DeviceTensor& to_dz = wish.dz_over_dy ? dy : dz;
  NormBackward norm;
  norm.x = x.data();
  norm.dy = dy.data();
  norm.dy2 = wish.second ? dy2.data() : nullptr;
  norm.scale = scale.data();
  norm.bias = bias.data();
  norm.mean = mean.data();
  norm.var_biased = var.data();
  norm.mask = wish.tail == NormTail::add_relu ? mask.data() : nullptr;
  norm.dx = to_dx.data();
  norm.dz = wish.keeps ? to_dz.data() : nullptr;
  norm.dscale = dscale.data();
  norm.dbias = dbias.data();
  norm.workspace = workspace.data();
  norm.rows = data.n();
  norm.c = data.channels();
  norm.eps = data.eps;
  norm.tail = wish.tail;
  norm.dtype = data.dtype;
  launch(norm, nullptr);
  testing::require_cuda(cudaDeviceSynchronize(), "batch norm's gradient");
  EXPECT_TRUE(x.fences_hold() && dy.fences_hold() && dx.fences_hold() && dz.fences_hold());
  EXPECT_TRUE(dscale.fences_hold() && dbias.fences_hold() && workspace.fences_hold());
  return {to_dx.bytes(), wish.keeps ? to_dz.bytes() : std::vector<std::byte>{}, dscale.get(), dbias.get()};
}

/// Whether the relu let element i through; x's sign in the f32 arithmetic that forward used.
bool passes(const NormData& data, const Saved& saved, NormTail tail, std::size_t i) {
  const std::size_t k = i % data.c;
  if (tail == NormTail::add_relu) return (saved.mask[i / 32] >> (i % 32) & 1u) != 0;
  if (tail == NormTail::none) return true;
  const float a = data.scale[k] * (1.0f / std::sqrt(saved.var[k] + data.eps));
  return std::fma(data.x[i], a, std::fma(-saved.mean[k], a, data.bias[k])) > 0;
}

/// g in f32, rounded where it is kept.
std::vector<float> gradient(const NormData& data, const Saved& saved, const Wish& wish) {
  std::vector<float> g(data.count());
  for (std::size_t i = 0; i < g.size(); ++i) {
    const float sum = wish.second ? data.dy[i] + data.dy2[i] : data.dy[i];
    g[i] = passes(data, saved, wish.tail, i) ? sum : 0.0f;
  }
  return wish.keeps ? testing::rounded(g, data.dtype) : g;
}

struct ChannelSums {
  double g = 0, g_xhat = 0, size_g = 0, size_g_xhat = 0;
};

void expect_backward(const NormData& data, const Saved& saved, const Wish& wish, const Outputs& got,
                     const std::string& what) {
  const std::vector<float> g = gradient(data, saved, wish);
  if (wish.keeps) {
    EXPECT_TRUE(same_bits(testing::decode(got.dz, data.dtype), g)) << what << ", dz";
  }
  const double n = static_cast<double>(data.rows);
  std::vector<ChannelSums> sums(data.c);
  const auto inverse = [&](std::size_t k) { return 1.0 / std::sqrt(double{saved.var[k]} + double{data.eps}); };
  const auto xhat = [&](std::size_t i) { return (double{data.x[i]} - saved.mean[i % data.c]) * inverse(i % data.c); };
  for (std::size_t i = 0; i < g.size(); ++i) {
    ChannelSums& s = sums[i % data.c];
    s.g += g[i];
    s.g_xhat += g[i] * xhat(i);
    s.size_g += std::abs(g[i]);
    s.size_g_xhat += std::abs(g[i] * xhat(i));
  }
  std::vector<double> dscale, dbias, dscale_noise, dbias_noise, dx(g.size()), noise(g.size());
  for (const ChannelSums& s : sums) {
    dscale.push_back(s.g_xhat);
    dscale_noise.push_back(4e-6 * s.size_g_xhat);
    dbias.push_back(s.g);
    dbias_noise.push_back(4e-6 * s.size_g);
  }
  expect_close(got.dscale, dscale, dscale_noise, DType::f32, what + ", dscale");
  expect_close(got.dbias, dbias, dbias_noise, DType::f32, what + ", dbias");
  for (std::size_t i = 0; i < g.size(); ++i) {
    const std::size_t k = i % data.c;
    const ChannelSums& s = sums[k];
    const double k1 = double{data.scale[k]} * inverse(k), far = std::abs(saved.mean[k]) * inverse(k);
    dx[i] = k1 * (double{g[i]} - s.g / n - xhat(i) * s.g_xhat / n);
    noise[i] = 4e-6 * std::abs(k1) * (std::abs(g[i]) + s.size_g / n + (std::abs(xhat(i)) + far) * s.size_g_xhat / n);
  }
  expect_close(testing::decode(got.dx, data.dtype), dx, noise, data.dtype, what + ", dx");
}

void check_backward(std::size_t rows, std::size_t c, DType dtype, const Wish& wish) {
  const NormData data(rows, c, dtype);
  const Saved saved(data);
  const std::string what = data.str() + wish.str();
  const Outputs got = run_backward(data, saved, wish);
  expect_backward(data, saved, wish, got, what);
  EXPECT_TRUE(got.same(run_backward(data, saved, wish))) << what << ": two runs differ";
}

constexpr std::array<NormTail, 3> kTails{NormTail::none, NormTail::relu, NormTail::add_relu};

/// Shards of `data`, each with the moments of all rows: their sums, then their dx.
struct ShardGradient {
  const NormData& data;
  const Saved& saved;
  std::int64_t rows;
  int shards;
  std::vector<double> blocks;
  std::vector<float> dx, dscale, dbias;

  void run(int shard, bool sums_only) {
    const auto own = static_cast<std::size_t>(rows) * data.c;
    const auto part = [&](const std::vector<float>& all) {
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(shard) * own);
      return std::vector<float>(first, first + static_cast<std::ptrdiff_t>(own));
    };
    DeviceTensor x(part(data.x), DType::f32), dy(part(data.dy), DType::f32), to_dx(own, DType::f32);
    DeviceArray<float> scale(data.scale), bias(data.bias), mean(saved.mean), var(saved.var), to_dscale(data.c),
        to_dbias(data.c);
    DeviceArray<double> gathered(blocks);
    DeviceArray<std::byte> workspace(static_cast<std::size_t>(norm_workspace_bytes(rows, data.channels())));
    NormBackward norm;
    norm.x = x.data();
    norm.dy = dy.data();
    norm.scale = scale.data();
    norm.bias = bias.data();
    norm.mean = mean.data();
    norm.var_biased = var.data();
    norm.dx = to_dx.data();
    norm.dscale = to_dscale.data();
    norm.dbias = to_dbias.data();
    norm.workspace = workspace.data();
    norm.rows = rows;
    norm.c = data.channels();
    norm.eps = data.eps;
    norm.tail = NormTail::relu;
    norm.shards = {gathered.data(), shards, shard};
    sums_only ? launch_own_sums(norm, nullptr) : launch_shared(norm, nullptr);
    testing::require_cuda(cudaDeviceSynchronize(), "a shard's gradient");
    EXPECT_TRUE(gathered.fences_hold() && workspace.fences_hold() && to_dx.fences_hold());
    if (sums_only) {
      blocks = gathered.get();
      dscale = to_dscale.get();
      dbias = to_dbias.get();
    } else {
      const std::vector<float> values = testing::decode(to_dx.bytes(), DType::f32);
      dx.insert(dx.end(), values.begin(), values.end());
    }
  }
};

/// Shards of equal size: dx is that of the whole batch, dscale and dbias add up to the batch's.
TEST_F(NormGradKernels, ShardsShareTheSumsOfAllRows) {
  for (const int shards : {2, 4}) {
    const NormData data(1032, 12, DType::f32);
    const Saved saved(data);
    const Outputs whole = run_backward(data, saved, {.tail = NormTail::relu});
    ShardGradient got{data, saved, data.n() / shards, shards, std::vector<double>(2 * data.c * shards), {}, {}, {}};
    std::vector<double> dscale(data.c), dbias(data.c);
    for (int shard = 0; shard < shards; ++shard) {
      got.run(shard, true);
      for (std::size_t k = 0; k < data.c; ++k) {
        dscale[k] += double{got.dscale[k]};
        dbias[k] += double{got.dbias[k]};
      }
    }
    for (int shard = 0; shard < shards; ++shard) got.run(shard, false);
    const std::vector<float> dx = testing::decode(whole.dx, DType::f32);
    for (std::size_t i = 0; i < dx.size(); ++i) ASSERT_NEAR(got.dx[i], dx[i], 2e-5) << i;
    for (std::size_t k = 0; k < data.c; ++k) {
      EXPECT_NEAR(dscale[k], whole.dscale[k], 1e-3) << k;
      EXPECT_NEAR(dbias[k], whole.dbias[k], 1e-3) << k;
    }
  }
}

TEST_F(NormGradKernels, AgreesWithDoubles) {
  for (const DType dtype : kFloatTypes) {
    for (const auto& [rows, c] : testing::kNormShapes) {
      for (const NormTail tail : kTails) {
        for (const bool second : {false, true}) {
          for (const bool keeps : {false, true}) {
            Wish wish;
            wish.tail = tail;
            wish.second = second;
            wish.keeps = keeps;
            check_backward(rows, c, dtype, wish);
          }
        }
      }
    }
  }
}

/// Every block takes several row tiles; several column tiles.
TEST_F(NormGradKernels, LargeTensors) {
  Wish wish;
  wish.tail = NormTail::relu;
  check_backward(40009, 64, DType::bf16, wish);
  wish.tail = NormTail::add_relu;
  wish.second = wish.keeps = true;
  check_backward(2503, 2048, DType::bf16, wish);
  check_backward(70001, 12, DType::f32, wish);
  check_backward(150001, 7, DType::f16, wish);
}

TEST_F(NormGradKernels, UnalignedTensors) {
  for (const DType dtype : kFloatTypes) {
    Wish wish;
    wish.tail = NormTail::add_relu;
    wish.keeps = true;
    wish.shift = 1;
    check_backward(53, 16, dtype, wish);
  }
}

TEST_F(NormGradKernels, OutputsMayOverwriteInputs) {
  for (const DType dtype : kFloatTypes) {
    for (const std::size_t c : {7, 64}) {
      for (const NormTail tail : kTails) {
        Wish over_x, over_dy, kept;
        over_x.tail = over_dy.tail = kept.tail = tail;
        over_x.dx_over_x = over_dy.dx_over_dy = true;
        check_backward(1009, c, dtype, over_x);
        check_backward(1009, c, dtype, over_dy);
        kept.keeps = kept.dz_over_dy = kept.second = kept.dx_over_x = true;
        check_backward(1009, c, dtype, kept);
      }
    }
  }
}

/// A gradient flows exactly where forward stored a positive number, also where it rounded a small one to zero.
TEST_F(NormGradKernels, FindsTheSignsOfForward) {
  for (const DType dtype : kFloatTypes) {
    for (const std::size_t c : {5, 16}) {
      NormData data(2003, c, dtype);
      data.scale[1] = 3e-8f;
      data.bias[1] = 0.0f;
      std::fill(data.dy.begin(), data.dy.end(), 1.0f);
      DeviceTensor x(data.x, dtype), y(data.count(), dtype), dy(data.dy, dtype), dx(data.count(), dtype);
      DeviceTensor dz(data.count(), dtype);
      DeviceArray<float> scale(data.scale), bias(data.bias), mean(c), var_unbiased(c), var(c), dscale(c), dbias(c);
      DeviceArray<std::byte> workspace(static_cast<std::size_t>(norm_workspace_bytes(data.n(), data.channels())));
      launch(NormForward{x.data(), scale.data(), bias.data(), nullptr, y.data(), mean.data(), var_unbiased.data(),
                         var.data(), nullptr, workspace.data(), data.n(), data.channels(), data.eps, NormTail::relu,
                         dtype},
             nullptr);
      launch(NormBackward{x.data(), dy.data(), nullptr, scale.data(), bias.data(), mean.data(), var.data(), nullptr,
                          dx.data(), dz.data(), dscale.data(), dbias.data(), workspace.data(), data.n(),
                          data.channels(), data.eps, NormTail::relu, dtype},
             nullptr);
      synchronize();
      const std::vector<float> values = y.get(), signs = dz.get();
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < values.size(); ++i) wrong += (values[i] > 0 ? 1.0f : 0.0f) != signs[i];
      EXPECT_EQ(wrong, 0u) << data.str();
    }
  }
}

}  // namespace
}  // namespace renai::cuda
