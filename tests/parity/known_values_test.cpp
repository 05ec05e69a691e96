// Small results worked out by hand, for every backend: the reference itself must be right too.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "../../src/backend/dropout_key.hpp"
#include "op_harness.hpp"
#include "renai/base/error.hpp"
#include "under_test.hpp"

namespace renai::test {
namespace {

class KnownValues : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      backend_ = make_backend_under_test();
    } catch (const BackendError& error) {
      GTEST_SKIP() << error.what();
    }
  }

  TensorId tensor(const std::string& name, const Shape& shape) {
    return graph_.add_tensor(name, TensorRole::activation, shape);
  }

  OpHarness& build(std::int64_t rows, const SlotLayout& slot) {
    harness_ = std::make_unique<OpHarness>(graph_, *backend_, ShapeId{rows, 1, 1, 1}, slot, make_device_under_test());
    harness_->poison();
    return *harness_;
  }
  OpHarness& build(std::int64_t rows) { return build(rows, SlotLayout::make(rows, 1, 1, 1)); }

  std::vector<float> pooled(OpKind op, const PoolParams& params, const Shape& x_shape, const Shape& y_shape,
                            std::span<const float> values) {
    const TensorId x = tensor("x", x_shape), y = tensor("y", y_shape);
    graph_.add_compute(op, Pass::forward, params, {x}, {y});
    OpHarness& harness = build(1);
    harness.set(x, values);
    harness.run();
    return harness.get(y);
  }

  OpGraph graph_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<OpHarness> harness_;
};

void expect_near(std::span<const float> got, std::span<const double> wanted, double bound = 1e-6) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(double{got[i]}, wanted[i], bound) << "element " << i;
}

/// Cross-correlation, not convolution: the kernel is not mirrored. Two channels in, stride 2, padding 1.
TEST_F(KnownValues, Conv2dIsACrossCorrelation) {
  Conv2dParams params;
  params.out_channels = 1;
  params.window = {2, 2, 2, 2, 1, 1, 1, 1};
  params.bias = true;
  const TensorId x = tensor("x", {1, 3, 3, 2}), y = tensor("y", {1, 2, 2, 1});
  const ParamInfo w = graph_.param(graph_.add_param("w", ParamKind::conv_weight, {1, 2, 2, 2}));
  const ParamInfo b = graph_.param(graph_.add_param("b", ParamKind::bias, Shape{1}));
  graph_.add_compute(OpKind::conv2d, Pass::forward, params, {x, w.weight, b.weight}, {y});
  OpHarness& harness = build(1);
  std::vector<float> pixels;  // Channel 0: 1..9 by row, channel 1: ten times that.
  for (int i = 1; i <= 9; ++i) {
    pixels.push_back(static_cast<float>(i));
    pixels.push_back(static_cast<float>(10 * i));
  }
  harness.set(x, pixels);
  harness.set(w.weight, std::vector<float>{1, 0.1f, 2, 0.2f, 3, 0.3f, 4, 0.4f});
  harness.set(b.weight, std::vector<float>{0.5f});
  harness.run();
  // Each tap counts twice: w0 * v + w1 * 10 v = 2 w0 v.
  expect_near(harness.get(y),
              std::array<double, 4>{2 * 4 * 1 + 0.5, 2 * (3 * 2 + 4 * 3) + 0.5, 2 * (2 * 4 + 4 * 7) + 0.5,
                                    2 * (1 * 5 + 2 * 6 + 3 * 8 + 4 * 9) + 0.5},
              1e-4);
}

TEST_F(KnownValues, GroupsSeparateChannels) {
  Conv2dParams params;
  params.out_channels = 4;
  params.groups = 2;
  const TensorId x = tensor("x", {1, 1, 1, 4}), y = tensor("y", {1, 1, 1, 4});
  const ParamInfo w = graph_.param(graph_.add_param("w", ParamKind::conv_weight, {4, 1, 1, 2}));
  graph_.add_compute(OpKind::conv2d, Pass::forward, params, {x, w.weight}, {y});
  OpHarness& harness = build(1);
  harness.set(x, std::vector<float>{1, 10, 100, 1000});
  harness.set(w.weight, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
  harness.run();
  expect_near(harness.get(y), std::array<double, 4>{21, 43, 6500, 8700}, 1e-3);
}

TEST_F(KnownValues, LinearReadsFeaturesInHwcOrder) {
  const TensorId x = tensor("x", {1, 1, 2, 2}), y = tensor("y", {1, 1});
  const ParamInfo w = graph_.param(graph_.add_param("w", ParamKind::linear_weight, {1, 4}));
  graph_.add_compute(OpKind::linear, Pass::forward, LinearParams{1, false}, {x, w.weight}, {y});
  OpHarness& harness = build(1);
  harness.set(x, std::vector<float>{1, 2, 3, 4});
  harness.set(w.weight, std::vector<float>{1, 10, 100, 1000});
  harness.run();
  expect_near(harness.get(y), std::array<double, 1>{4321});
}

/// Alone, and behind a linear layer, where backends take both in one kernel: what has overflowed must be seen, as
/// PyTorch's relu shows it.
TEST_F(KnownValues, ReluKeepsWhatIsNoNumber) {
  const float none = std::numeric_limits<float>::quiet_NaN();
  for (const bool linear : {false, true}) {
    for (const bool bias : {false, true}) {
      graph_ = OpGraph();
      const TensorId x = tensor("x", {2, 8}), y = tensor("y", {2, 8});
      TensorId sums = x;
      ParamInfo w;
      if (linear) {
        sums = tensor("sums", {2, 8});
        w = graph_.param(graph_.add_param("w", ParamKind::linear_weight, {8, 8}));
        std::vector<TensorId> inputs{x, w.weight};
        if (bias) inputs.push_back(graph_.param(graph_.add_param("b", ParamKind::bias, Shape{8})).weight);
        graph_.add_compute(OpKind::linear, Pass::forward, LinearParams{8, bias}, inputs, {sums});
      }
      graph_.add_compute(OpKind::activation, Pass::forward, ActivationParams{}, {sums}, {y});
      OpHarness& harness = build(2);
      harness.clear();
      std::vector<float> values(16, -1.0f), identity(64, 0.0f);
      values[3] = none;
      values[12] = 2.0f;
      for (std::size_t i = 0; i < 8; ++i) identity[9 * i] = 1.0f;
      harness.set(x, values);
      if (linear) harness.set(w.weight, identity);
      harness.run();
      const std::vector<float> got = harness.get(y);
      for (std::size_t i = 0; i < got.size(); ++i) {
        SCOPED_TRACE(std::string(linear ? "linear, " : "alone, ") + (bias ? "bias, " : "") + std::to_string(i));
        // A product with NaN spoils its whole row.
        if (i == 3 || (linear && i < 8)) {
          EXPECT_TRUE(std::isnan(got[i])) << got[i];
        } else {
          EXPECT_EQ(got[i], i == 12 ? 2.0f : 0.0f);
        }
      }
    }
  }
}

/// Values 0, 2, 4, 6: mean 3, biased variance 5, unbiased 20/3.
TEST_F(KnownValues, BatchNormStatistics) {
  const BatchNormParams params{4.0f, 0.1f};
  const NormInfo norm = graph_.norm(graph_.add_norm("bn", 1, params));
  const ParamInfo scale = graph_.param(norm.scale_param), bias = graph_.param(norm.bias_param);
  const TensorId x = tensor("x", {4, 1}), y = tensor("y", {4, 1});
  const TensorId biased = graph_.add_tensor("biased", TensorRole::saved, Shape{1});
  graph_.add_compute(OpKind::batch_norm, Pass::forward, params, {x, scale.weight, bias.weight},
                     {y, norm.batch_mean, norm.batch_var, biased});
  OpHarness& harness = build(4);
  harness.set(x, std::vector<float>{0, 2, 4, 6});
  harness.set(scale.weight, std::vector<float>{2});
  harness.set(bias.weight, std::vector<float>{1});
  harness.run();
  expect_near(harness.get(norm.batch_mean), std::array<double, 1>{3});
  expect_near(harness.get(norm.batch_var), std::array<double, 1>{20.0 / 3});
  // 2 * (x - 3) / sqrt(5 + 4) + 1.
  expect_near(harness.get(y), std::array<double, 4>{-1, 1.0 / 3, 5.0 / 3, 3});
}

TEST_F(KnownValues, MaxPoolGivesTheGradientToTheFirstMaximum) {
  PoolParams params;
  params.window = {2, 2, 1, 1, 0, 0, 1, 1};
  const TensorId x = tensor("x", {1, 2, 3, 1}), y = tensor("y", {1, 1, 2, 1});
  const TensorId dy = graph_.add_tensor("dy", TensorRole::activation_grad, {1, 1, 2, 1});
  const TensorId dx = graph_.add_tensor("dx", TensorRole::activation_grad, {1, 2, 3, 1});
  graph_.add_compute(OpKind::max_pool, Pass::forward, params, {x}, {y});
  graph_.add_compute(OpKind::max_pool, Pass::backward, params, {x, dy}, {dx});
  OpHarness& harness = build(1);
  harness.set(x, std::vector<float>{1, 5, 5, 5, 5, 0});
  harness.set(dy, std::vector<float>{3, 4});
  harness.run();
  EXPECT_EQ(harness.get(y), (std::vector<float>{5, 5}));
  EXPECT_EQ(harness.get(dx), (std::vector<float>{0, 7, 0, 0, 0, 0}));
}

TEST_F(KnownValues, MaxPoolPaddingNeverWins) {
  PoolParams params;
  params.window = {2, 2, 2, 2, 1, 1, 1, 1};
  const std::vector<float> y =
      pooled(OpKind::max_pool, params, {1, 2, 2, 1}, {1, 2, 2, 1}, std::vector<float>{-1, -2, -3, -4});
  EXPECT_EQ(y, (std::vector<float>{-1, -2, -3, -4}));
}

/// 3 x 3 windows with stride 2 over 2 x 2 values 1..4 with padding 1: every window has four padded or real rows.
TEST_F(KnownValues, AveragePoolWithPadding) {
  PoolParams params;
  params.window = {3, 3, 2, 2, 1, 1, 1, 1};
  const std::vector<float> values{1, 2, 3, 4};
  expect_near(pooled(OpKind::avg_pool, params, {1, 2, 2, 1}, {1, 1, 1, 1}, values), std::array<double, 1>{10.0 / 9});
  graph_ = OpGraph();
  params.count_include_pad = false;
  expect_near(pooled(OpKind::avg_pool, params, {1, 2, 2, 1}, {1, 1, 1, 1}, values), std::array<double, 1>{2.5});
}

/// 3 values, window 2, stride 2, ceil: the last window hangs over the input and averages what is there.
TEST_F(KnownValues, AveragePoolInCeilMode) {
  for (const bool tall : {false, true}) {
    graph_ = OpGraph();
    PoolParams params;
    params.window = tall ? WindowParams{2, 1, 2, 1, 0, 0, 1, 1} : WindowParams{1, 2, 1, 2, 0, 0, 1, 1};
    params.ceil_mode = true;
    const Shape x = tall ? Shape{1, 3, 1, 1} : Shape{1, 1, 3, 1}, y = tall ? Shape{1, 2, 1, 1} : Shape{1, 1, 2, 1};
    expect_near(pooled(OpKind::avg_pool, params, x, y, std::vector<float>{1, 2, 7}), std::array<double, 2>{1.5, 7});
  }
}

TEST_F(KnownValues, AddAndConcat) {
  const TensorId a = tensor("a", {1, 1, 2, 1}), b = tensor("b", {1, 1, 2, 2}), sum = tensor("sum", {1, 1, 2, 1});
  const TensorId joined = tensor("joined", {1, 1, 2, 3});
  graph_.add_compute(OpKind::add, Pass::forward, NoParams{}, {a, a}, {sum});
  graph_.add_compute(OpKind::concat, Pass::forward, NoParams{}, {b, sum}, {joined});
  OpHarness& harness = build(1);
  harness.set(a, std::vector<float>{1, 2});
  harness.set(b, std::vector<float>{10, 20, 30, 40});
  harness.run();
  EXPECT_EQ(harness.get(joined), (std::vector<float>{10, 20, 2, 30, 40, 4}));
}

/// Which random number decides about which element is the same in every backend and version.
TEST_F(KnownValues, DropoutFollowsItsKey) {
  constexpr float kP = 0.375f;
  constexpr std::uint32_t kLayer = 11;
  graph_.add_input_side(3);
  const TensorId x = tensor("x", {3, 7}), y = tensor("y", {3, 7});
  graph_.add_compute(OpKind::dropout, Pass::forward, DropoutParams{kP, kLayer}, {x, graph_.parts().control}, {y});
  OpHarness& harness = build(3);
  ControlBlock control;
  control.seed = 0xFEDCBA9876543210ull;
  control.step = 123456;
  control.shard = 5;
  harness.set_control(control);
  harness.set(x, std::vector<float>(21, 5.0f));
  harness.run();
  const std::vector<float> got = harness.get(y);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const PhiloxBlock words = dropout_block(control, kLayer, static_cast<std::int64_t>(i / 4));
    EXPECT_EQ(got[i], uniform01(words[i % 4]) < kP ? 0.0f : 5.0f * (1.0f / (1.0f - kP))) << "element " << i;
  }
}

TEST_F(KnownValues, Activations) {
  struct Case {
    Activation kind;
    std::array<double, 3> at;  ///< At -1, 0.5 and 7.
  };
  // Values of the closed forms, to six digits.
  for (const Case& c :
       {Case{Activation::relu, {0, 0.5, 7}}, Case{Activation::leaky_relu, {-0.25, 0.5, 7}},
        Case{Activation::relu6, {0, 0.5, 6}}, Case{Activation::silu, {-0.268941, 0.311230, 6.993622}},
        Case{Activation::hard_swish, {-1.0 / 3, 0.291667, 7}}, Case{Activation::gelu, {-0.158655, 0.345731, 7}},
        Case{Activation::sigmoid, {0.268941, 0.622459, 0.999089}},
        Case{Activation::tanh, {-0.761594, 0.462117, 0.999998}}}) {
    graph_ = OpGraph();
    const TensorId x = tensor("x", {1, 4}), y = tensor("y", {1, 4});
    graph_.add_compute(OpKind::activation, Pass::forward, ActivationParams{c.kind, 0.25f}, {x}, {y});
    OpHarness& harness = build(1);
    harness.set(x, std::vector<float>{-1, 0.5f, 7, std::numeric_limits<float>::quiet_NaN()});
    harness.run();
    SCOPED_TRACE(activation_name(c.kind));
    const std::vector<float> got = harness.get(y);
    expect_near(std::span(got).first(3), c.at, 2e-6);
    EXPECT_TRUE(std::isnan(got[3])) << got[3];
  }
}

class KnownLoss : public KnownValues {
 protected:
  std::vector<float> metrics(const std::vector<std::vector<float>>& logits, const std::vector<std::int32_t>& labels,
                             const std::vector<float>& weights, float smoothing = 0) {
    const auto rows = static_cast<std::int64_t>(logits.size()), classes = static_cast<std::int64_t>(logits[0].size());
    graph_ = OpGraph();
    graph_.add_input_side(rows);
    const TensorId z = tensor("logits", {rows, classes});
    dlogits_ = graph_.add_tensor("dlogits", TensorRole::activation_grad, {rows, classes});
    const std::vector<TensorId> inputs{z, graph_.labels, graph_.mix_labels, graph_.mix_lambda, graph_.sample_weights};
    graph_.add_compute(OpKind::softmax_cross_entropy, Pass::forward, LossParams{smoothing}, inputs,
                       {graph_.parts().metrics});
    graph_.add_compute(OpKind::softmax_cross_entropy, Pass::backward, LossParams{smoothing}, inputs, {dlogits_});
    OpHarness& harness = build(rows);
    std::vector<float> flat;
    for (const auto& row : logits) flat.insert(flat.end(), row.begin(), row.end());
    harness.set(z, flat);
    harness.set_ints(graph_.labels, labels);
    harness.set_ints(graph_.mix_labels, labels);
    harness.set(graph_.mix_lambda, std::vector<float>(labels.size(), 1.0f));
    harness.set(graph_.sample_weights, weights);
    harness.run();
    return harness.get(graph_.parts().metrics);
  }
  TensorId dlogits_ = kNoTensor;
};

TEST_F(KnownLoss, UniformLogitsCostTheLogOfTheClasses) {
  const auto m = metrics({{2, 2, 2, 2}, {0, 0, 0, 0}}, {1, 0}, {1, 1});
  EXPECT_NEAR(m[0], 2 * std::log(4.0), 1e-6);
  EXPECT_EQ(m[1], 2.0f);
  EXPECT_EQ(m[2], 1.0f) << "of equal logits the lowest class is the answer";
  EXPECT_EQ(m[3], 2.0f);
  expect_near(harness_->get(dlogits_), std::array<double, 8>{0.125, -0.375, 0.125, 0.125, -0.375, 0.125, 0.125, 0.125});
}

TEST_F(KnownLoss, PaddingRowsCountNothing) {
  const auto m = metrics({{0, std::log(3.0f)}, {50, -50}}, {1, 1}, {1, 0});
  EXPECT_NEAR(m[0], std::log(4.0 / 3), 1e-6);
  EXPECT_EQ(m[1], 1.0f);
  EXPECT_EQ(m[2], 1.0f);
  expect_near(harness_->get(dlogits_), std::array<double, 4>{0.125, -0.125, 0, 0});
}

/// A drill's infinite factor reaches the gradient and leaves the loss.
TEST_F(KnownLoss, FactorOfTheControlBlock) {
  metrics({{2, 2, 2, 2}, {0, 0, 0, 0}}, {1, 0}, {1, 1});
  ControlBlock control;
  control.loss_factor = std::numeric_limits<float>::infinity();
  harness_->set_control(control);
  harness_->run();
  EXPECT_NEAR(harness_->get(graph_.parts().metrics)[0], 2 * std::log(4.0), 1e-6);
  for (const float value : harness_->get(dlogits_)) EXPECT_TRUE(std::isinf(value)) << value;
}

TEST_F(KnownLoss, TopFiveByRank) {
  const std::vector<float> falling{7, 6, 5, 4, 3, 2, 1};
  const auto m = metrics({falling, falling, falling, {1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1}}, {0, 4, 5, 4, 5},
                         {1, 1, 1, 1, 1});
  EXPECT_EQ(m[2], 1.0f);
  EXPECT_EQ(m[3], 3.0f);
}

/// Logits 0 and log 3: probabilities 1/4 and 3/4; targets 0.05 and 0.95 with smoothing 0.1.
TEST_F(KnownLoss, Smoothing) {
  const auto m = metrics({{0, std::log(3.0f)}}, {1}, {1}, 0.1f);
  EXPECT_NEAR(m[0], 0.05 * std::log(4.0) + 0.95 * std::log(4.0 / 3), 1e-6);
  expect_near(harness_->get(dlogits_), std::array<double, 2>{0.2, -0.2});
}

TEST_F(KnownLoss, LogitsThatAreNoNumbersAreNoHit) {
  const float nan = std::nanf("");
  const auto m = metrics({{nan, nan, nan}}, {0}, {1});
  EXPECT_TRUE(std::isnan(m[0]));
  EXPECT_EQ(m[2], 0.0f);
}

class KnownInput : public KnownValues {
 protected:
  /// One gray image of 2 x 3 pixels 10 20 30 / 40 50 60 in a slot, normalised with mean 10 and deviation 10.
  std::vector<float> normalized(const SampleParams& sample, std::int64_t h, std::int64_t w) {
    graph_ = OpGraph();
    graph_.add_input_side(1);
    const TensorId x = tensor("x", {1, h, w, 1});
    graph_.add_compute(OpKind::normalize_input, Pass::forward, InputParams{{10, 0, 0, 0}, {10, 1, 1, 1}},
                       {graph_.parts().slot_a}, {x});
    const SlotLayout slot = SlotLayout::make(1, 2, 3, 1);
    OpHarness& harness = build(1, slot);
    std::byte* at = harness.bytes_of(graph_.parts().slot_a).data();
    const std::array<std::uint8_t, 6> pixels{10, 20, 30, 40, 50, 60};
    std::memcpy(at + slot.images_offset, pixels.data(), pixels.size());
    std::memcpy(at + slot.params_offset, &sample, sizeof sample);
    harness.run();
    return harness.get(x);
  }
  static SampleParams crop(std::int32_t y, std::int32_t x, std::int32_t h, std::int32_t w, std::int32_t flip = 0) {
    SampleParams sample;
    sample.crop_y = y;
    sample.crop_x = x;
    sample.crop_h = h;
    sample.crop_w = w;
    sample.flip = flip;
    return sample;
  }
};

TEST_F(KnownInput, WholeAndFlipped) {
  expect_near(normalized(crop(0, 0, 2, 3), 2, 3), std::array<double, 6>{0, 1, 2, 3, 4, 5});
  expect_near(normalized(crop(0, 0, 2, 3, 1), 2, 3), std::array<double, 6>{2, 1, 0, 5, 4, 3});
}

TEST_F(KnownInput, OutsideReadsPixelZero) {
  expect_near(normalized(crop(-1, 1, 2, 3), 2, 3), std::array<double, 6>{-1, -1, -1, 1, 2, -1});
}

/// Half-pixel centres: 3 to 6 columns samples at -0.25 (clamped), 0.25, 0.75, 1.25, 1.75, 2.25 (clamped).
TEST_F(KnownInput, EnlargesBilinearly) {
  expect_near(normalized(crop(0, 0, 1, 3), 1, 6), std::array<double, 6>{0, 0.25, 0.75, 1.25, 1.75, 2});
}

/// 2 x 2 to one pixel: the mean of the four.
TEST_F(KnownInput, ShrinksBilinearly) { expect_near(normalized(crop(0, 0, 2, 2), 1, 1), std::array<double, 1>{2}); }

class KnownMix : public KnownValues {
 protected:
  /// Two gray images of 2 x 3 pixels, 10 20 30 / 40 50 60 and 110 ... 160, normalised with mean 10 and deviation 10:
  /// the values of both rows.
  std::vector<float> mixed(const std::array<SampleParams, 2>& samples) {
    graph_ = OpGraph();
    graph_.add_input_side(2);
    const TensorId x = tensor("x", {2, 2, 3, 1});
    graph_.add_compute(OpKind::normalize_input, Pass::forward, InputParams{{10, 0, 0, 0}, {10, 1, 1, 1}},
                       {graph_.parts().slot_a}, {x});
    const SlotLayout slot = SlotLayout::make(2, 2, 3, 1);
    OpHarness& harness = build(2, slot);
    std::byte* at = harness.bytes_of(graph_.parts().slot_a).data();
    const std::array<std::uint8_t, 12> pixels{10, 20, 30, 40, 50, 60, 110, 120, 130, 140, 150, 160};
    std::memcpy(at + slot.images_offset, pixels.data(), pixels.size());
    std::memcpy(at + slot.params_offset, samples.data(), sizeof samples);
    harness.run();
    return harness.get(x);
  }
  static SampleParams whole(std::int32_t partner, float lambda) {
    SampleParams sample;
    sample.crop_h = 2;
    sample.crop_w = 3;
    sample.mix_partner = partner;
    sample.mix_lambda = lambda;
    return sample;
  }
};

TEST_F(KnownMix, MixupBlendsBothImages) {
  expect_near(mixed({whole(1, 0.75f), whole(0, 0.75f)}),
              std::array<double, 12>{2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 7.5, 8.5, 9.5, 10.5, 11.5, 12.5});
  expect_near(mixed({whole(1, 0.25f), whole(-1, 1)}),
              std::array<double, 12>{7.5, 8.5, 9.5, 10.5, 11.5, 12.5, 10, 11, 12, 13, 14, 15});
}

/// The partner's own flip counts, the box lies in the pixels that the network sees.
TEST_F(KnownMix, CutmixPastesThePartnersBox) {
  std::array<SampleParams, 2> samples{whole(1, 0.5f), whole(-1, 1)};
  samples[0].mix_box = {0, 1, 2, 2};
  samples[1].flip = 1;
  expect_near(mixed(samples), std::array<double, 12>{0, 11, 10, 3, 14, 13, 12, 11, 10, 15, 14, 13});
}

/// Erased pixels are 0 after normalisation, and a sample is erased before it is mixed.
TEST_F(KnownMix, ErasingComesBeforeMixing) {
  std::array<SampleParams, 2> samples{whole(1, 0.5f), whole(0, 0.5f)};
  samples[0].erase_box = {0, 0, 1, 2};
  samples[1].erase_box = {1, 2, 1, 1};
  const std::array<double, 12> wanted{5, 5.5, 7, 8, 9, 2.5, 5, 5.5, 7, 8, 9, 2.5};
  expect_near(mixed(samples), wanted);
  samples[1].mix_box = {0, 1, 1, 1};  // Of image 0, where it is erased.
  expect_near(mixed(samples), std::array<double, 12>{5, 5.5, 7, 8, 9, 2.5, 10, 0, 12, 13, 14, 0});
}

/// Two pixels of three channels: a map that exchanges, scales and shifts channels, its clamping, and the same mirrored.
TEST_F(KnownValues, ColoursAreMappedAndClampedBeforeTheyAreNormalised) {
  for (const std::int32_t flip : {0, 1}) {
    graph_ = OpGraph();
    graph_.add_input_side(1);
    const TensorId x = tensor("x", {1, 1, 2, 3});
    graph_.add_compute(OpKind::normalize_input, Pass::forward, InputParams{{10, 20, 30, 0}, {10, 10, 10, 1}},
                       {graph_.parts().slot_a}, {x});
    const SlotLayout slot = SlotLayout::make(1, 1, 2, 3);
    OpHarness& harness = build(1, slot);
    SampleParams sample;
    sample.crop_h = 1;
    sample.crop_w = 2;
    sample.flip = flip;
    sample.colour = 1;
    sample.colour_map = {0, 1, 0, 10, 2, 0, 0, -30, 0.5f, 0.5f, 0, 0};
    std::byte* at = harness.bytes_of(graph_.parts().slot_a).data();
    const std::array<std::uint8_t, 6> pixels{10, 20, 30, 200, 250, 0};
    std::memcpy(at + slot.images_offset, pixels.data(), pixels.size());
    std::memcpy(at + slot.params_offset, &sample, sizeof sample);
    harness.run();
    // 20 + 10, 20 - 30 -> 0, 15; 250 + 10 -> 255, 400 - 30 -> 255, 225.
    std::vector<double> wanted{2, -2, -1.5, 24.5, 23.5, 19.5};
    if (flip != 0) std::rotate(wanted.begin(), wanted.begin() + 3, wanted.end());
    expect_near(harness.get(x), wanted);
  }
}

}  // namespace
}  // namespace renai::test
