// Kernels that take several nodes at once, in whole training steps: the cpu backend against the reference, and proof
// that the fused kernels are the ones that ran.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "../support/model_builder.hpp"
#include "../support/op_harness.hpp"
#include "../support/step_harness.hpp"
#include "renai/backend/backend.hpp"
#include "renai/base/philox.hpp"

namespace renai::test {
namespace {

using testing::ModelBuilder;

struct Case {
  std::string name;
  ModelSpec model;
  std::vector<std::string> kernels;      ///< Names that the book must hold.
  std::vector<std::string> absent = {};  ///< Names that it must not hold.
  std::int64_t h = 9, w = 7;
};

ModelBuilder& conv_bn_relu(ModelBuilder& model, const std::string& name, const std::string& input, std::int64_t out) {
  model.conv(name + ".conv", input, out);
  model.layer(LayerKind::batch_norm, name + ".bn", {name + ".conv"});
  return model.layer(LayerKind::relu, name, {name + ".bn"});
}

/// Odd sizes leave pixels outside of every window.
Case pooled_norm() {
  ModelBuilder model;
  conv_bn_relu(model, "a", "input", 20).pool(LayerKind::max_pool, "a.pool", "a");
  conv_bn_relu(model, "b", "a.pool", 33).pool(LayerKind::max_pool, "b.pool", "b");
  model.layer(LayerKind::flatten, "flatten", {"b.pool"}).linear("fc", "flatten");
  return {"pooled_norm", model.spec(), {"own.norm_relu_pool", "own.pool_relu_norm_grad", "onednn.conv_weights_norm"}};
}

Case residual() {
  ModelBuilder model;
  conv_bn_relu(model, "a", "input", 17);
  conv_bn_relu(model, "b", "a", 17);
  conv_bn_relu(model, "c", "b", 17).layer(LayerKind::add, "sum", {"c", "a"});
  model.layer(LayerKind::global_avg_pool, "gap", {"sum"}).layer(LayerKind::flatten, "flatten", {"gap"});
  model.linear("fc", "flatten");
  return {"residual",
          model.spec(),
          {"own.norm_relu", "own.norm_relu_add", "own.relu_norm_grad", "onednn.conv_weights_norm"}};
}

/// The sum comes before the relu, and the shortcut is a projection: two convolutions read the first relu's output,
/// which is kept for both.
Case projection() {
  ModelBuilder model;
  conv_bn_relu(model, "a", "input", 16);
  model.conv("b.conv", "a", 24).layer(LayerKind::batch_norm, "b.bn", {"b.conv"});
  model.conv("p.conv", "a", 24, 1).layer(LayerKind::batch_norm, "p.bn", {"p.conv"});
  model.layer(LayerKind::add, "sum", {"b.bn", "p.bn"}).layer(LayerKind::relu, "relu", {"sum"});
  model.pool(LayerKind::avg_pool, "pool", "relu")
      .layer(LayerKind::flatten, "flatten", {"pool"})
      .linear("fc", "flatten");
  return {"projection",
          model.spec(),
          {"own.norm", "own.norm_grad", "own.add", "own.activation_grad"},
          {"onednn.conv_weights_norm"}};
}

/// The normalised tensor and the relu's output have other readers too: nothing may be left out.
Case shared_inside() {
  ModelBuilder model;
  conv_bn_relu(model, "a", "input", 16).pool(LayerKind::max_pool, "a.pool", "a");
  model.pool(LayerKind::avg_pool, "a.mean", "a").pool(LayerKind::avg_pool, "a.norm_mean", "a.bn");
  model.layer(LayerKind::concat, "all", {"a.pool", "a.mean", "a.norm_mean"});
  model.layer(LayerKind::flatten, "flatten", {"all"}).linear("fc", "flatten");
  return {"shared_inside", model.spec(), {"own.norm", "own.max_pool", "own.max_pool_grad"}};
}

Case conv_relu_overlapping_pool() {
  ModelBuilder model;
  model.conv("a", "input", 12, 3, true).layer(LayerKind::relu, "a.relu", {"a"});
  LayerSpec window;
  window.kernel_h = window.kernel_w = 3;
  window.stride_h = window.stride_w = 2;
  window.pad_h = window.pad_w = 1;
  model.layer(LayerKind::max_pool, "pool", {"a.relu"}, window);
  model.conv("b", "pool", 8, 3, true).layer(LayerKind::relu, "b.relu", {"b"});
  model.layer(LayerKind::flatten, "flatten", {"b.relu"}).layer(LayerKind::relu, "again", {"flatten"});
  model.linear("fc", "again");
  return {"conv_relu_overlapping_pool", model.spec(), {"onednn.conv_relu", "own.max_pool_grad:positions"}};
}

/// Nothing is trained in front of the shortcut, so it needs no gradient: that of the sum goes to the batch norm as it
/// is, though the relu is not the batch norm's. `pool`: of tiling windows or of overlapping ones behind it, or none.
Case shortcut_without_gradient(const std::string& name, std::int64_t pool_kernel, std::int64_t pool_stride) {
  ModelBuilder model;
  model.layer(LayerKind::tanh, "tanh", {"input"}).conv("a.conv", "tanh", 3);
  model.layer(LayerKind::batch_norm, "a.bn", {"a.conv"}).layer(LayerKind::add, "sum", {"a.bn", "tanh"});
  model.layer(LayerKind::relu, "relu", {"sum"});
  LayerSpec window;
  window.kernel_h = window.kernel_w = pool_kernel;
  window.stride_h = window.stride_w = pool_stride;
  if (pool_kernel > 0) model.layer(LayerKind::max_pool, "pool", {"relu"}, window);
  model.conv("b", pool_kernel > 0 ? "pool" : "relu", 8).layer(LayerKind::flatten, "flatten", {"b"});
  model.linear("fc", "flatten");
  return {name,
          model.spec(),
          {"own.norm", "own.norm_grad", "own.activation_grad"},
          {"own.relu_norm_grad", "own.pool_relu_norm_grad"}};
}

std::vector<Case> all_cases() {
  return {pooled_norm(),
          residual(),
          projection(),
          shared_inside(),
          conv_relu_overlapping_pool(),
          shortcut_without_gradient("untrained_shortcut", 0, 0),
          shortcut_without_gradient("untrained_shortcut_tiles", 2, 2),
          shortcut_without_gradient("untrained_shortcut_overlap", 3, 2)};
}

class FusedStep : public ::testing::TestWithParam<Case> {
 protected:
  static StepHarnessOptions options() {
    StepHarnessOptions options;
    options.model = GetParam().model;
    options.batch = 5;
    options.h = GetParam().h;
    options.w = GetParam().w;
    options.c = 3;
    options.input.mean = {120, 130, 110, 0};
    options.input.std = {60, 50, 70, 1};
    return options;
  }
  static std::vector<std::uint8_t> images() {
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(5 * GetParam().h * GetParam().w * 3));
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = static_cast<std::uint8_t>(random_block(11, RandomPurpose::test, i, 0)[0] >> 24);
    }
    return pixels;
  }
};

double relative_difference(const std::vector<float>& want, const std::vector<float>& have) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double d = double{want[i]} - double{have[i]};
    difference += d * d;
    size += double{want[i]} * double{want[i]};
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

/// A harness starts with zeros, whose gradients are zeros, too.
void set_values(StepHarness& harness) {
  std::uint32_t stream = 0;
  for (const ParamInfo& info : harness.graph().params()) {
    const bool scale = info.kind == ParamKind::bn_scale;
    std::vector<float> values(static_cast<std::size_t>(harness.param_elems(info.name)));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = (scale ? 1.0f : 0.0f) + 0.4f * uniform01(random_block(7, RandomPurpose::test, i, stream)[0]) - 0.2f;
    }
    harness.set_param(info.name, values);
    ++stream;
  }
}

double size_of(const std::vector<float>& values) {
  return relative_difference(std::vector<float>(values.size(), 0.0f), values);
}

TEST_P(FusedStep, AgreesWithTheReference) {
  const std::vector<std::int32_t> labels{3, 1, 4, 1, 5};
  StepHarness reference(options(), make_reference_backend());
  set_values(reference);
  const std::vector<double> losses{reference.step(images(), labels), reference.step(images(), labels)};
  for (const int threads : {1, 2}) {
    StepHarness cpu(options(), make_cpu_backend(threads));
    set_values(cpu);
    for (const double loss : losses) EXPECT_NEAR(cpu.step(images(), labels), loss, 1e-5);
    for (const std::string& name : reference.param_names()) {
      // A bias in front of a batch norm has a gradient of rounding errors only; there is none in these models.
      EXPECT_GT(size_of(reference.grad(name)), 1e-3) << name << ": nothing is compared";
      EXPECT_LT(relative_difference(reference.grad(name), cpu.grad(name)), 2e-4) << name << ", threads " << threads;
      EXPECT_LT(relative_difference(reference.param(name), cpu.param(name)), 2e-4) << name << ", threads " << threads;
    }
  }
}

TEST_P(FusedStep, ChoosesTheFusedKernels) {
  const StepHarness harness(options(), make_reference_backend());
  std::vector<CompileSpec> specs;
  for (const MemoryPlan& plan : harness.plans()) specs.push_back(plan.spec);
  const ShapeTable shapes = derive_shapes(harness.graph(), specs);
  const KernelBook book = make_cpu_backend(2)->survey(harness.graph(), shapes, specs);
  const auto holds = [&](const std::string& kernel) {
    const auto& entries = book.of(GraphId::DEEP_FWD_BWD);
    const auto& first = book.of(GraphId::FIRST_LAYER_FWD_A);
    const auto matches = [&](const KernelEntry& entry) {
      return entry.kernel == kernel || entry.kernel.starts_with(kernel + ":");
    };
    return std::any_of(entries.begin(), entries.end(), matches) || std::any_of(first.begin(), first.end(), matches);
  };
  for (const std::string& kernel : GetParam().kernels) {
    EXPECT_TRUE(holds(kernel)) << kernel << "\n" << print(book, harness.graph());
  }
  for (const std::string& kernel : GetParam().absent) {
    EXPECT_FALSE(holds(kernel)) << kernel << "\n" << print(book, harness.graph());
  }
}

/// Convolution with bias, folded batch norm and relu in inference, grouped and not.
std::vector<float> run_inference(Backend& backend, std::int64_t groups, bool relu, std::string* kernel,
                                 bool overflown = false) {
  OpGraph graph;
  const Shape x_shape{2, 7, 5, 8}, y_shape{2, 7, 5, 12};
  const TensorId x = graph.add_tensor("x", TensorRole::activation, x_shape);
  const std::int32_t w = graph.add_param("w", ParamKind::conv_weight, Shape{12, 3, 3, 8 / groups});
  const std::int32_t b = graph.add_param("b", ParamKind::bias, Shape{12}, false);
  const std::int32_t norm = graph.add_norm("bn", 12, {});
  const TensorId conv = graph.add_tensor("conv", TensorRole::activation, y_shape);
  const TensorId bn = graph.add_tensor("bn.out", TensorRole::activation, y_shape);
  Conv2dParams params{12, {3, 3, 1, 1, 1, 1, 1, 1}, groups, true};
  const NormInfo& info = graph.norm(norm);
  graph.add_compute(OpKind::conv2d, Pass::forward, params, {x, graph.param(w).weight, graph.param(b).weight}, {conv});
  graph.add_compute(OpKind::batch_norm, Pass::inference, BatchNormParams{}, {conv, info.folded_scale, info.folded_bias},
                    {bn});
  TensorId last = bn;
  if (relu) {
    last = graph.add_tensor("y", TensorRole::activation, y_shape);
    graph.add_compute(OpKind::activation, Pass::forward, ActivationParams{}, {bn}, {last});
  }
  OpHarness harness(graph, backend);
  std::uint32_t stream = 0;
  for (const TensorId tensor : {x, graph.param(w).weight, graph.param(b).weight, info.folded_scale, info.folded_bias}) {
    std::vector<float> values(static_cast<std::size_t>(harness.plan().tensor(tensor).shape.elems()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = 2 * uniform01(random_block(5, RandomPurpose::test, i, stream)[0]) - 1;
    }
    harness.set(tensor, values);
    ++stream;
  }
  if (overflown) harness.set(info.folded_scale, std::vector<float>(12, std::numeric_limits<float>::quiet_NaN()));
  harness.run();
  if (kernel != nullptr) *kernel = harness.book().of(GraphId::SIMPLE_TASK_GRAPH).front().kernel;
  return harness.get(last);
}

TEST(FusedInference, BatchNormIsFoldedIntoTheWeights) {
  const auto reference = make_reference_backend(), cpu = make_cpu_backend(2);
  for (const std::int64_t groups : {1, 2, 4}) {
    for (const bool relu : {false, true}) {
      std::string kernel;
      const std::vector<float> want = run_inference(*reference, groups, relu, nullptr);
      const std::vector<float> have = run_inference(*cpu, groups, relu, &kernel);
      EXPECT_TRUE(kernel.starts_with("onednn.conv_bn:")) << kernel;
      EXPECT_LT(relative_difference(want, have), 2e-6) << "groups " << groups << ", relu " << relu;
    }
  }
}

TEST(FusedInference, ReluKeepsWhatIsNoNumber) {
  const auto reference = make_reference_backend(), cpu = make_cpu_backend(2);
  for (Backend* backend : {reference.get(), cpu.get()}) {
    for (const float value : run_inference(*backend, 1, true, nullptr, true)) EXPECT_TRUE(std::isnan(value));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, FusedStep, ::testing::ValuesIn(all_cases()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace renai::test
