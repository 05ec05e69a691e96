// Whole training steps of random models: the cpu backend against the reference. Kernels that take several nodes at once
// must see what really stands between these, whatever the layers are.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "../support/random_model.hpp"
#include "../support/step_harness.hpp"
#include "renai/backend/backend.hpp"
#include "renai/base/philox.hpp"

namespace renai::test {
namespace {

constexpr std::int64_t kBatch = 4, kSize = 6;

StepHarnessOptions options_of(std::uint64_t seed) {
  testing::RandomModelOptions random;
  random.resolutions = {kSize};
  random.dropout = false;
  random.blocks = true;
  random.max_layers = 10;
  StepHarnessOptions options;
  options.model = testing::random_model(seed, random);
  options.batch = kBatch;
  options.h = options.w = kSize;
  options.c = random.channels;
  options.input.mean = {120, 130, 110, 0};
  options.input.std = {60, 50, 70, 1};
  return options;
}

float drawn(std::uint64_t seed, std::size_t i, std::uint32_t stream) {
  return uniform01(random_block(seed, RandomPurpose::test, i, stream)[0]);
}

/// Weights that keep activations near 1.
void set_values(StepHarness& harness, std::uint64_t seed) {
  std::uint32_t stream = 1;
  for (const ParamInfo& info : harness.graph().params()) {
    std::vector<float> values(static_cast<std::size_t>(harness.param_elems(info.name)));
    const bool matrix = info.kind == ParamKind::conv_weight || info.kind == ParamKind::linear_weight;
    const float size = matrix ? 1.0f : 0.2f, middle = info.kind == ParamKind::bn_scale ? 1.0f : 0.0f;
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = middle + size * (2 * drawn(seed, i, stream) - 1);
    harness.set_param(info.name, values);
    ++stream;
  }
}

double norm_of(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - double{b[i]}) * (double{a[i]} - double{b[i]});
  return std::sqrt(sum);
}
double norm_of(const std::vector<float>& a) { return norm_of(a, std::vector<float>(a.size(), 0.0f)); }

/// The first parameter whose gradients differ by more than rounding and a relu that turns over explain; empty: none.
/// Gradients that are rounding alone (of a bias in front of a batch norm) are measured by the largest one.
std::string first_difference(const StepHarness& reference, const StepHarness& cpu) {
  constexpr double kShare = 0.02, kFloor = 0.05;
  double largest = 0;
  for (const std::string& name : reference.param_names()) largest = std::max(largest, norm_of(reference.grad(name)));
  for (const std::string& name : reference.param_names()) {
    const std::vector<float> want = reference.grad(name);
    const double difference = norm_of(want, cpu.grad(name));
    if (!(difference <= kShare * (norm_of(want) + kFloor * largest))) {
      return name + ": " + std::to_string(difference) + " of " + std::to_string(norm_of(want));
    }
  }
  return "";
}

/// RENAI_RANDOM_STEPS sets another count of models.
TEST(RandomSteps, GradientsOfTheCpuAreThoseOfTheReference) {
  const char* wanted = std::getenv("RENAI_RANDOM_STEPS");
  const int count = wanted != nullptr ? std::atoi(wanted) : 400;
  const std::vector<std::int32_t> labels{3, 1, 4, 1};
  int compared = 0;
  for (int i = 0; i < count; ++i) {
    const auto seed = static_cast<std::uint64_t>(i);
    const StepHarnessOptions options = options_of(seed);
    std::vector<std::uint8_t> images(static_cast<std::size_t>(kBatch * kSize * kSize * options.c));
    for (std::size_t k = 0; k < images.size(); ++k) images[k] = static_cast<std::uint8_t>(255 * drawn(seed, k, 0));
    StepHarness reference(options, make_reference_backend()), cpu(options, make_cpu_backend(1));
    set_values(reference, seed);
    set_values(cpu, seed);
    const double loss = reference.step(images, labels);
    EXPECT_NEAR(cpu.step(images, labels), loss, 1e-4 * (1 + std::abs(loss))) << "seed " << seed;
    EXPECT_EQ(first_difference(reference, cpu), "") << "seed " << seed;
    ++compared;
  }
  EXPECT_EQ(compared, count);
}

}  // namespace
}  // namespace renai::test
