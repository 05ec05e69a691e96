// Adam and LARS on the GPU against the host's loops: equal bits but for LARS's norms, whose sums have another order.

#include <cmath>
#include <memory>

#include "../../src/backend/cuda/kernels/optimizer.hpp"
#include "../../src/backend/cuda/kernels/range.hpp"
#include "../../src/backend/host_optimizer_kernels.hpp"
#include "../../src/backend/host_range_kernels.hpp"
#include "kernel_case.hpp"
#include "renai/graph/region_name.hpp"

namespace renai::cuda {
namespace {

namespace names = region_name;
using testing::DeviceArray;
using testing::random_floats;
using testing::same_bits;

constexpr float kLr = 0.037f;

class OptimizerKernel : public testing::KernelTest {
 protected:
  static ControlBlock control_with(float lr) {
    ControlBlock control;
    control.lr = lr;
    return control;
  }
  static std::vector<float> scalars_with(bool skip) {
    std::vector<float> scalars(names::kScalarCount, 0.0f);
    scalars[names::kScalarSkip] = skip ? 1.0f : 0.0f;
    return scalars;
  }
  std::mt19937 random_{7};
};

/// Positive, as means of squares are.
std::vector<float> squares(std::vector<float> values) {
  for (float& value : values) value *= value;
  return values;
}

TEST_F(OptimizerKernel, AdamGivesTheHostsBits) {
  for (const std::size_t elems :
       {std::size_t{1}, std::size_t{3}, std::size_t{257}, std::size_t{4096}, std::size_t{1000003}}) {
    for (const OptimizerKind kind : {OptimizerKind::adam, OptimizerKind::adamw}) {
      SCOPED_TRACE(std::to_string(elems) + " " + std::string(optimizer_name(kind)));
      const std::vector<float> grad = random_floats(random_, elems);
      std::vector<float> weights = random_floats(random_, elems), momentum = random_floats(random_, elems),
                         second = squares(random_floats(random_, elems));
      DeviceArray<float> device_grad(grad), device_weights(weights), device_momentum(momentum), device_second(second);
      std::vector<float> values = scalars_with(false);
      const host_range::AdamCorrections corrections{0.011f, 0.73f};
      values[names::kScalarAdamStepSize] = corrections.step_size;
      values[names::kScalarAdamCorrection] = corrections.correction;
      DeviceArray<float> scalars(values);
      DeviceArray<ControlBlock> control({control_with(kLr)});
      Adam adam;
      adam.grad = device_grad.data();
      adam.weights = device_weights.data();
      adam.momentum = device_momentum.data();
      adam.second_moment = device_second.data();
      adam.elems = static_cast<std::int64_t>(elems);
      adam.range.optimizer = kind;
      adam.range.adam = {0.9, 0.999, 1e-8f};
      adam.range.weight_decay = 0.05f;
      adam.control = control.data();
      adam.scalars = scalars.data();
      const auto compare = [&](const char* when) {
        EXPECT_TRUE(same_bits(device_weights.get(), weights)) << when;
        EXPECT_TRUE(same_bits(device_momentum.get(), momentum)) << when;
        EXPECT_TRUE(same_bits(device_second.get(), second)) << when;
      };
      for (int step = 0; step < 2; ++step) {
        launch(adam, nullptr);
        synchronize();
        host_range::adam(grad.data(), weights.data(), momentum.data(), second.data(), adam.elems,
                         host_range::adam_step(adam.range, corrections, kLr));
        compare("after a step");
      }
      values[names::kScalarSkip] = 1.0f;
      scalars.set(values);
      launch(adam, nullptr);
      synchronize();
      compare("after a skipped step");
      EXPECT_TRUE(device_weights.fences_hold() && device_momentum.fences_hold() && device_second.fences_hold());
    }
  }
}

/// The corrections of check_and_scale, and the count that a bad step leaves alone.
TEST_F(OptimizerKernel, CorrectionsHaveTheHostsBits) {
  DeviceArray<float> grad(std::vector<float>(64, 0.5f)), metrics(std::vector<float>(16, 0.5f));
  DeviceArray<ControlBlock> control({control_with(kLr)});
  for (const AdamParams& params : {AdamParams{0.9, 0.999, 1e-8f}, AdamParams{0.0, 0.99999, 1e-8f}}) {
    for (const float before : {0.0f, 1.0f, 5.0f, 998.0f, 1234567.0f, 0x1p24f}) {
      for (const bool bad : {false, true}) {
        std::vector<float> values = scalars_with(false);
        values[names::kScalarUpdates] = before;
        DeviceArray<float> scalars(values);
        metrics.set(std::vector<float>(16, bad ? INFINITY : 0.5f));
        const FloatSpan param{grad.data(), 64};
        CheckAndScale check{param, {metrics.data(), 16}, {&param, 1}, {}, scalars.data(), nullptr, control.data()};
        check.range.optimizer = OptimizerKind::adamw;
        check.range.adam = params;
        DeviceArray<std::byte> workspace(static_cast<std::size_t>(check_and_scale_workspace_bytes(check)));
        check.workspace = workspace.data();
        launch(check, nullptr);
        synchronize();
        const std::vector<float> after = scalars.get();
        const float count = bad ? before : before + 1.0f;
        const host_range::AdamCorrections wanted =
            bad ? host_range::AdamCorrections{0, 0} : host_range::adam_corrections(double{kLr}, params, count);
        EXPECT_EQ(after[names::kScalarUpdates], count) << before;
        EXPECT_EQ(after[names::kScalarAdamStepSize], wanted.step_size) << before;
        EXPECT_EQ(after[names::kScalarAdamCorrection], wanted.correction) << before;
      }
    }
  }
}

/// A freeze group's count and corrections, which its update reads.
TEST_F(OptimizerKernel, AFreezeGroupHasItsOwnCorrections) {
  constexpr int kGroup = 2;
  const int own = names::adam_scalars(kGroup);
  DeviceArray<ControlBlock> control({control_with(kLr)});
  for (const bool skip : {false, true}) {
    std::vector<float> values = scalars_with(skip);
    values.resize(static_cast<std::size_t>(names::adam_scalars(kGroup + 1)), 0.0f);
    values[names::kScalarUpdates] = 40.0f;
    values[static_cast<std::size_t>(own)] = 6.0f;
    DeviceArray<float> scalars(values);
    RangeParams range;
    range.optimizer = OptimizerKind::adam;
    range.freeze_group = kGroup;
    launch(AdamCount{range, control.data(), scalars.data()}, nullptr);
    DeviceArray<float> grad(std::vector<float>(5, 0.5f)), weights(std::vector<float>(5, 1.0f)),
        momentum(std::vector<float>(5, 0.25f)), second(std::vector<float>(5, 0.125f));
    launch(Adam{grad.data(), weights.data(), momentum.data(), second.data(), 5, range, control.data(), scalars.data()},
           nullptr);
    synchronize();
    std::vector<float> wanted = values;
    std::vector<float> w(5, 1.0f), m(5, 0.25f), v(5, 0.125f);
    if (!skip) {
      const host_range::AdamCorrections corrections = host_range::adam_corrections(double{kLr}, range.adam, 7.0f);
      wanted[static_cast<std::size_t>(own)] = 7.0f;
      wanted[static_cast<std::size_t>(own) + 1] = corrections.step_size;
      wanted[static_cast<std::size_t>(own) + 2] = corrections.correction;
      const std::vector<float> g(5, 0.5f);
      host_range::adam(g.data(), w.data(), m.data(), v.data(), 5, host_range::adam_step(range, corrections, kLr));
    }
    EXPECT_EQ(scalars.get(), wanted) << skip;
    EXPECT_EQ(weights.get(), w) << skip;
  }
}

/// Many tensors in 256-byte slots.
struct Slots {
  std::vector<std::size_t> first, elems;
  std::size_t size = 0;

  Slots() {
    elems = {1, 3, 257, 1000003, 4095, 4096, 4097, 8192 + 5};
    for (std::size_t i = 0; i < 120; ++i) elems.push_back(1 + i * 37 % 700);  // more than one table holds
    for (const std::size_t count : elems) {
      first.push_back(size);
      size += (count + 63) / 64 * 64;
    }
  }
  std::vector<float> random(std::mt19937& generator, float scale) const {
    std::vector<float> values(size, 0.0f);
    for (std::size_t i = 0; i < elems.size(); ++i) {
      // A tensor of zeros takes the plain rate.
      const float own = i % 7 == 3 ? 0.0f : scale * static_cast<float>(1 + i % 5);
      const std::vector<float> part = random_floats(generator, elems[i]);
      for (std::size_t k = 0; k < elems[i]; ++k) values[first[i] + k] = own * part[k];
    }
    return values;
  }
};

TEST_F(OptimizerKernel, LarsFollowsTheHostAndRepeatsItsBits) {
  const Slots slots;
  RangeParams range;
  range.optimizer = OptimizerKind::lars;
  range.lars = {0.01f, 1e-6f};
  range.momentum = 0.9f;
  range.weight_decay = 1e-3f;
  const std::vector<float> grad = slots.random(random_, 0.1f), start = slots.random(random_, 1.0f),
                           buffer = slots.random(random_, 0.01f);
  DeviceArray<float> device_grad(grad), weights(start), momentum(buffer), scalars(scalars_with(false));
  DeviceArray<ControlBlock> control({control_with(kLr)});
  std::vector<LarsTensor> tensors;
  for (std::size_t i = 0; i < slots.elems.size(); ++i) {
    tensors.push_back({device_grad.data() + slots.first[i], weights.data() + slots.first[i],
                       momentum.data() + slots.first[i], static_cast<std::int64_t>(slots.elems[i])});
  }
  DeviceArray<std::byte> workspace(static_cast<std::size_t>(lars_workspace_bytes(tensors)));
  for (const bool nesterov : {false, true}) {
    range.nesterov = nesterov;
    std::vector<float> wanted = start, wanted_buffer = buffer;
    for (std::size_t i = 0; i < slots.elems.size(); ++i) {
      host_range::lars(grad.data() + slots.first[i], wanted.data() + slots.first[i],
                       wanted_buffer.data() + slots.first[i], static_cast<std::int64_t>(slots.elems[i]), range, kLr);
    }
    const Lars lars{tensors, range, control.data(), scalars.data(), workspace.data()};
    std::vector<float> once;
    for (int run = 0; run < 2; ++run) {
      weights.set(start);
      momentum.set(buffer);
      workspace.poison();
      launch(lars, nullptr);
      synchronize();
      const std::vector<float> got = weights.get(), got_buffer = momentum.get();
      for (std::size_t i = 0; i < got.size(); ++i) {
        // The rates may differ in the last place of a float.
        ASSERT_NEAR(got_buffer[i], wanted_buffer[i], 4e-7 * (std::abs(wanted_buffer[i]) + 0.01)) << i;
        ASSERT_NEAR(got[i], wanted[i], 4e-7 * (std::abs(wanted[i]) + 0.01)) << i;
      }
      if (run > 0) {
        EXPECT_TRUE(same_bits(got, once));
      }
      once = got;
    }
    EXPECT_TRUE(weights.fences_hold() && momentum.fences_hold() && workspace.fences_hold());
  }
  scalars.set(scalars_with(true));
  const std::vector<float> before = weights.get(), before_buffer = momentum.get();
  launch(Lars{tensors, range, control.data(), scalars.data(), workspace.data()}, nullptr);
  synchronize();
  EXPECT_TRUE(same_bits(weights.get(), before)) << "a skipped step";
  EXPECT_TRUE(same_bits(momentum.get(), before_buffer));
}

}  // namespace
}  // namespace renai::cuda
