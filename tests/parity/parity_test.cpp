// Every operator of a backend against the reference backend, and the reference's gradients against differences.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>

#include "op_instance.hpp"
#include "renai/base/error.hpp"
#include "tolerances.hpp"
#include "under_test.hpp"

namespace renai::test {
namespace {

std::vector<OpCase> all_cases() {
  std::vector<OpCase> cases;
  for (const std::string& op : op_case_files()) {
    const std::vector<OpCase> of_op = read_op_cases(RENAI_CASES_DIR, op);
    cases.insert(cases.end(), of_op.begin(), of_op.end());
  }
  return cases;
}

/// Fresh data in each run; RENAI_TEST_SEED repeats one.
std::uint64_t run_seed() {
  static const std::uint64_t seed = [] {
    const char* given = std::getenv("RENAI_TEST_SEED");
    return given != nullptr ? std::strtoull(given, nullptr, 10) : std::uint64_t{std::random_device{}()};
  }();
  return seed;
}

std::optional<float> first_not_finite(std::span<const float> values) {
  for (const float value : values) {
    if (!std::isfinite(value)) return value;
  }
  return std::nullopt;
}

double greatest(std::span<const float> values) {
  double result = 0;
  for (const float value : values) result = std::max(result, std::abs(double{value}));
  return result;
}

class OperatorParity : public ::testing::TestWithParam<OpCase> {
 protected:
  void SetUp() override {
    try {
      backend_ = make_backend_under_test();
    } catch (const BackendError& error) {
      GTEST_SKIP() << error.what();
    }
    instance_ = make_op_instance(GetParam(), run_seed());
    tested_ = std::make_unique<OpHarness>(instance_.graph, *backend_, instance_.variant, instance_.slot);
  }

  std::unique_ptr<OpHarness> reference_harness(Backend& reference) const {
    return std::make_unique<OpHarness>(instance_.graph, reference, instance_.variant, instance_.slot);
  }

  const std::string& name_of(TensorId id) const { return tested_->graph().tensor(id).name; }

  /// sum(dy * y) of one gradient check, and the sum of absolute terms.
  struct Objective {
    double value = 0, absolute = 0;
  };
  Objective objective(const OpInstance::GradientCheck& check) {
    const std::vector<float> y = tested_->get(check.y);
    if (check.dy == kNoTensor) {
      const double mean = double{y[0]} / static_cast<double>(instance_.variant.n);
      return {mean, std::abs(mean)};
    }
    const auto dy = std::find_if(instance_.floats.begin(), instance_.floats.end(),
                                 [&](const OpInstance::FloatInput& input) { return input.tensor == check.dy; });
    Objective result;
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double term = double{y[i]} * double{dy->values[i]};
      result.value += term;
      result.absolute += std::abs(term);
    }
    return result;
  }

  Objective objective_at(const OpInstance::GradientCheck& check, float& element, double shift) {
    const float kept = element;
    element = static_cast<float>(double{kept} + shift);
    set_inputs(instance_, *tested_);
    tested_->run();
    element = kept;
    return objective(check);
  }

  /// Derivative by one element; the steps taken are the rounded ones.
  double difference(const OpInstance::GradientCheck& check, float& element) {
    const double h = kDifferenceStep;
    const auto at = [&](double shift) { return objective_at(check, element, shift).value; };
    return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
  }

  OpInstance instance_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<OpHarness> tested_;
};

void take_absolute(OpInstance& instance) {
  for (OpInstance::FloatInput& input : instance.floats) {
    for (float& value : input.values) value = std::abs(value);
  }
}

TEST_P(OperatorParity, AgreesWithTheReference) {
  SCOPED_TRACE("RENAI_TEST_SEED=" + std::to_string(run_seed()));
  const std::string& op = GetParam().op;
  const auto reference = make_reference_backend();
  const auto expected = reference_harness(*reference), absolute = reference_harness(*reference);
  set_inputs(instance_, *tested_);
  set_inputs(instance_, *expected);
  tested_->run();
  expected->run();
  if (is_sum_of_products(op)) {
    OpInstance positive = instance_;
    take_absolute(positive);
    set_inputs(positive, *absolute);
    absolute->run();
  }
  for (const OpInstance::Output& output : instance_.outputs) {
    SCOPED_TRACE(name_of(output.tensor));
    const std::span<const std::byte> got_bytes = tested_->bytes_of(output.tensor);
    if (tested_->plan().tensor(output.tensor).dtype != DType::f32) {
      const std::span<const std::byte> wanted_bytes = expected->bytes_of(output.tensor);
      ASSERT_EQ(got_bytes.size(), wanted_bytes.size());
      EXPECT_EQ(std::memcmp(got_bytes.data(), wanted_bytes.data(), got_bytes.size()), 0);
      continue;
    }
    const std::vector<float> got = tested_->get(output.tensor), wanted = expected->get(output.tensor);
    const std::vector<float> sums = is_sum_of_products(op) ? absolute->get(output.tensor) : std::vector<float>{};
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double bound = output.exact   ? 0.0
                           : sums.empty() ? scaled_tolerance(op, output.depth, greatest(wanted))
                                          : product_sum_tolerance(output.depth, double{sums[i]});
      ASSERT_NEAR(double{got[i]}, double{wanted[i]}, bound) << "element " << i;
    }
  }
}

/// Nothing that a kernel should write keeps its poison, and a second replay gives the same bits.
TEST_P(OperatorParity, WritesEveryElementTheSameWayTwice) {
  SCOPED_TRACE("RENAI_TEST_SEED=" + std::to_string(run_seed()));
  std::vector<std::vector<float>> first;
  for (int pass = 0; pass < 2; ++pass) {
    set_inputs(instance_, *tested_);
    tested_->run();
    std::size_t next = 0;
    for (const OpInstance::Output& output : instance_.outputs) {
      if (tested_->plan().tensor(output.tensor).dtype != DType::f32) continue;
      const std::vector<float> values = tested_->get(output.tensor);
      EXPECT_EQ(first_not_finite(values), std::nullopt) << name_of(output.tensor);
      if (pass == 0) {
        first.push_back(values);
      } else {
        EXPECT_EQ(std::memcmp(values.data(), first[next++].data(), values.size() * sizeof(float)), 0)
            << name_of(output.tensor);
      }
    }
  }
}

TEST_P(OperatorParity, GradientsAreDerivatives) {
  SCOPED_TRACE("RENAI_TEST_SEED=" + std::to_string(run_seed()));
  if (backend_->name() != "reference") GTEST_SKIP() << "compared with the reference's gradients instead";
  constexpr std::size_t kMostElements = 48;
  std::mt19937_64 random(run_seed());
  for (const OpInstance::GradientCheck& check : instance_.gradients) {
    SCOPED_TRACE(name_of(check.gradient));
    set_inputs(instance_, *tested_);
    tested_->run();
    const std::vector<float> gradient = tested_->get(check.gradient);
    const double bound = difference_tolerance(objective(check).absolute, greatest(gradient), check.linear);
    auto input = std::find_if(instance_.floats.begin(), instance_.floats.end(),
                              [&](const OpInstance::FloatInput& floats) { return floats.tensor == check.input; });
    ASSERT_NE(input, instance_.floats.end());
    const std::size_t count = std::min(gradient.size(), kMostElements);
    for (std::size_t k = 0; k < count; ++k) {
      const std::size_t i = count == gradient.size() ? k : random() % gradient.size();
      EXPECT_NEAR(double{gradient[i]}, difference(check, input->values[i]), bound) << "element " << i;
    }
  }
}

std::string case_name(const ::testing::TestParamInfo<OpCase>& info) { return info.param.op + "_" + info.param.name; }

INSTANTIATE_TEST_SUITE_P(Cases, OperatorParity, ::testing::ValuesIn(all_cases()), case_name);

}  // namespace
}  // namespace renai::test
