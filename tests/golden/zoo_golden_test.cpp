// The zoo's networks against PyTorch's: names, shapes, logits and gradients (README.md, zoo.h5).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>

#include "golden_run.hpp"
#include "renai/base/error.hpp"
#include "renai/device/host.hpp"
#include "renai/io/hdf5.hpp"
#include "step_harness.hpp"
#ifdef RENAI_GOLDEN_CUDA
#include "renai/backend/cuda.hpp"
#include "renai/device/cuda.hpp"
#endif

namespace renai::test {
namespace {

/// Of the logits and the loss. The loss is taken with the batch's own statistics, by which a hundred batch norms on end
/// enlarge every difference of rounding; a GPU adds its products in longer chains than PyTorch on a CPU.
constexpr double kValueTolerance = 1e-4;
#ifdef RENAI_GOLDEN_CUDA
constexpr double kLossTolerance = 5e-4;
/// Weights changed by 1e-5 of themselves, which is what rounding does to sums of a thousand products, let maxima of
/// resnet9 turn over: PyTorch's own float64 gradients then move by 1e-2 to 7e-2, their norms by 2e-3 to 1e-2.
constexpr double kGradientTolerance = 1e-2;
constexpr double kSampleFactor = 5.0;
#else
constexpr double kLossTolerance = kValueTolerance;
constexpr double kGradientTolerance = 1e-3;
constexpr double kSampleFactor = 3.0;
#endif
/// Gradients, over their norm, may be off by their tolerance and this many times what PyTorch's own float32 gradients
/// of the model are off from float64 at most: a ReLU within rounding of its kink turns over in one program and not in
/// another.
constexpr double kSpreadFactor = 4.0;
/// Of the largest: a gradient below it is 0 but for rounding, as that of a bias in front of a batch norm.
constexpr double kSilent = 1e-6;
constexpr std::int64_t kClasses = 10;

struct Entry {
  std::string name;
  std::vector<std::int64_t> extents;
  std::int64_t elems() const {
    return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
  }
};

std::vector<Entry> entries(const std::string& text) {
  std::vector<Entry> result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Entry& entry = result.emplace_back();
    words >> entry.name;
    for (std::int64_t extent = 0; words >> extent;) entry.extents.push_back(extent);
  }
  return result;
}

struct ZooGolden {
  std::int64_t size = 0, channels = 0, batch = 0, key = 0;
  std::vector<Entry> parameters, statistics;
  std::vector<double> logits, loss, spread, gradient_spread, gradient_norm;
  std::vector<float> gradient_samples;
};

template <typename T>
std::vector<T> values_of(const H5File& file, const std::string& name, DType dtype) {
  const std::vector<std::int64_t> extents = file.info(name).extents;
  std::vector<T> values(
      static_cast<std::size_t>(std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>())));
  file.read(name, dtype, 0, extents.at(0), std::as_writable_bytes(std::span(values)));
  return values;
}

ZooGolden load_zoo(const std::string& model) {
  const H5File file = H5File::open(golden_folder() / "zoo.h5");
  ZooGolden golden;
  golden.size = file.int_attribute(model, "size").value();
  golden.channels = file.int_attribute(model, "channels").value();
  golden.batch = file.int_attribute(model, "batch").value();
  golden.key = file.int_attribute(model, "key").value();
  golden.parameters = entries(file.string_attribute(model, "parameters").value());
  golden.statistics = entries(file.string_attribute(model, "statistics").value());
  golden.logits = values_of<double>(file, model + "/logits", DType::f64);
  golden.loss = values_of<double>(file, model + "/loss", DType::f64);
  golden.spread = values_of<double>(file, model + "/spread", DType::f64);
  golden.gradient_spread = values_of<double>(file, model + "/gradient_spread", DType::f64);
  golden.gradient_norm = values_of<double>(file, model + "/gradient_norm", DType::f64);
  golden.gradient_samples = values_of<float>(file, model + "/gradient_samples", DType::f32);
  return golden;
}

/// u of README.md for element `e` of tensor `index`.
double unit(std::uint64_t index, std::uint64_t e) {
  return static_cast<double>(golden_mix64(index << 32 | e) >> 40) * 0x1.0p-23 - 1.0;
}

std::vector<float> parameter(const Entry& entry, std::size_t index) {
  const std::int64_t elems = entry.elems();
  std::vector<float> values(static_cast<std::size_t>(elems));
  const bool matrix = entry.extents.size() > 1, scale = !matrix && entry.name.ends_with(".weight");
  const double bound = matrix ? std::sqrt(6.0 / static_cast<double>(elems / entry.extents[0])) : 0.125;
  for (std::size_t e = 0; e < values.size(); ++e) {
    values[e] = static_cast<float>((scale ? 0.5 : 0.0) + unit(index, e) * bound);
  }
  return values;
}

std::vector<float> statistic(const Entry& entry, std::size_t index) {
  std::vector<float> values(static_cast<std::size_t>(entry.elems()));
  const bool variance = entry.name.ends_with("var");
  for (std::size_t e = 0; e < values.size(); ++e) {
    const double u = unit(1000 + index, e);
    values[e] = static_cast<float>(variance ? 1.0 + u * 0.25 : u * 0.125);
  }
  return values;
}

class ZooTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
#ifdef RENAI_GOLDEN_CUDA
    try {
      make_cuda_device({});
    } catch (const BackendError& error) {
      GTEST_SKIP() << error.what();
    }
#endif
  }

  /// The model with the weights of the formulas.
  StepHarness make_harness(const ZooGolden& golden) const {
    StepHarnessOptions options;
    options.model = load_model(GetParam());
    // Masks of random numbers differ: both sides go without.
    for (LayerSpec& layer : options.model.layers) {
      if (layer.kind == LayerKind::dropout) layer.p = 0.0f;
    }
    options.batch = golden.batch;
    options.h = options.w = golden.size;
    options.c = golden.channels;
    options.classes = kClasses;
    options.input.mean = {128, 128, 128, 128};
    options.input.std = {64, 64, 64, 64};
#ifdef RENAI_GOLDEN_CUDA
    StepHarness harness(options, make_cuda_backend({}), make_cuda_device({}));
#else
    StepHarness harness(options, make_cpu_backend(1), make_host_device());
#endif
    for (std::size_t i = 0; i < golden.parameters.size(); ++i) {
      harness.set_param(golden.parameters[i].name, parameter(golden.parameters[i], i));
    }
    for (std::size_t i = 0; i < golden.statistics.size(); ++i) {
      harness.set_running(golden.statistics[i].name, statistic(golden.statistics[i], i));
    }
    return harness;
  }
};

TEST_P(ZooTest, NamesLogitsAndGradientsAreThoseOfTorch) {
  const ZooGolden golden = load_zoo(GetParam());
  StepHarness harness = make_harness(golden);
  std::vector<std::string> ours = harness.param_names(), theirs;
  for (const Entry& entry : golden.parameters) theirs.push_back(entry.name);
  std::sort(ours.begin(), ours.end());
  std::sort(theirs.begin(), theirs.end());
  ASSERT_EQ(ours, theirs);
  for (const Entry& entry : golden.parameters) EXPECT_EQ(harness.param_elems(entry.name), entry.elems()) << entry.name;

  const auto images = golden_images(golden.key, golden.batch, golden.size, golden.size, golden.channels);
  const std::vector<float> logits = harness.infer(images);
  double largest = 0, worst_logit = 0, worst_gradient = 0;
  for (const double value : golden.logits) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < logits.size(); ++i) {
    worst_logit = std::max(worst_logit, std::abs(logits[i] - golden.logits[i]) / largest);
  }
  EXPECT_LE(worst_logit, kValueTolerance);

  const double loss = harness.step(images, golden_labels(golden.key, golden.batch));
  EXPECT_NEAR(loss, golden.loss[0], kLossTolerance * golden.loss[0]);
  const double own_spread = *std::max_element(golden.gradient_spread.begin(), golden.gradient_spread.end());
  const double tolerance = kGradientTolerance + kSpreadFactor * own_spread;
  const double largest_norm = *std::max_element(golden.gradient_norm.begin(), golden.gradient_norm.end());
  const std::size_t samples = golden.gradient_samples.size() / golden.parameters.size();
  for (std::size_t i = 0; i < golden.parameters.size(); ++i) {
    const std::string& name = golden.parameters[i].name;
    const std::vector<float> gradient = harness.grad(name);
    const bool silent = golden.gradient_norm[i] < kSilent * largest_norm;
    const double scale = silent ? largest_norm : golden.gradient_norm[i];
    double norm = 0, off = 0;
    for (const float value : gradient) norm += double{value} * value;
    norm = std::sqrt(norm);
    EXPECT_NEAR(norm, golden.gradient_norm[i], tolerance * scale) << name;
    for (std::size_t k = 0; k < samples; ++k) {
      const std::size_t place = golden_mix64(k | (i + 2000) << 32) % gradient.size();
      const double difference = double{gradient[place]} - golden.gradient_samples[i * samples + k];
      off += difference * difference;
    }
    // The samples stand for all elements: their root mean square error over that of the gradient.
    const double error = std::sqrt(off / static_cast<double>(samples) * static_cast<double>(gradient.size())) / scale;
    EXPECT_LE(error, kSampleFactor * tolerance) << name;
    worst_gradient = std::max(worst_gradient, error);
  }
  std::ostringstream text;
  text << "logits " << worst_logit << ", gradients " << worst_gradient << ", PyTorch's float32 gradients "
       << own_spread;
  RecordProperty("worst", text.str());
}

// Every model that the product offers: one that the file lacks fails.
INSTANTIATE_TEST_SUITE_P(Golden, ZooTest, ::testing::ValuesIn(zoo_model_names()), [](const auto& one) {
  std::string name = one.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace renai::test
