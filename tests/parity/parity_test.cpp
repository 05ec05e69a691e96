// Every operator of a backend against the reference backend.

#include <cstring>
#include <optional>

#include "operator_test.hpp"
#include "tolerances.hpp"

namespace renai::test {
namespace {

using OperatorParity = OperatorTest;

std::optional<float> first_not_finite(std::span<const float> values) {
  for (const float value : values) {
    if (!std::isfinite(value)) return value;
  }
  return std::nullopt;
}

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
    if (!is_float(tested_->plan().tensor(output.tensor).dtype)) {
      const std::span<const std::byte> wanted_bytes = expected->bytes_of(output.tensor);
      ASSERT_EQ(got_bytes.size(), wanted_bytes.size());
      EXPECT_EQ(std::memcmp(got_bytes.data(), wanted_bytes.data(), got_bytes.size()), 0);
      continue;
    }
    const std::vector<float> got = tested_->get(output.tensor), wanted = expected->get(output.tensor);
    const std::vector<float> sums = is_sum_of_products(op) ? absolute->get(output.tensor) : std::vector<float>{};
    const double most = greatest(wanted);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double sum = sums.empty() ? 0.0 : double{sums[i]};
      const double bound = (output.exact   ? 0.0
                            : sums.empty() ? scaled_tolerance(op, output.depth, most)
                                           : product_sum_tolerance(output.depth, sum)) +
                           precision_tolerance(precision_under_test(), op, double{wanted[i]}, most, sum);
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
      if (!is_float(tested_->plan().tensor(output.tensor).dtype)) continue;
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

INSTANTIATE_TEST_SUITE_P(Cases, OperatorParity, ::testing::ValuesIn(all_cases()), case_name);

}  // namespace
}  // namespace renai::test
