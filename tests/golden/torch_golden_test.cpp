// The training step against PyTorch: each of 20 steps from PyTorch's own state, then running free.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <sstream>

#include "golden_leaves.hpp"
#include "golden_run.hpp"
#include "renai/base/digest.hpp"
#include "renai/base/error.hpp"
#include "step_harness.hpp"

namespace renai::test {
namespace {

constexpr double kLossTolerance = 1e-5;
constexpr double kUpdateTolerance = 1e-4;
/// A GPU adds ten thousands of products one after the other in fp32: a weight gradient of a large map is that much
/// further off. Its sums differ by more than the margin for which batches were chosen (README.md), so now and then a
/// maximum or a ReLU turns over, which moves the updates before it; at most this many updates of a run may.
constexpr double kUpdateToleranceOfGpu = 1e-3;
constexpr int kTurnedUpdates = 8;
constexpr double kTurnedTolerance = 5e-2;
/// At the full width a ReLU turns over in many steps, between PyTorch's own kernels too: updates beyond the tolerance
/// may be this many times theirs.
constexpr double kTurnedFactor = 1.5;
/// The true gradient of a bias in front of a batch norm is 0. An update of a bias below this share of that of its
/// weight is rounding, and counts against that of the weight.
constexpr double kSilent = 1e-4;
/// Running free, the deviation from float64 may be this many times PyTorch's own.
constexpr double kFreeFactor = 3.0;
/// The same on a GPU, where one such turn decides.
constexpr double kFreeFactorOfGpu = 300.0;
/// For the first steps of an undecided run, where three runs of PyTorch bound what rounding can do only roughly.
constexpr double kEarlyFactor = 30.0;

struct GoldenCase {
  const char* backend;
  const char* name;
  int logical_shards;
  std::int64_t h, w, c;
  /// Its batches are not chosen for being decided (README.md): rounding makes PyTorch's own kernels part, so the
  /// largest deviation over all of them counts.
  bool undecided = false;
};

std::ostream& operator<<(std::ostream& out, const GoldenCase& item) {
  return out << item.backend << " " << item.name << " V=" << item.logical_shards;
}

std::string scientific(double value) {
  std::ostringstream text;
  text << std::scientific << value;
  return text.str();
}

std::string case_name(const ::testing::TestParamInfo<GoldenCase>& info) {
  return std::string(info.param.backend) + "_" + info.param.name + "_v" + std::to_string(info.param.logical_shards);
}

/// Skips, saying why, where a backend has nothing to run on.
class GoldenTest : public ::testing::TestWithParam<GoldenCase> {
 protected:
  void SetUp() override {
    try {
      make_device(GetParam().backend);
    } catch (const BackendError& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

StepHarness make_harness(const GoldenCase& item, const GoldenRun& run, int logical_shards) {
  StepHarnessOptions options;
  options.model = load_model(run.model);
  for (LayerSpec& layer : options.model.layers) {
    if (layer.kind == LayerKind::dropout) layer.p = 0.0f;  // Masks of random numbers differ.
  }
  options.batch = run.batch;
  options.h = item.h;
  options.w = item.w;
  options.c = item.c;
  options.logical_shards = logical_shards;
  options.lr = run.lr;
  options.momentum = run.momentum;
  options.weight_decay = run.weight_decay;
  options.input.mean = {128, 128, 128, 128};
  options.input.std = {64, 64, 64, 64};
  return make_harness(options, item.backend);
}

double norm(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

/// |a - b| / |b| in the Euclidean norm.
double relative_distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += difference * difference;
  }
  const double scale = norm(b);
  if (scale == 0) return sum == 0 ? 0.0 : std::numeric_limits<double>::infinity();
  return std::sqrt(sum) / scale;
}

/// |a - b| over the norm by which this parameter counts (kSilent); `weight_norm` is that of its layer's weight, which
/// it sets where the parameter is one.
double update_error(const std::string& name, std::span<const float> own, std::span<const float> wanted,
                    double& weight_norm) {
  const double wanted_norm = norm(wanted);
  if (name.ends_with(".weight")) weight_norm = wanted_norm;
  if (wanted_norm >= kSilent * weight_norm) return relative_distance(own, wanted);
  double sum = 0;  // The wanted update may be 0 to the last bit.
  for (std::size_t i = 0; i < own.size(); ++i) sum += std::pow(double{own[i]} - double{wanted[i]}, 2);
  return std::sqrt(sum) / weight_norm;
}

std::vector<float> difference(std::span<const float> a, std::span<const float> b) {
  std::vector<float> result(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) result[i] = a[i] - b[i];
  return result;
}

using Values = std::map<std::string, std::vector<float>>;

/// Start values by the formula of README.md.
Values start_weights(const StepHarness& harness, const GoldenRun& run) {
  Values weights;
  std::int64_t fan_in = 0;
  for (std::size_t i = 0; i < run.parameters.size(); ++i) {
    const std::string& name = run.parameters[i];
    const auto& params = harness.graph().params();
    const auto info = std::find_if(params.begin(), params.end(), [&](const ParamInfo& p) { return p.name == name; });
    if (info == params.end()) throw DataError("reading a golden run", "the model has no parameter " + name);
    const bool is_norm = info->kind == ParamKind::bn_scale || info->kind == ParamKind::bn_bias;
    const std::int64_t elems = harness.param_elems(name);
    if (info->kind == ParamKind::conv_weight || info->kind == ParamKind::linear_weight) {
      const DTensor& place = harness.plans().front().tensor(info->weight);
      fan_in = elems / place.shape[0];
    }
    weights[name] =
        initial_values(static_cast<std::int64_t>(i), elems, is_norm ? 0 : fan_in, info->kind == ParamKind::bn_scale);
  }
  return weights;
}

/// The state that PyTorch had before a step.
struct State {
  Values weights, momenta, running;
};

State start_state(const StepHarness& harness, const GoldenRun& run) {
  State state;
  state.weights = start_weights(harness, run);
  for (const auto& [name, values] : state.weights) state.momenta[name].assign(values.size(), 0.0f);
  for (const NormInfo& info : harness.graph().norms()) {
    const std::size_t channels = harness.running(info.name + ".running_mean").size();
    state.running[info.name + ".running_mean"].assign(channels, 0.0f);
    state.running[info.name + ".running_var"].assign(channels, 1.0f);
  }
  return state;
}

void load(StepHarness& harness, const State& state) {
  for (const auto& [name, values] : state.weights) harness.set_param(name, values);
  for (const auto& [name, values] : state.momenta) harness.set_momentum(name, values);
  for (const auto& [name, values] : state.running) harness.set_running(name, values);
}

/// Moves the state on to that after `step`, as PyTorch computed it; checks the rebuilt weights by their digests.
void advance(State& state, const GoldenRun& run, std::size_t step) {
  state.momenta = load_momentum(run, static_cast<std::int64_t>(step));
  for (std::size_t i = 0; i < run.parameters.size(); ++i) {
    const std::string& name = run.parameters[i];
    const std::vector<float>& momentum = state.momenta.at(name);
    std::vector<float>& weights = state.weights.at(name);
    ASSERT_EQ(momentum.size(), weights.size()) << name;
    for (std::size_t e = 0; e < weights.size(); ++e) weights[e] = std::fma(-run.lr, momentum[e], weights[e]);
    ASSERT_EQ(tensor_digest(weights).low, run.weight_digest[step][i]) << name << " after step " << step;
  }
  for (auto& [name, values] : state.running) values = run.running.at(name)[step];
}

double step_on(StepHarness& harness, const GoldenCase& item, const GoldenRun& run, std::size_t step) {
  const std::int64_t key = run.batch_key[step];
  return harness.step(golden_images(key, run.batch, item.h, item.w, item.c), golden_labels(key, run.batch));
}

using FromTorchState = GoldenTest;

TEST_P(FromTorchState, LossAndUpdatesOfEveryStep) {
  const GoldenCase& item = GetParam();
  // Without batch norm the states of V = 1 serve every V.
  const bool own_states = load_golden(item.name, item.logical_shards).has_states;
  const GoldenRun run = load_golden(item.name, own_states ? item.logical_shards : 1);
  StepHarness harness = make_harness(item, run, item.logical_shards);
  State state = start_state(harness, run);
  double worst_loss = 0, worst_update = 0;
  int turned = 0;
  const bool gpu = std::string(item.backend) == "cuda";
  for (std::size_t step = 0; step < static_cast<std::size_t>(run.steps); ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    load(harness, state);
    const State before = state;
    const double loss = step_on(harness, item, run, step);
    advance(state, run, step);
    EXPECT_NEAR(loss, run.loss_fp32[step], kLossTolerance);
    worst_loss = std::max(worst_loss, std::abs(loss - run.loss_fp32[step]));
    for (const std::string& name : run.parameters) {
      const std::vector<float> own = difference(harness.param(name), before.weights.at(name));
      const std::vector<float> wanted = difference(state.weights.at(name), before.weights.at(name));
      const double error = relative_distance(own, wanted);
      const bool turns = gpu && error > kUpdateToleranceOfGpu && ++turned <= kTurnedUpdates;
      const double tolerance = turns ? kTurnedTolerance : gpu ? kUpdateToleranceOfGpu : kUpdateTolerance;
      EXPECT_LE(error, tolerance) << name;
      EXPECT_LE(relative_distance(harness.momentum(name), state.momenta.at(name)), tolerance) << name;
      worst_update = std::max(worst_update, error);
    }
    for (const auto& [name, values] : state.running) {
      EXPECT_LE(relative_distance(harness.running(name), values), kUpdateTolerance) << name;
    }
    if (HasFailure()) break;
  }
  RecordProperty("worst_loss", scientific(worst_loss));
  RecordProperty("worst_update", scientific(worst_update));
  RecordProperty("turned_updates", turned);
}

/// Networks at their full width, whose states are too large to be kept: RENAI_GOLDEN_STATES names the folder into which
/// `make_torch_golden.py --states` wrote them.
class FullWidth : public GoldenTest {
 protected:
  void SetUp() override {
    GoldenTest::SetUp();
    if (IsSkipped()) return;
    const char* folder = std::getenv("RENAI_GOLDEN_STATES");
    if (folder == nullptr) GTEST_SKIP() << "RENAI_GOLDEN_STATES does not name a folder of states (see README.md)";
    const std::string file = std::string(GetParam().name) + "_v" + std::to_string(GetParam().logical_shards) + ".h5";
    folder_ = folder;
    if (!std::filesystem::exists(folder_ + "/" + file)) GTEST_SKIP() << folder_ << " has no states of this network";
  }
  std::string folder_;
};

TEST_P(FullWidth, LossAndUpdatesOfEveryStepFromTorchState) {
  const GoldenCase& item = GetParam();
  const GoldenRun run = load_golden(item.name, item.logical_shards, folder_);
  StepHarness harness = make_harness(item, run, item.logical_shards);
  State state = start_state(harness, run);
  const bool gpu = std::string(item.backend) == "cuda";
  const double tolerance = gpu ? kUpdateToleranceOfGpu : kUpdateTolerance;
  double worst_loss = 0, worst_update = 0;
  int turned = 0, turned_in_torch = 0;
  for (std::size_t step = 0; step < static_cast<std::size_t>(run.steps); ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    load(harness, state);
    const Values before = state.weights;
    const double loss = step_on(harness, item, run, step);
    advance(state, run, step);
    const double apart = gpu && !run.loss_spread.empty() ? run.loss_spread[step] : 0.0;
    EXPECT_NEAR(loss, run.loss_fp32[step], std::max(kLossTolerance, apart));
    worst_loss = std::max(worst_loss, std::abs(loss - run.loss_fp32[step]));
    double weight_norm = 0;
    for (std::size_t i = 0; i < run.parameters.size(); ++i) {
      const std::string& name = run.parameters[i];
      const std::vector<float> own = difference(harness.param(name), before.at(name));
      const std::vector<float> wanted = difference(state.weights.at(name), before.at(name));
      const double error = update_error(name, own, wanted, weight_norm);
      EXPECT_LE(error, kTurnedTolerance) << name;
      turned += static_cast<int>(error > tolerance);
      turned_in_torch += static_cast<int>(run.update_spread[step][i] > tolerance);
      worst_update = std::max(worst_update, error);
    }
    for (const auto& [name, values] : state.running) {
      EXPECT_LE(relative_distance(harness.running(name), values), kUpdateTolerance) << name;
    }
  }
  EXPECT_LE(turned, kTurnedFactor * turned_in_torch) << "of " << run.parameters.size() * run.update_spread.size();
  RecordProperty("worst_loss", scientific(worst_loss));
  RecordProperty("worst_update", scientific(worst_update));
  RecordProperty("turned_updates", turned);
  RecordProperty("turned_updates_of_torch", turned_in_torch);
}

TEST_P(FromTorchState, AnotherBatchIsSeen) {
  // The tolerances are no walk-over: the step of another batch fails them.
  const GoldenCase& item = GetParam();
  const bool own_states = load_golden(item.name, item.logical_shards).has_states;
  const GoldenRun run = load_golden(item.name, own_states ? item.logical_shards : 1);
  StepHarness harness = make_harness(item, run, item.logical_shards);
  State state = start_state(harness, run);
  load(harness, state);
  const double loss = step_on(harness, item, run, 1);
  advance(state, run, 0);
  EXPECT_GT(std::abs(loss - run.loss_fp32[0]), kLossTolerance);
  EXPECT_GT(relative_distance(harness.momentum(run.parameters[0]), state.momenta.at(run.parameters[0])),
            kUpdateTolerance);
}

class RunningFree : public GoldenTest {};

TEST_P(RunningFree, DeviationIsWithinThreeTimesThatOfTorch) {
  const GoldenCase& item = GetParam();
  const GoldenRun run = load_golden(item.name, item.logical_shards);
  StepHarness harness = make_harness(item, run, item.logical_shards);
  load(harness, start_state(harness, run));
  double own = 0, of_torch = 0, rounding = 0;
  const double free_factor = std::string(item.backend) == "cuda" ? kFreeFactorOfGpu : kFreeFactor;
  for (std::size_t step = 0; step < static_cast<std::size_t>(run.steps); ++step) {
    const double loss = step_on(harness, item, run, step);
    own = std::max(own, std::abs(loss - run.loss_fp64[step]));
    of_torch = std::max(of_torch, std::abs(run.loss_fp32[step] - run.loss_fp64[step]));
    for (const auto& losses : run.loss_fp32_others) {
      if (item.undecided) of_torch = std::max(of_torch, std::abs(losses[step] - run.loss_fp64[step]));
    }
    // The loss is a float32 sum over the batch on our side: its last place cannot be told from a deviation.
    rounding = std::max(rounding, run.loss_fp64[step] * static_cast<double>(std::numeric_limits<float>::epsilon()));
    if (item.undecided) {
      const double factor = step == 0 ? free_factor : std::max(free_factor, kEarlyFactor);
      EXPECT_LE(own, factor * of_torch + rounding) << "up to step " << step;
    }
  }
  EXPECT_LE(own, free_factor * of_torch + rounding) << "PyTorch's own deviation is " << of_torch;
  RecordProperty("deviation", scientific(own));
  RecordProperty("deviation_of_torch", scientific(of_torch));
  if (item.undecided) return;  // One run of PyTorch is no measure of where the weights may end.
  double norm_deviation = 1e-6;
  for (std::size_t i = 0; i < run.parameters.size(); ++i) {
    const double deviation = std::abs(run.final_norm_fp32[i] - run.final_norm_fp64[i]);
    norm_deviation = std::max(norm_deviation, deviation / run.final_norm_fp64[i]);
  }
  for (std::size_t i = 0; i < run.parameters.size(); ++i) {
    const double factor = std::string(item.backend) == "cuda" ? 1e-2 : free_factor * norm_deviation;
    const double tolerance = factor * run.final_norm_fp64[i];
    EXPECT_NEAR(norm(harness.param(run.parameters[i])), run.final_norm_fp64[i], tolerance) << run.parameters[i];
  }
}

std::vector<GoldenCase> cases(bool with_full_size) {
  std::vector<GoldenCase> result;
#ifdef RENAI_GOLDEN_CUDA
  const std::vector<const char*> backends{"cuda"};
  const char* fast = "cuda";
#else
  const std::vector<const char*> backends{"cpu", "reference"};
  const char* fast = "cpu";
#endif
#ifdef RENAI_GOLDEN_SYNC_BN
  // Batch norm over the shards of all ranks is that of PyTorch over the whole batch. (The full width takes long.
  // Running free, a ReLU turns over on the cpu backend, whose sums of a shard are rounded elsewhere than those of the
  // batch.)
  for (const char* backend : backends) {
    if (!with_full_size || std::string_view(backend) != fast)
      result.push_back({backend, "resnet9_narrow", 1, 32, 32, 3});
  }
  return result;
#endif
  for (const char* backend : backends) {
    for (const int shards : {1, 8}) {
      result.push_back({backend, "lenet5", shards, 28, 28, 1});
      result.push_back({backend, "resnet9_narrow", shards, 32, 32, 3});
    }
  }
  if (!with_full_size) return result;
  for (const int shards : {1, 8}) result.push_back({fast, "resnet9", shards, 32, 32, 3, true});
  for (const char* deep : {"resnet50", "vgg16_bn"}) result.push_back({fast, deep, 1, 64, 64, 3, true});
  return result;
}

std::vector<GoldenCase> full_cases() {
  std::vector<GoldenCase> result;
  for (const GoldenCase& item : cases(true)) {
    if (item.undecided) result.push_back(item);
  }
  return result;  // None on several ranks.
}

INSTANTIATE_TEST_SUITE_P(Golden, FullWidth, ::testing::ValuesIn(full_cases()), case_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FullWidth);
INSTANTIATE_TEST_SUITE_P(Golden, FromTorchState, ::testing::ValuesIn(cases(false)), case_name);
INSTANTIATE_TEST_SUITE_P(Golden, RunningFree, ::testing::ValuesIn(cases(true)), case_name);

}  // namespace
}  // namespace renai::test
