// Gradients of the reference backend against differences of its outputs. Other backends are compared with the
// reference.

#include "operator_test.hpp"
#include "tolerances.hpp"

namespace renai::test {
namespace {

class OperatorGradients : public OperatorTest {
 protected:
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
};

TEST_P(OperatorGradients, GradientsAreDerivatives) {
  SCOPED_TRACE("RENAI_TEST_SEED=" + std::to_string(run_seed()));
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

INSTANTIATE_TEST_SUITE_P(Cases, OperatorGradients, ::testing::ValuesIn(all_cases()), case_name);

}  // namespace
}  // namespace renai::test
