// Optimizers against PyTorch's, LARS against its definition: each of 25 steps from the stored state, then running free.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <sstream>

#include "golden_leaves.hpp"
#include "golden_run.hpp"
#include "renai/base/error.hpp"
#include "step_harness.hpp"

namespace renai::test {
namespace {

constexpr double kLossTolerance = 1e-5;
/// Of the norm of an update or a moment. Adam divides by the root of the second moment: an element's relative error in
/// the gradient is one of its update, however small the gradient.
constexpr double kUpdateTolerance = 1e-4;
/// A GPU's sums have another order than PyTorch's on the CPU.
constexpr double kUpdateToleranceOfGpu = 1e-3;
/// Running free, the deviation of the loss from float64 may be this many times PyTorch's own.
constexpr double kFreeFactor = 3.0, kFreeFactorOfGpu = 30.0;

struct OptimizerCase {
  const char* backend;
  const char* name;
  OptimizerKind kind;
};

std::ostream& operator<<(std::ostream& out, const OptimizerCase& item) { return out << item.backend << item.name; }

double option_of(const OptimizerRun& run, const char* key, double by_default = 0.0) {
  const auto found = run.options.find(key);
  return found == run.options.end() ? by_default : found->second;
}

/// Of runs in which layers have no gradient for a while: conv1 is freeze group 1, fc is group 2.
bool freezes(const OptimizerRun& run) { return run.options.contains("conv1_until"); }

std::set<int> frozen_at(const OptimizerRun& run, std::size_t step) {
  std::set<int> groups;
  const auto now = static_cast<double>(step);
  if (now < option_of(run, "conv1_until")) groups.insert(1);
  if (now >= option_of(run, "fc_after", std::numeric_limits<double>::infinity())) groups.insert(2);
  return groups;
}

StepHarness make_harness(const OptimizerCase& item, const OptimizerRun& run) {
  const auto option = [&](const char* key) { return option_of(run, key); };
  StepHarnessOptions options;
  options.model = load_model(run.model);
  options.batch = run.batch;
  options.h = options.w = 8;
  options.optimizer = item.kind;
  options.adam = {option("beta1"), option("beta2"), static_cast<float>(option("eps"))};
  options.lars = {static_cast<float>(option("eta")), static_cast<float>(option("eps"))};
  options.momentum = static_cast<float>(option("momentum"));
  options.nesterov = option("nesterov") != 0.0;
  options.weight_decay = static_cast<float>(option("weight_decay"));
  // conv1.weight, bn1 (2), conv2 (2), fc (2).
  if (freezes(run)) options.freeze_group_of_param = {1, 0, 0, 0, 0, 2, 2};
  options.input.mean = {128, 128, 128, 128};
  options.input.std = {64, 64, 64, 64};
  return make_harness(options, item.backend);
}

std::vector<float> read_state(const StepHarness& harness, const std::string& key) {
  const std::string group = key.substr(0, key.find('/')), name = key.substr(key.find('/') + 1);
  if (group == "weights") return harness.param(name);
  if (group == "momentum") return harness.momentum(name);
  return group == "second_moment" ? harness.second_moment(name) : harness.running(name);
}

void write_state(StepHarness& harness, const std::string& key, const std::vector<float>& values) {
  const std::string group = key.substr(0, key.find('/')), name = key.substr(key.find('/') + 1);
  if (group == "weights") return harness.set_param(name, values);
  if (group == "momentum") return harness.set_momentum(name, values);
  if (group == "second_moment") return harness.set_second_moment(name, values);
  harness.set_running(name, values);
}

void load(StepHarness& harness, const OptimizerRun& run, std::size_t step) {
  for (const auto& [key, rows] : run.states) write_state(harness, key, rows.at(step));
}

double step_on(StepHarness& harness, const OptimizerRun& run, std::size_t step) {
  harness.set_lr(run.lr.at(step));
  harness.set_frozen(frozen_at(run, step));
  const auto key = static_cast<std::int64_t>(step);
  return harness.step(golden_images(key, run.batch, 8, 8, 1), golden_labels(key, run.batch));
}

/// |own - wanted| / |wanted - base| in the Euclidean norm; 0 where all are equal.
double error_of(const std::vector<float>& own, const std::vector<float>& wanted, const std::vector<float>& base) {
  double off = 0, size = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    off += std::pow(double{own[i]} - double{wanted[i]}, 2);
    size += std::pow(double{wanted[i]} - double{base[i]}, 2);
  }
  return off == 0.0 ? 0.0 : std::sqrt(off / size);
}

/// The largest error of a state after `step`: of weights against their update, of the rest against itself.
double worst_error(const StepHarness& harness, const OptimizerRun& run, std::size_t step) {
  double worst = 0;
  for (const auto& [key, rows] : run.states) {
    const std::vector<float> zeros(rows[step].size());
    const double error =
        error_of(read_state(harness, key), rows[step + 1], key.starts_with("weights/") ? rows[step] : zeros);
    worst = std::isfinite(error) ? std::max(worst, error) : std::numeric_limits<double>::infinity();
  }
  return worst;
}

std::string scientific(double value) {
  std::ostringstream text;
  text << std::scientific << value;
  return text.str();
}

class OptimizerGolden : public ::testing::TestWithParam<OptimizerCase> {
 protected:
  void SetUp() override {
    try {
      make_device(GetParam().backend);
    } catch (const BackendError& error) {
      GTEST_SKIP() << error.what();
    }
    run_ = load_optimizer_run(GetParam().name);
  }
  bool gpu() const { return std::string(GetParam().backend) == "cuda"; }
  double tolerance() const { return gpu() ? kUpdateToleranceOfGpu : kUpdateTolerance; }
  OptimizerRun run_;
};

TEST_P(OptimizerGolden, LossAndUpdatesOfEveryStep) {
  StepHarness harness = make_harness(GetParam(), run_);
  double worst = 0;
  for (std::size_t step = 0; step < run_.lr.size(); ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    load(harness, run_, step);  // The count of updates is the harness's own, which runs each step once.
    const double loss = step_on(harness, run_, step);
    ASSERT_NEAR(loss, (GetParam().kind == OptimizerKind::lars ? run_.loss_fp64 : run_.loss_fp32)[step], kLossTolerance);
    worst = std::max(worst, worst_error(harness, run_, step));
    ASSERT_LE(worst, tolerance());
  }
  RecordProperty("worst_update", scientific(worst));
}

TEST_P(OptimizerGolden, RunningFreeItDeviatesAsPyTorchDoes) {
  StepHarness harness = make_harness(GetParam(), run_);
  load(harness, run_, 0);
  double own = 0, of_torch = 0;
  for (std::size_t step = 0; step < run_.lr.size(); ++step) {
    own = std::max(own, std::abs(step_on(harness, run_, step) - run_.loss_fp64[step]));
    of_torch = std::max(of_torch, std::abs(run_.loss_fp32[step] - run_.loss_fp64[step]));
  }
  EXPECT_LE(own, (gpu() ? kFreeFactorOfGpu : kFreeFactor) * of_torch);
  RecordProperty("deviation", scientific(own));
  RecordProperty("deviation_of_torch", scientific(of_torch));
}

/// The tolerances tell optimizers and their options apart.
TEST_P(OptimizerGolden, AnotherRuleIsSeen) {
  std::vector<std::pair<OptimizerCase, OptimizerRun>> others(3, {GetParam(), run_});
  others[0].second.options["weight_decay"] *= 0.5;
  OptimizerCase& kind = others[1].first;
  std::map<std::string, double>& options = others[2].second.options;
  switch (GetParam().kind) {
    case OptimizerKind::sgd:
      others[1].second.options["nesterov"] = options["nesterov"] == 0.0 ? 1.0 : 0.0;
      options["momentum"] = 0.899;
      break;
    case OptimizerKind::lars:
      kind.kind = OptimizerKind::sgd;
      options["eta"] *= 0.99;
      break;
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      kind.kind = GetParam().kind == OptimizerKind::adam ? OptimizerKind::adamw : OptimizerKind::adam;
      options["beta2"] -= 1e-5;
      break;
  }
  for (std::size_t i = 0; i < others.size(); ++i) {
    StepHarness harness = make_harness(others[i].first, others[i].second);
    double worst = 0;
    for (std::size_t step = 0; step < 3; ++step) {
      load(harness, run_, step);
      step_on(harness, run_, step);
      worst = std::max(worst, worst_error(harness, run_, step));
    }
    EXPECT_GT(worst, tolerance()) << "change " << i;
  }
}

class FrozenGolden : public OptimizerGolden {};

/// A layer that starts late takes its first step with the corrections of a first step, not with those of the run.
TEST_P(FrozenGolden, ALateStartIsCountedFromThere) {
  const auto start = static_cast<std::size_t>(option_of(run_, "conv1_until"));
  OptimizerRun never = run_;
  never.options["conv1_until"] = 0.0;
  for (const bool late : {true, false}) {
    const OptimizerRun& schedule = late ? run_ : never;
    StepHarness harness = make_harness(GetParam(), schedule);
    for (std::size_t step = 0; step < start; ++step) step_on(harness, schedule, step);
    load(harness, run_, start);
    step_on(harness, schedule, start);
    const std::vector<float>& before = run_.states.at("weights/conv1.weight")[start];
    const double error =
        error_of(harness.param("conv1.weight"), run_.states.at("weights/conv1.weight")[start + 1], before);
    if (late) {
      EXPECT_LE(error, tolerance());
    } else {
      EXPECT_GT(error, 0.1);
    }
  }
}

std::vector<OptimizerCase> cases() {
  std::vector<OptimizerCase> result;
#ifdef RENAI_GOLDEN_CUDA
  const std::vector<const char*> backends{"cuda"};
#else
  const std::vector<const char*> backends{"cpu", "reference"};
#endif
  for (const char* backend : backends) {
    for (const auto& [name, kind] : {std::pair{"sgd", OptimizerKind::sgd},
                                     {"nesterov", OptimizerKind::sgd},
                                     {"adam", OptimizerKind::adam},
                                     {"adamw", OptimizerKind::adamw},
                                     {"adam_frozen", OptimizerKind::adam},
                                     {"adamw_frozen", OptimizerKind::adamw},
                                     {"lars", OptimizerKind::lars}}) {
      result.push_back({backend, name, kind});
    }
  }
  return result;
}

std::vector<OptimizerCase> frozen_cases() {
  std::vector<OptimizerCase> result = cases();
  std::erase_if(result, [](const OptimizerCase& item) { return !std::string_view(item.name).ends_with("_frozen"); });
  return result;
}

std::string text_of_case(const ::testing::TestParamInfo<OptimizerCase>& item) {
  return std::string(item.param.backend) + "_" + item.param.name;
}

INSTANTIATE_TEST_SUITE_P(Golden, OptimizerGolden, ::testing::ValuesIn(cases()), text_of_case);
INSTANTIATE_TEST_SUITE_P(Golden, FrozenGolden, ::testing::ValuesIn(frozen_cases()), text_of_case);

}  // namespace
}  // namespace renai::test
