#include "../../../src/backend/host_optimizer_kernels.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace renai::host_range {
namespace {

RangeParams adam_range(OptimizerKind kind, double beta1, double beta2, float eps, float decay) {
  RangeParams range;
  range.optimizer = kind;
  range.adam = {beta1, beta2, eps};
  range.weight_decay = decay;
  return range;
}

/// Powers of two throughout, so that every number is exact.
TEST(Adam, HandComputedSteps) {
  const float grad = 2;
  float w = 4, m = 0, v = 0;
  const AdamParams params{0.5, 0.75, 1.0f};
  // n = 1: corrections 1/2 and sqrt(1/4).
  const AdamCorrections first = adam_corrections(0.25, params, 1.0f);
  EXPECT_EQ(first.step_size, 0.5f);
  EXPECT_EQ(first.correction, 0.5f);
  const RangeParams l2 = adam_range(OptimizerKind::adam, 0.5, 0.75, 1.0f, 0.5f);
  adam(&grad, &w, &m, &v, 1, adam_step(l2, first, 0.25f));  // g = 2 + 4/2 = 4, m = 2, v = 4
  EXPECT_EQ(m, 2.0f);
  EXPECT_EQ(v, 4.0f);
  EXPECT_EQ(w, 4.0f - 0.5f * 2.0f / (2.0f / 0.5f + 1.0f));
  w = 4;
  m = v = 0;
  const RangeParams decoupled = adam_range(OptimizerKind::adamw, 0.5, 0.75, 1.0f, 0.5f);
  adam(&grad, &w, &m, &v, 1, adam_step(decoupled, first, 0.25f));  // w = 4 (1 - 1/8), m = 1, v = 1
  EXPECT_EQ(m, 1.0f);
  EXPECT_EQ(v, 1.0f);
  EXPECT_EQ(w, 3.5f - 0.5f * 1.0f / (1.0f / 0.5f + 1.0f));
}

/// One minus a power near one: only fp64 keeps its digits.
TEST(Adam, CorrectionsOfManyUpdates) {
  for (const double beta : {0.0, 0.5, 0.9, 0.999, 0.9999999}) {
    for (const float count : {1.0f, 2.0f, 7.0f, 1000.0f, 65537.0f, 0x1p24f}) {
      const double rest = 1.0 - std::pow(beta, double{count});
      const AdamCorrections got = adam_corrections(0.125, {beta, beta, 1e-8f}, count);
      EXPECT_NEAR(got.step_size, 0.125 / rest, 1e-7 * 0.125 / rest) << beta << " " << count;
      EXPECT_NEAR(got.correction, std::sqrt(rest), 1e-7 * std::sqrt(rest)) << beta << " " << count;
    }
  }
}

TEST(Adam, ConstantsAreRoundedOnce) {
  const AdamStep step = adam_step(adam_range(OptimizerKind::adamw, 0.9, 0.999, 1e-8f, 0.05f), {}, 0.001f);
  EXPECT_EQ(step.rest2, static_cast<float>(1.0 - 0.999)) << "not 1 - 0.999f";
  EXPECT_NE(step.rest2, 1.0f - 0.999f);
  EXPECT_EQ(step.keep, static_cast<float>(1.0 - double{0.001f} * double{0.05f}));
  EXPECT_EQ(step.l2, 0.0f);
}

TEST(Lars, RateIsTheFormula) {
  RangeParams range;
  range.lars = {0.5f, 0.25f};
  range.weight_decay = 0.125f;
  EXPECT_EQ(lars_rate(4.0, 2.0, range, 2.0f), 2.0f * 0.5f * 4.0f / (2.0f + 0.5f + 0.25f));
  EXPECT_EQ(lars_rate(0.0, 2.0, range, 2.0f), 2.0f) << "weights of zeros can leave zero";
  EXPECT_EQ(lars_rate(4.0, 0.0, range, 2.0f), 2.0f);
}

TEST(Lars, HandComputedSteps) {
  RangeParams range;
  range.lars = {0.5f, 1.0f};
  range.momentum = 0.5f;
  range.weight_decay = 0.0f;
  const std::vector<float> grad{3, 0};
  for (const bool nesterov : {false, true}) {
    range.nesterov = nesterov;
    std::vector<float> w{0, 8}, buf{0, 2};  // |w| = 8, |g| = 3: local rate 0.5 * 8 / 4 = 1
    lars(grad.data(), w.data(), buf.data(), 2, range, 0.25f);
    EXPECT_EQ(buf, (std::vector<float>{0.75f, 1.0f}));
    const std::vector<float> plain{-0.75f, 7.0f}, ahead{-0.75f - 0.375f, 8.0f - 0.5f};
    EXPECT_EQ(w, nesterov ? ahead : plain);
  }
}

}  // namespace
}  // namespace renai::host_range
