// Exponential averages (--ema) and accumulated gradients (--accumulate) over 25 steps against PyTorch: see README.md.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "../parity/under_test.hpp"
#include "golden_run.hpp"
#include "renai/base/error.hpp"
#include "renai/io/hdf5.hpp"
#include "step_harness.hpp"

namespace renai::test {
namespace {

/// Both sides run free from the same start; every tensor, relative to its norm.
constexpr double kTolerance = 2e-5;
constexpr double kToleranceOfGpu = 2e-4;

std::filesystem::path golden_path(const std::string& file) {
  const char* folder = std::getenv("RENAI_GOLDEN");
  return std::filesystem::path(folder != nullptr ? folder : RENAI_GOLDEN_DIR) / file;
}

std::vector<float> read_floats(const H5File& file, const std::string& name) {
  const std::vector<std::int64_t> extents = file.info(name).extents;
  std::int64_t elems = 1;
  for (const std::int64_t extent : extents) elems *= extent;
  std::vector<float> values(static_cast<std::size_t>(elems));
  file.read(name, DType::f32, 0, extents.at(0), std::as_writable_bytes(std::span(values)));
  return values;
}

double relative_distance(std::span<const float> a, std::span<const float> b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double{a[i]} - double{b[i]}, 2);
    size += double{b[i]} * double{b[i]};
  }
  return std::sqrt(difference / size);
}

class EmaGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      make_device_under_test();
    } catch (const BackendError& error) {
      GTEST_SKIP() << error.what();
    }
    std::istringstream names(*file_.string_attribute("/", "parameters"));
    for (std::string name; std::getline(names, name);) parameters_.push_back(name);
  }

  float number(const char* key) const { return std::stof(*file_.string_attribute("/", key)); }

  StepHarness harness(double ema_decay, int micro_batches = 1) const {
    StepHarnessOptions options;
    options.model = load_model(golden_path("ema_net.toml").string());
    options.batch = *file_.int_attribute("/", "batch");
    options.h = options.w = kSize;
    options.c = kChannels;
    options.lr = number("lr");
    options.momentum = number("momentum");
    options.weight_decay = number("weight_decay");
    options.ema_decay = ema_decay;
    options.micro_batches = micro_batches;
    options.input.mean = {128, 128, 128, 128};
    options.input.std = {64, 64, 64, 64};
    std::unique_ptr<Backend> backend = make_backend_under_test();
    StepHarness made(options, std::move(backend), make_device_under_test());
    std::int64_t fan_in = 0;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const ParamInfo& info = param_of(made, parameters_[i]);
      const bool matrix = info.kind == ParamKind::conv_weight || info.kind == ParamKind::linear_weight;
      const std::int64_t elems = made.param_elems(info.name);
      if (matrix) fan_in = elems / made.plans().front().tensor(info.weight).shape[0];
      const bool norm = !matrix && info.kind != ParamKind::bias;
      made.set_param(info.name, initial_values(static_cast<std::int64_t>(i), elems, norm ? 0 : fan_in,
                                               info.kind == ParamKind::bn_scale));
    }
    for (const NormInfo& info : made.graph().norms()) {
      const std::size_t channels = made.running(info.name + ".running_var").size();
      made.set_running(info.name + ".running_var", std::vector<float>(channels, 1.0f));
    }
    return made;
  }

  static const ParamInfo& param_of(const StepHarness& harness, const std::string& name) {
    for (const ParamInfo& info : harness.graph().params()) {
      if (info.name == name) return info;
    }
    throw DataError("reading a golden run", "the model has no parameter " + name, "make it again");
  }

  double step(StepHarness& harness, std::int64_t key) const {
    const std::int64_t batch = *file_.int_attribute("/", "batch");
    return harness.step(golden_images(key, batch, kSize, kSize, kChannels), golden_labels(key, batch));
  }

  /// The largest distance of any average after a step from the golden one.
  double distance(const StepHarness& harness, std::int64_t at) const {
    double worst = 0;
    const auto compare = [&](const std::string& name, const std::vector<float>& own) {
      const std::vector<float> all = read_floats(file_, "ema/" + name);
      const std::span<const float> wanted(all.data() + static_cast<std::size_t>(at) * own.size(), own.size());
      worst = std::max(worst, relative_distance(own, wanted));
    };
    for (const std::string& name : parameters_) compare(name, harness.average(name));
    for (const NormInfo& norm : harness.graph().norms()) {
      compare(norm.name + ".running_mean", harness.tensor(norm.ema_mean));
      compare(norm.name + ".running_var", harness.tensor(norm.ema_var));
    }
    return worst;
  }

  static constexpr std::int64_t kSize = 10, kChannels = 3;
  H5File file_ = H5File::open(golden_path("ema_net.h5"));
  std::vector<std::string> parameters_;
};

TEST_F(EmaGolden, AveragesOfEveryStep) {
  StepHarness own = harness(std::stod(*file_.string_attribute("/", "ema_decay")));
  const double tolerance = make_device_under_test() ? kToleranceOfGpu : kTolerance;
  const std::int64_t steps = *file_.int_attribute("/", "steps");
  ASSERT_EQ(steps, 25);
  double worst = 0;
  for (std::int64_t at = 0; at < steps; ++at) {
    step(own, at);
    worst = std::max(worst, distance(own, at));
    ASSERT_LE(worst, tolerance) << "step " << at;
  }
  for (const std::string& name : parameters_) {
    EXPECT_LE(relative_distance(own.param(name), read_floats(file_, "weights/" + name)), tolerance) << name;
  }
  EXPECT_GT(relative_distance(own.average("fc.weight"), own.param("fc.weight")), 1e-3) << "it is no average";
  std::ostringstream text;
  text << worst;
  RecordProperty("worst", text.str());
}

TEST_F(EmaGolden, AnotherDecayIsSeen) {
  StepHarness own = harness(0.91);
  for (std::int64_t at = 0; at < 5; ++at) step(own, at);
  EXPECT_GT(distance(own, 4), 1e-3);
}

/// Micro-batches have batch statistics of their own, so this is another run than that of whole batches.
TEST_F(EmaGolden, AccumulatedGradients) {
  const auto micro_batches = static_cast<int>(*file_.int_attribute("/", "micro_batches"));
  const double tolerance = make_device_under_test() ? kToleranceOfGpu : kTolerance;
  const std::int64_t steps = *file_.int_attribute("/", "steps");
  std::vector<double> losses(static_cast<std::size_t>(steps)), whole = losses;
  file_.read("accumulated_loss", DType::f64, 0, steps, std::as_writable_bytes(std::span(losses)));
  file_.read("loss", DType::f64, 0, steps, std::as_writable_bytes(std::span(whole)));
  StepHarness own = harness(0.0, micro_batches);
  for (std::int64_t at = 0; at < steps; ++at) {
    const auto index = static_cast<std::size_t>(at);
    ASSERT_NEAR(step(own, at), losses[index], tolerance) << "step " << at;
    EXPECT_GT(std::abs(losses[index] - whole[index]), 10 * tolerance) << "step " << at;
  }
  for (const std::string& name : parameters_) {
    EXPECT_LE(relative_distance(own.param(name), read_floats(file_, "accumulated/" + name)), tolerance) << name;
  }
}

}  // namespace
}  // namespace renai::test
