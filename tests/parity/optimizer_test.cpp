// Adam, AdamW and LARS of a backend against their published rules in fp64.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "op_harness.hpp"
#include "renai/base/error.hpp"
#include "renai/graph/region_name.hpp"
#include "under_test.hpp"

namespace renai::test {
namespace {

namespace names = region_name;

constexpr std::int64_t kRows = 3;
constexpr int kSteps = 4;
using Doubles = std::vector<double>;

Doubles as_doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

double norm_of(const Doubles& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

/// A graph of the nodes that each test adds, with two adaptive or decaying weights and a bias.
class OptimizerParity : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      backend_ = make_backend_under_test();
    } catch (const BackendError& error) {
      GTEST_SKIP() << error.what();
    }
  }

  void make(OptimizerKind kind) {
    graph_.parts().options.optimizer = kind;
    graph_.add_input_side(kRows);
    const bool lars = kind == OptimizerKind::lars;
    const auto add = [&](const char* name, ParamKind param_kind, const Shape& shape, LarsGroup group) {
      const std::int32_t index = graph_.add_param(name, param_kind, shape, param_kind != ParamKind::bias);
      graph_.parts().params[static_cast<std::size_t>(index)].lars = lars ? group : LarsGroup::none;
      return graph_.param(index);
    };
    // More than two blocks of a norm, with a tail; and one block.
    weight_ = add("w", ParamKind::conv_weight, {9, 5, 5, 41}, LarsGroup::conv);
    other_ = add("v", ParamKind::conv_weight, {3, 3, 3, 5}, LarsGroup::conv);
    bias_ = add("b", ParamKind::bias, Shape{7}, LarsGroup::exempt);
  }

  OpHarness& build(const std::vector<std::pair<RangeOp, RangeParams>>& nodes, const std::string& segment) {
    for (const auto& [op, params] : nodes) {
      const std::string grad = "grad." + segment, weights = "weights." + segment, momentum = "momentum." + segment,
                        second = "second_moment." + segment;
      if (op == RangeOp::check_and_scale) {
        graph_.add_range(op, params, {"grad", "metrics"}, {"grad", "scalars"});
      } else if (op == RangeOp::adam_corrections) {
        graph_.add_range(op, params, {"scalars"}, {"scalars"});
      } else if (op == RangeOp::adam) {
        graph_.add_range(op, params, {grad, weights, momentum, second, "scalars"}, {weights, momentum, second});
      } else {
        graph_.add_range(op, params, {grad, weights, momentum, "scalars"}, {weights, momentum});
      }
    }
    harness_ = std::make_unique<OpHarness>(graph_, *backend_, ShapeId{kRows, 1, 1, 1}, SlotLayout::make(kRows, 2, 2, 1),
                                           make_device_under_test());
    harness_->clear();
    return *harness_;
  }

  std::vector<float> fill(TensorId id, float low = -1, float high = 1) {
    std::uniform_real_distribution<float> uniform(low, high);
    std::vector<float> values(static_cast<std::size_t>(harness_->plan().tensor(id).shape.elems()));
    for (float& value : values) value = uniform(random_);
    harness_->set(id, values);
    return values;
  }

  void set_rate(int step) {
    control_.lr = 0.05f / static_cast<float>(step + 1);
    harness_->set_control(control_);
  }

  void expect_near(TensorId id, const Doubles& wanted, double tolerance) {
    const std::vector<float> got = harness_->get(id);
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(double{got[i]}, wanted[i], tolerance) << i;
  }

  float& scalar(int index) { return harness_->region_floats(names::kScalars)[static_cast<std::size_t>(index)]; }

  ControlBlock control_;
  std::mt19937_64 random_{std::random_device{}()};
  OpGraph graph_;
  ParamInfo weight_, other_, bias_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<OpHarness> harness_;
};

struct AdamState {
  Doubles w, m, v;
};

void adam_step(AdamState& state, const std::vector<float>& grad, const RangeParams& range, double lr, int count) {
  const bool decoupled = range.optimizer == OptimizerKind::adamw;
  const double decay = range.weight_decay, b1 = range.adam.beta1, b2 = range.adam.beta2;
  for (std::size_t i = 0; i < state.w.size(); ++i) {
    double& w = state.w[i];
    const double g = double{grad[i]} + (decoupled ? 0.0 : decay * w);
    if (decoupled) w *= 1 - lr * decay;
    state.m[i] = b1 * state.m[i] + (1 - b1) * g;
    state.v[i] = b2 * state.v[i] + (1 - b2) * g * g;
    const double m = state.m[i] / (1 - std::pow(b1, count)), v = state.v[i] / (1 - std::pow(b2, count));
    w -= lr * m / (std::sqrt(v) + double{range.adam.eps});
  }
}

class AdamParity : public OptimizerParity, public ::testing::WithParamInterface<OptimizerKind> {};

/// Steps with another rate each, one of them skipped in the middle: its gradient is not finite, and it does not count.
TEST_P(AdamParity, FollowsThePublishedRuleAndSkips) {
  RangeParams range;
  range.optimizer = GetParam();
  range.adam = {0.8, 0.99, 1e-3f};
  range.weight_decay = 0.25f;
  make(GetParam());
  OpHarness& harness = build({{RangeOp::check_and_scale, range}, {RangeOp::adam, range}}, "deep0.decay");
  AdamState state{as_doubles(fill(weight_.weight)), {}, {}};
  state.m.assign(state.w.size(), 0.0);
  state.v = state.m;
  const std::vector<float> bias = fill(bias_.weight);
  int count = 0;
  for (int step = 0; step < kSteps; ++step) {
    set_rate(step);
    std::vector<float> grad = fill(weight_.grad);
    const bool bad = step == 1;
    if (bad) grad[3] = std::numeric_limits<float>::infinity();
    harness.set(weight_.grad, grad);
    harness.run();
    if (!bad) adam_step(state, grad, range, double{control_.lr}, ++count);
    EXPECT_EQ(scalar(names::kScalarSkip), bad ? 1.0f : 0.0f);
    EXPECT_EQ(scalar(names::kScalarUpdates), static_cast<float>(count));
    expect_near(weight_.weight, state.w, 3e-6);
    expect_near(weight_.momentum, state.m, 1e-6);
    expect_near(weight_.second_moment, state.v, 1e-6);
  }
  EXPECT_EQ(harness.get(bias_.weight), bias) << "another segment";
}

/// A freeze group takes the corrections of its own count, which goes on by itself and not in a skipped step.
TEST_P(AdamParity, AFreezeGroupCountsItsOwnUpdates) {
  RangeParams range;
  range.optimizer = GetParam();
  range.adam = {0.8, 0.99, 1e-3f};
  make(GetParam());
  RangeParams own = range;
  own.freeze_group = 2;
  for (ParamInfo& param : graph_.parts().params) param.freeze_group = 2;
  OpHarness& harness = build(
      {{RangeOp::check_and_scale, range}, {RangeOp::adam_corrections, own}, {RangeOp::adam, own}}, "deep0.decay_g2");
  const int first = names::adam_scalars(2);
  scalar(names::kScalarUpdates) = 500.0f;
  scalar(first) = 3.0f;
  AdamState state{as_doubles(fill(weight_.weight)), {}, {}};
  state.m.assign(state.w.size(), 0.0);
  state.v = state.m;
  int count = 3;
  for (int step = 0; step < kSteps; ++step) {
    set_rate(step);
    std::vector<float> grad = fill(weight_.grad);
    const bool bad = step == 1;
    if (bad) grad[3] = std::numeric_limits<float>::infinity();
    harness.set(weight_.grad, grad);
    harness.run();
    if (!bad) adam_step(state, grad, range, double{control_.lr}, ++count);
    EXPECT_EQ(scalar(first), static_cast<float>(count));
    expect_near(weight_.weight, state.w, 3e-6);
  }
  EXPECT_EQ(scalar(names::kScalarUpdates), 500.0f + kSteps - 1);
  EXPECT_EQ(scalar(names::adam_scalars(1)), 0.0f) << "another group's";
}

/// The corrections are computed in fp64: 1 - beta2^n of a beta2 near 1 keeps all digits of a float.
TEST_P(AdamParity, CorrectionsKeepTheirDigits) {
  RangeParams range;
  range.optimizer = GetParam();
  range.adam = {0.9, 0.99999, 1e-8f};
  make(GetParam());
  build({{RangeOp::check_and_scale, range}}, "");
  set_rate(0);
  for (const float before : {0.0f, 1.0f, 6.0f, 1000.0f, 123456.0f}) {
    scalar(names::kScalarUpdates) = before;
    harness_->run();
    const double count = double{before} + 1;
    const double size = double{control_.lr} / (1 - std::pow(0.9, count)),
                 root = std::sqrt(1 - std::pow(0.99999, count));
    EXPECT_NEAR(scalar(names::kScalarAdamStepSize), size, 1e-7 * size) << before;
    EXPECT_NEAR(scalar(names::kScalarAdamCorrection), root, 1e-7 * root) << before;
  }
  scalar(names::kScalarUpdates) = 0x1p24f;
  harness_->run();
  EXPECT_EQ(scalar(names::kScalarUpdates), 0x1p24f) << "it stays where a float counts no further";
}

INSTANTIATE_TEST_SUITE_P(Kinds, AdamParity, ::testing::Values(OptimizerKind::adam, OptimizerKind::adamw),
                         [](const auto& kind) { return std::string(optimizer_name(kind.param)); });

/// Plain momentum, then Nesterov's.
class LarsParity : public OptimizerParity, public ::testing::WithParamInterface<bool> {
 protected:
  /// One step of one tensor by the published rule.
  static void step(Doubles& w, Doubles& buf, const std::vector<float>& grad, const RangeParams& range, double lr) {
    const double w_norm = norm_of(w), g_norm = norm_of(as_doubles(grad)), decay = range.weight_decay;
    const double local = w_norm == 0 || g_norm == 0
                             ? 1.0
                             : double{range.lars.eta} * w_norm / (g_norm + decay * w_norm + double{range.lars.eps});
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double u = lr * local * (double{grad[i]} + decay * w[i]), mu = range.momentum;
      buf[i] = mu * buf[i] + u;
      w[i] -= range.nesterov ? u + mu * buf[i] : buf[i];
    }
  }
};

TEST_P(LarsParity, EveryTensorHasItsOwnRate) {
  RangeParams range;
  range.optimizer = OptimizerKind::lars;
  range.lars = {0.5f, 1e-4f};
  range.momentum = 0.9f;
  range.weight_decay = 0.125f;
  range.nesterov = GetParam();
  make(OptimizerKind::lars);
  OpHarness& harness = build({{RangeOp::lars, range}}, "deep0.conv");
  Doubles w = as_doubles(fill(weight_.weight)), v = as_doubles(fill(other_.weight, -8, 8));
  Doubles w_buf(w.size()), v_buf(v.size());
  const std::vector<float> bias = fill(bias_.weight);
  fill(bias_.grad);
  for (int i = 0; i < kSteps; ++i) {
    set_rate(i);
    const std::vector<float> w_grad = fill(weight_.grad), v_grad = fill(other_.grad, -0.01f, 0.01f);
    harness.run();
    step(w, w_buf, w_grad, range, double{control_.lr});
    step(v, v_buf, v_grad, range, double{control_.lr});
    expect_near(weight_.weight, w, 2e-6);
    expect_near(other_.weight, v, 1e-5);
    expect_near(weight_.momentum, w_buf, 2e-6);
    expect_near(other_.momentum, v_buf, 1e-5);
  }
  EXPECT_EQ(harness.get(bias_.weight), bias) << "the exempt segment";
  scalar(names::kScalarSkip) = 1.0f;
  const std::vector<float> before = harness.get(weight_.weight), buffer = harness.get(weight_.momentum);
  harness.run();
  EXPECT_EQ(harness.get(weight_.weight), before) << "a skipped step changes nothing";
  EXPECT_EQ(harness.get(weight_.momentum), buffer);
}

/// Neither a tensor of zeros nor a gradient of zeros divides by zero, and the first can leave zero.
TEST_P(LarsParity, ZerosTakeThePlainRate) {
  RangeParams range;
  range.optimizer = OptimizerKind::lars;
  range.lars = {0.5f, 1e-8f};
  range.weight_decay = 0.25f;
  make(OptimizerKind::lars);
  OpHarness& harness = build({{RangeOp::lars, range}}, "deep0.conv");
  Doubles w(harness.get(weight_.weight).size()), v = as_doubles(fill(other_.weight));
  Doubles w_buf(w.size()), v_buf(v.size());
  set_rate(0);
  const std::vector<float> grad = fill(weight_.grad);
  harness.run();
  step(w, w_buf, grad, range, double{control_.lr});
  step(v, v_buf, std::vector<float>(v.size()), range, double{control_.lr});
  expect_near(weight_.weight, w, 1e-6);
  expect_near(other_.weight, v, 1e-6);
  EXPECT_GT(norm_of(w), 0.0);
}

INSTANTIATE_TEST_SUITE_P(Momentum, LarsParity, ::testing::Bool(),
                         [](const auto& nesterov) { return nesterov.param ? "nesterov" : "plain"; });

}  // namespace
}  // namespace renai::test
