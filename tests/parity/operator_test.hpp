#pragma once
// What the operator tests share: cases, data, and one harness on the backend under test.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include "half_values.hpp"
#include "op_instance.hpp"
#include "renai/base/error.hpp"
#include "under_test.hpp"

namespace renai::test {

inline std::vector<OpCase> all_cases() {
  std::vector<OpCase> cases;
  for (const std::string& op : op_case_files()) {
    const std::vector<OpCase> of_op = read_op_cases(RENAI_CASES_DIR, op);
    cases.insert(cases.end(), of_op.begin(), of_op.end());
  }
  return cases;
}

/// Fresh data in each run; RENAI_TEST_SEED repeats one.
inline std::uint64_t run_seed() {
  static const std::uint64_t seed = [] {
    const char* given = std::getenv("RENAI_TEST_SEED");
    return given != nullptr ? std::strtoull(given, nullptr, 10) : std::uint64_t{std::random_device{}()};
  }();
  return seed;
}

inline double greatest(std::span<const float> values) {
  double result = 0;
  for (const float value : values) result = std::max(result, std::abs(double{value}));
  return result;
}

inline std::string case_name(const ::testing::TestParamInfo<OpCase>& info) {
  return info.param.op + "_" + info.param.name;
}

class OperatorTest : public ::testing::TestWithParam<OpCase> {
 protected:
  void SetUp() override {
    try {
      backend_ = make_backend_under_test();
    } catch (const BackendError& error) {
      GTEST_SKIP() << error.what();
    }
    instance_ = make_op_instance(GetParam(), run_seed());
    OpGraph graph = instance_.graph;
    graph.parts().options.half_weights = half();
    tested_ =
        std::make_unique<OpHarness>(graph, *backend_, instance_.variant, instance_.slot, make_device_under_test());
    if (half()) round_inputs();
  }

  static bool half() { return precision_under_test() == Precision::bf16 || precision_under_test() == Precision::fp16; }

  /// Both sides start from values that the tested one can store.
  void round_inputs() {
    const DType dtype = precision_under_test() == Precision::bf16 ? DType::bf16 : DType::f16;
    for (OpInstance::FloatInput& input : instance_.floats) {
      for (float& value : input.values) value = rounded(value, dtype);
    }
  }

  std::unique_ptr<OpHarness> reference_harness(Backend& reference) const {
    return std::make_unique<OpHarness>(instance_.graph, reference, instance_.variant, instance_.slot);
  }

  const std::string& name_of(TensorId id) const { return tested_->graph().tensor(id).name; }

  OpInstance instance_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<OpHarness> tested_;
};

}  // namespace renai::test
