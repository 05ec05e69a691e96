// Softmax cross-entropy on the GPU against fp64 loops on the same rounded logits.

#include <cmath>
#include <limits>

#include "../../src/backend/cuda/kernels/loss.hpp"
#include "kernel_case.hpp"

namespace renai::cuda {
namespace {

using testing::DeviceArray;
using testing::same_bits;

struct Problem {
  std::size_t rows, classes;
  DType dtype;
  float smoothing, scale;
  std::vector<float> logits, lambda, weights;
  std::vector<std::int32_t> labels, mix_labels;

  Problem(std::mt19937& random, std::size_t n, std::size_t k, DType type, float smooth, float loss_scale)
      : rows(n), classes(k), dtype(type), smoothing(smooth), scale(loss_scale) {
    logits = testing::decode(testing::encode(testing::random_floats(random, n * k, -6, 6), type), type);
    lambda = testing::random_floats(random, n, 0, 1);
    for (std::size_t row = 0; row < n; ++row) {
      labels.push_back(static_cast<std::int32_t>(random() % k));
      mix_labels.push_back(row % 3 == 0 ? labels.back() : static_cast<std::int32_t>(random() % k));
      weights.push_back(row % 5 == 4 ? 0.0f : 0.25f * static_cast<float>(1 + random() % 4));
    }
  }

  double target(std::size_t row, std::size_t k) const {
    const double own = static_cast<std::size_t>(labels[row]) == k ? double{lambda[row]} : 0.0;
    const double other = static_cast<std::size_t>(mix_labels[row]) == k ? 1.0 - double{lambda[row]} : 0.0;
    return (1.0 - double{smoothing}) * (own + other) + double{smoothing} / static_cast<double>(classes);
  }
};

struct Wanted {
  double metrics[4] = {0, 0, 0, 0};
  std::vector<double> dlogits;
};

Wanted solve(const Problem& p) {
  Wanted wanted;
  for (std::size_t row = 0; row < p.rows; ++row) {
    const float* z = p.logits.data() + row * p.classes;
    const double top = *std::max_element(z, z + p.classes);
    double sum = 0, loss = 0;
    for (std::size_t k = 0; k < p.classes; ++k) sum += std::exp(double{z[k]} - top);
    const double log_sum = top + std::log(sum), w = p.weights[row];
    const auto label = static_cast<std::size_t>(p.labels[row]);
    int rank = 0;
    for (std::size_t k = 0; k < p.classes; ++k) {
      loss += p.target(row, k) * (log_sum - double{z[k]});
      if (z[k] > z[label] || (z[k] == z[label] && k < label)) ++rank;
      const double share = w / static_cast<double>(p.rows) * double{p.scale};
      wanted.dlogits.push_back(share * (std::exp(double{z[k]} - log_sum) - p.target(row, k)));
    }
    wanted.metrics[0] += w * loss;
    wanted.metrics[1] += w;
    wanted.metrics[2] += rank < 1 ? w : 0;
    wanted.metrics[3] += rank < 5 ? w : 0;
  }
  return wanted;
}

/// The problem in device memory.
class Bound {
 public:
  explicit Bound(const Problem& p)
      : logits_(testing::encode(p.logits, p.dtype)),
        labels_(p.labels),
        mix_labels_(p.mix_labels),
        lambda_(p.lambda),
        weights_(p.weights),
        metrics(16),
        dlogits(logits_.size()),
        workspace(static_cast<std::size_t>(loss_workspace_bytes(static_cast<std::int64_t>(p.rows)))),
        scale_(std::vector<float>{p.scale}) {
    args.logits = logits_.data();
    args.labels = labels_.data();
    args.mix_labels = mix_labels_.data();
    args.mix_lambda = lambda_.data();
    args.weights = weights_.data();
    args.metrics = metrics.data();
    args.dlogits = dlogits.data();
    args.loss_scale = p.scale != 1.0f ? scale_.data() : nullptr;
    args.workspace = workspace.data();
    args.rows = static_cast<std::int64_t>(p.rows);
    args.classes = static_cast<std::int64_t>(p.classes);
    args.smoothing = p.smoothing;
    args.dtype = p.dtype;
  }
  void poison() {
    metrics.poison();
    dlogits.poison();
    workspace.poison();
  }
  bool fences_hold() const { return metrics.fences_hold() && dlogits.fences_hold() && workspace.fences_hold(); }

 private:
  DeviceArray<std::byte> logits_;
  DeviceArray<std::int32_t> labels_, mix_labels_;
  DeviceArray<float> lambda_, weights_;

 public:
  DeviceArray<float> metrics;
  DeviceArray<std::byte> dlogits, workspace;
  SoftmaxCrossEntropy args;

 private:
  DeviceArray<float> scale_;
};

class LossKernel : public testing::KernelTest {
 protected:
  void check(const Problem& p) {
    const Wanted wanted = solve(p);
    Bound bound(p);
    launch(bound.args, nullptr);
    synchronize();
    const std::vector<float> metrics = bound.metrics.get();
    const std::vector<std::byte> bytes = bound.dlogits.get();
    const std::vector<float> dlogits = testing::decode(bytes, p.dtype);
    ASSERT_NEAR(metrics[0], wanted.metrics[0], 1e-5 * wanted.metrics[1] + 1e-5 * wanted.metrics[0]);
    for (std::size_t i = 1; i < 4; ++i) ASSERT_EQ(metrics[i], static_cast<float>(wanted.metrics[i])) << i;
    for (std::size_t i = 4; i < 16; ++i) ASSERT_EQ(metrics[i], 0.0f) << i;
    for (std::size_t i = 0; i < dlogits.size(); ++i) {
      const double share = double{p.weights[i / p.classes]} / static_cast<double>(p.rows) * double{p.scale};
      const double rounding = testing::unit_of(p.dtype) * std::abs(wanted.dlogits[i]) + testing::tiny_of(p.dtype);
      ASSERT_NEAR(dlogits[i], wanted.dlogits[i], rounding + 2e-6 * share) << "element " << i;
    }
    ASSERT_TRUE(bound.fences_hold());
    bound.poison();
    launch(bound.args, nullptr);
    synchronize();
    ASSERT_TRUE(same_bits(bound.metrics.get(), metrics));
    ASSERT_TRUE(same_bits(bound.dlogits.get(), bytes));
  }
  std::mt19937 random_{7};
};

TEST_F(LossKernel, AgreesWithTheDefinition) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const std::size_t classes : {1, 2, 10, 32, 33, 256, 257, 1000}) {
      for (const std::size_t rows : {1, 3, 257}) {
        for (const float smoothing : {0.0f, 0.1f}) {
          SCOPED_TRACE(std::string(dtype_name(dtype)) + " " + std::to_string(rows) + "x" + std::to_string(classes));
          ASSERT_NO_FATAL_FAILURE(check(Problem(random_, rows, classes, dtype, smoothing, 1.0f)));
          ASSERT_NO_FATAL_FAILURE(check(Problem(random_, rows, classes, dtype, smoothing, 1024.0f)));
        }
      }
    }
  }
}

TEST_F(LossKernel, MetricsAloneGradientAloneAndInPlace) {
  const Problem p(random_, 37, 1000, DType::bf16, 0.1f, 1.0f);
  Bound both(p), metrics_only(p), gradient_only(p), in_place(p);
  metrics_only.args.dlogits = nullptr;
  gradient_only.args.metrics = nullptr;
  gradient_only.args.workspace = nullptr;
  DeviceArray<std::byte> logits(testing::encode(p.logits, p.dtype));
  in_place.args.logits = in_place.args.dlogits = logits.data();
  for (Bound* bound : {&both, &metrics_only, &gradient_only, &in_place}) launch(bound->args, nullptr);
  synchronize();
  EXPECT_TRUE(same_bits(metrics_only.metrics.get(), both.metrics.get()));
  EXPECT_TRUE(same_bits(gradient_only.dlogits.get(), both.dlogits.get()));
  EXPECT_TRUE(same_bits(logits.get(), both.dlogits.get()));
  EXPECT_TRUE(same_bits(in_place.metrics.get(), both.metrics.get()));
  EXPECT_EQ(metrics_only.dlogits.get()[0], std::byte{0xFF}) << "not wanted, not written";
}

TEST_F(LossKernel, WhatIsWrongIsNotANumber) {
  for (const std::int32_t label : {-1, 10, std::numeric_limits<std::int32_t>::max()}) {
    for (const bool mix : {false, true}) {
      Problem p(random_, 5, 10, DType::f32, 0.0f, 1.0f);
      p.weights.assign(5, 1.0f);
      (mix ? p.mix_labels : p.labels)[3] = label;
      Bound bound(p);
      launch(bound.args, nullptr);
      synchronize();
      EXPECT_TRUE(std::isnan(bound.metrics.get()[0])) << label;
      EXPECT_TRUE(std::isnan(bound.metrics.get()[1])) << label;
    }
  }
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    Problem p(random_, 5, 10, DType::f16, 0.0f, 1.0f);
    p.weights.assign(5, 1.0f);
    p.logits[2 * 10 + 7] = bad;
    Bound bound(p);
    launch(bound.args, nullptr);
    synchronize();
    EXPECT_FALSE(std::isfinite(bound.metrics.get()[0])) << bad;
  }
}

/// Equal logits rank in the order of the classes.
TEST_F(LossKernel, TiesGoToTheLowerClass) {
  Problem p(random_, 12, 12, DType::f32, 0.0f, 1.0f);
  p.logits.assign(12 * 12, 0.5f);
  p.weights.assign(12, 1.0f);
  for (std::size_t row = 0; row < 12; ++row) p.labels[row] = static_cast<std::int32_t>(row);
  Bound bound(p);
  launch(bound.args, nullptr);
  synchronize();
  EXPECT_EQ(bound.metrics.get()[2], 1.0f);
  EXPECT_EQ(bound.metrics.get()[3], 5.0f);
}

}  // namespace
}  // namespace renai::cuda
