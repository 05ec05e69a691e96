// RANGE kernels on the GPU against the host's loops: equal bits but for the norm, whose sum has another order.

#include <bit>
#include <cmath>
#include <limits>
#include <memory>

#include "../../src/backend/cuda/kernels/range.hpp"
#include "../../src/backend/host_range_kernels.hpp"
#include "kernel_case.hpp"
#include "renai/base/digest.hpp"
#include "renai/graph/region_name.hpp"

namespace renai::cuda {
namespace {

namespace names = region_name;
using testing::DeviceArray;
using testing::random_floats;
using testing::same_bits;

constexpr std::size_t kSizes[] = {1, 3, 257, 4096, 1000003};

class RangeKernel : public testing::KernelTest {
 protected:
  static ControlBlock control_with(std::int32_t local_shard, float lr = 0) {
    ControlBlock control;
    control.local_shard = local_shard;
    control.lr = lr;
    return control;
  }
  std::mt19937 random_{5};
};

/// Every place of the binary counter, and the whole sequence, as on the host.
TEST_F(RangeKernel, MergeShard) {
  for (const std::size_t elems : kSizes) {
    SCOPED_TRACE(elems);
    std::vector<std::vector<float>> host_counters;
    std::vector<std::unique_ptr<DeviceArray<float>>> counters;
    std::vector<float*> host_pointers, pointers;
    for (int level = 0; level < 3; ++level) {
      host_counters.push_back(random_floats(random_, elems));
      counters.push_back(std::make_unique<DeviceArray<float>>(host_counters.back()));
      pointers.push_back(counters.back()->data());
    }
    for (auto& counter : host_counters) host_pointers.push_back(counter.data());
    DeviceArray<float> values(elems);
    DeviceArray<ControlBlock> control(1);
    for (std::int32_t shard = 0; shard < 8; ++shard) {
      std::vector<float> host = random_floats(random_, elems);
      values.set(host);
      control.set({control_with(shard)});
      launch(MergeShard{values.data(), pointers, nullptr, 1, static_cast<std::int64_t>(elems), control.data()},
             nullptr);
      synchronize();
      host_range::merge_shard(host.data(), host_pointers, static_cast<std::int64_t>(elems), shard);
      ASSERT_TRUE(same_bits(values.get(), host)) << "shard " << shard;
      for (std::size_t level = 0; level < 3; ++level) {
        ASSERT_TRUE(same_bits(counters[level]->get(), host_counters[level])) << "shard " << shard;
        ASSERT_TRUE(counters[level]->fences_hold());
      }
      ASSERT_TRUE(values.fences_hold());
    }
  }
}

/// The micro-batches of two shards, as on the host.
TEST_F(RangeKernel, MergeShardOfMicroBatches) {
  constexpr int kMicroBatches = 3;
  for (const std::size_t elems : kSizes) {
    SCOPED_TRACE(elems);
    std::vector<float> host_micro = random_floats(random_, elems), host_counter = random_floats(random_, elems);
    DeviceArray<float> values(elems), micro(host_micro), counter(host_counter);
    float *pointer = counter.data(), *host_pointer = host_counter.data();
    for (std::int32_t pass = 0; pass < 2 * kMicroBatches; ++pass) {
      std::vector<float> host = random_floats(random_, elems);
      values.set(host);
      ControlBlock block = control_with(pass / kMicroBatches);
      block.micro_batch = pass % kMicroBatches;
      DeviceArray<ControlBlock> control({block});
      const auto count = static_cast<std::int64_t>(elems);
      launch(MergeShard{values.data(), {&pointer, 1}, micro.data(), kMicroBatches, count, control.data()}, nullptr);
      synchronize();
      host_range::add_micro_batch(host.data(), host_micro.data(), count, block.micro_batch, kMicroBatches);
      if (block.micro_batch + 1 == kMicroBatches)
        host_range::merge_shard(host.data(), {&host_pointer, 1}, count, block.local_shard);
      // Until the whole sum stands in them, the values are scratch: the host leaves its sum of micro-batches there.
      if (pass + 1 == 2 * kMicroBatches) {
        ASSERT_TRUE(same_bits(values.get(), host));
      }
      ASSERT_TRUE(same_bits(micro.get(), host_micro)) << "pass " << pass;
      ASSERT_TRUE(same_bits(counter.get(), host_counter)) << "pass " << pass;
      ASSERT_TRUE(values.fences_hold() && micro.fences_hold() && counter.fences_hold());
    }
  }
}

/// Averages of values with a tail, as on the host; the first update and a skipped step too.
TEST_F(RangeKernel, Average) {
  for (const std::size_t elems : kSizes) {
    SCOPED_TRACE(elems);
    const std::vector<float> values = random_floats(random_, elems);
    const auto count = static_cast<std::int64_t>(elems);
    for (const auto& [step, skip] : {std::pair{2, 0.0f}, {5, 0.0f}, {5, 1.0f}}) {
      std::vector<float> host = random_floats(random_, elems), scalars(region_name::kScalarCount, 0.0f);
      scalars[region_name::kScalarSkippedSteps] = 2.0f;
      scalars[region_name::kScalarSkip] = skip;
      DeviceArray<float> value(values), average(host), scalar(scalars);
      ControlBlock block = control_with(0);
      block.step = step;
      DeviceArray<ControlBlock> control({block});
      launch(Average{value.data(), average.data(), count, 0.9, control.data(), scalar.data()}, nullptr);
      synchronize();
      if (skip == 0.0f && step == 2) host = values;
      if (skip == 0.0f && step == 5) host_range::average(values.data(), host.data(), count, 0.9);
      ASSERT_TRUE(same_bits(average.get(), host)) << step << " " << skip;
      ASSERT_TRUE(average.fences_hold());
    }
  }
}

TEST_F(RangeKernel, MergeOfAShardWithoutAPlaceIsNotANumber) {
  for (const std::int32_t shard : {-1, 3, 7}) {
    DeviceArray<float> values(std::vector<float>(9, 1.0f)), counter(std::vector<float>(9, 2.0f));
    DeviceArray<ControlBlock> control({control_with(shard)});
    float* pointer = counter.data();
    launch(MergeShard{values.data(), {&pointer, 1}, nullptr, 1, 9, control.data()}, nullptr);
    synchronize();
    for (const float value : values.get()) ASSERT_TRUE(std::isnan(value)) << shard;
    EXPECT_EQ(counter.get(), std::vector<float>(9, 2.0f));
  }
}

/// A gradient of many parameters in 256-byte slots.
struct Gradient {
  std::vector<std::size_t> first, elems;
  std::vector<float> values;

  Gradient(std::mt19937& random, const std::vector<std::size_t>& sizes) : elems(sizes) {
    for (const std::size_t size : sizes) {
      first.push_back(values.size());
      const std::vector<float> part = random_floats(random, size);
      values.insert(values.end(), part.begin(), part.end());
      values.resize((values.size() + 63) / 64 * 64, 0.0f);
    }
  }
  double norm(double factor) const {
    double sum = 0;
    for (const float value : values) sum += double{value} * factor * double{value} * factor;
    return std::sqrt(sum);
  }
};

std::vector<std::size_t> many_sizes() {
  std::vector<std::size_t> sizes{1, 3, 257, 1000003, 4095, 4096, 4097, 8192 + 5};
  for (std::size_t i = 0; i < 300; ++i) sizes.push_back(1 + i * 37 % 700);  // more than one table holds
  return sizes;
}

class CheckKernel : public RangeKernel {
 protected:
  struct Result {
    std::vector<float> grad, scalars;
  };

  Result run(const Gradient& gradient, const RangeParams& range, const std::vector<float>& metrics,
             const std::vector<float>& scalars) {
    DeviceArray<float> grad(gradient.values), device_metrics(metrics), device_scalars(scalars);
    std::vector<FloatSpan> params;
    for (std::size_t i = 0; i < gradient.elems.size(); ++i) {
      params.push_back({grad.data() + gradient.first[i], static_cast<std::int64_t>(gradient.elems[i])});
    }
    CheckAndScale check{{grad.data(), static_cast<std::int64_t>(grad.size())},
                        {device_metrics.data(), static_cast<std::int64_t>(metrics.size())},
                        params,
                        range,
                        device_scalars.data(),
                        nullptr};
    DeviceArray<std::byte> workspace(static_cast<std::size_t>(check_and_scale_workspace_bytes(check)));
    check.workspace = workspace.data();
    launch(check, nullptr);
    synchronize();
    EXPECT_TRUE(grad.fences_hold() && device_scalars.fences_hold() && workspace.fences_hold());
    return {grad.get(), device_scalars.get()};
  }

  static std::vector<float> scalars_with(float scale, float good = 0) {
    std::vector<float> scalars(16, 0.0f);
    scalars[names::kScalarLossScale] = scale;
    scalars[names::kScalarGoodSteps] = good;
    return scalars;
  }
  std::vector<float> metrics_ = std::vector<float>(64, 0.5f);
};

TEST_F(CheckKernel, ScalesAndTakesTheNorm) {
  const Gradient gradient(random_, many_sizes());
  for (const int shards : {1, 8}) {
    for (const bool dynamic : {false, true}) {
      RangeParams range;
      range.logical_shards = shards;
      range.dynamic_loss_scale = dynamic;
      const float factor = 1.0f / (static_cast<float>(shards) * (dynamic ? 1024.0f : 1.0f));
      const Result first = run(gradient, range, metrics_, scalars_with(1024.0f));
      std::vector<float> wanted = gradient.values;
      for (float& value : wanted) value *= factor;
      EXPECT_TRUE(same_bits(first.grad, wanted));
      const double norm = gradient.norm(double{factor});
      EXPECT_NEAR(first.scalars[names::kScalarGradNorm], norm, 1e-6 * norm);
      EXPECT_EQ(first.scalars[names::kScalarSkip], 0.0f);
      EXPECT_EQ(first.scalars[names::kScalarLossScale], 1024.0f);
      EXPECT_EQ(first.scalars[names::kScalarGoodSteps], dynamic ? 1.0f : 0.0f);
      const Result again = run(gradient, range, metrics_, scalars_with(1024.0f));
      EXPECT_TRUE(same_bits(again.grad, first.grad));
      EXPECT_TRUE(same_bits(again.scalars, first.scalars));
    }
  }
}

TEST_F(CheckKernel, Clips) {
  const Gradient gradient(random_, many_sizes());
  RangeParams range;
  range.clip_norm = 0.5f;
  const Result clipped = run(gradient, range, metrics_, scalars_with(1.0f));
  const double norm = gradient.norm(1.0);
  for (std::size_t i = 0; i < gradient.values.size(); ++i) {
    const double wanted = double{gradient.values[i]} * 0.5 / norm;
    ASSERT_NEAR(clipped.grad[i], wanted, 1e-6 * std::abs(wanted));
  }
  EXPECT_NEAR(clipped.scalars[names::kScalarGradNorm], norm, 1e-6 * norm) << "before clipping";
  range.clip_norm = static_cast<float>(2 * norm);
  EXPECT_TRUE(same_bits(run(gradient, range, metrics_, scalars_with(1.0f)).grad, gradient.values));
}

/// One bad value anywhere skips the step: first and last elements of parameters, the metrics.
TEST_F(CheckKernel, OneBadValueSkips) {
  const Gradient good(random_, many_sizes());
  RangeParams range;
  range.clip_norm = 1e-3f;
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    for (const std::size_t param :
         {std::size_t{0}, std::size_t{2}, std::size_t{3}, std::size_t{250}, std::size_t{307}}) {
      for (const bool last : {false, true}) {
        Gradient gradient = good;
        gradient.values[gradient.first[param] + (last ? gradient.elems[param] - 1 : 0)] = bad;
        const Result result = run(gradient, range, metrics_, scalars_with(1.0f));
        EXPECT_EQ(result.scalars[names::kScalarSkip], 1.0f) << bad << " in parameter " << param;
        EXPECT_EQ(result.scalars[names::kScalarSkippedSteps], 1.0f);
        EXPECT_EQ(result.scalars[names::kScalarBadSteps], 1.0f);
        EXPECT_TRUE(same_bits(result.grad, gradient.values)) << "not clipped";
      }
    }
    std::vector<float> metrics = metrics_;
    metrics[0] = bad;
    EXPECT_EQ(run(good, range, metrics, scalars_with(1.0f)).scalars[names::kScalarSkip], 1.0f);
  }
  Gradient large = good;
  large.values[5] = 0.0f;
  large.values[large.first[3]] = std::numeric_limits<float>::max();
  EXPECT_EQ(run(large, range, metrics_, scalars_with(1.0f)).scalars[names::kScalarSkip], 0.0f) << "large is finite";
}

/// The same decisions as the host's rule over a history of good and bad steps.
TEST_F(CheckKernel, DynamicLossScale) {
  RangeParams range;
  range.dynamic_loss_scale = true;
  range.loss_scale_interval = 3;
  Gradient gradient(random_, {5, 70});
  host_range::LossScale wanted{4.0f, 0.0f};
  std::vector<float> scalars = scalars_with(4.0f);
  float skipped = 0, in_a_row = 0;
  for (const bool finite : {true, true, false, true, true, true, true, false, false, false, false, false, true, true,
                            true, true, true, true}) {
    gradient.values[2] = finite ? 0.5f : INFINITY;
    scalars = run(gradient, range, metrics_, scalars).scalars;
    wanted = host_range::next_loss_scale(wanted, finite, range);
    skipped += finite ? 0.0f : 1.0f;
    in_a_row = finite ? 0.0f : in_a_row + 1.0f;
    EXPECT_EQ(scalars[names::kScalarLossScale], wanted.scale);
    EXPECT_EQ(scalars[names::kScalarGoodSteps], wanted.good_steps);
    EXPECT_EQ(scalars[names::kScalarSkippedSteps], skipped);
    EXPECT_EQ(scalars[names::kScalarBadSteps], in_a_row);
  }
  const std::vector<float> high = scalars_with(range.loss_scale_ceiling, 2.0f);
  gradient.values[2] = 0.5f;
  EXPECT_EQ(run(gradient, range, metrics_, high).scalars[names::kScalarLossScale], range.loss_scale_ceiling);
}

TEST_F(RangeKernel, SgdGivesTheHostsBits) {
  for (const std::size_t elems : kSizes) {
    for (const bool nesterov : {false, true}) {
      const std::vector<float> grad = random_floats(random_, elems);
      std::vector<float> weights = random_floats(random_, elems), momentum = random_floats(random_, elems);
      DeviceArray<float> device_grad(grad), device_weights(weights), device_momentum(momentum);
      DeviceArray<float> scalars(std::vector<float>(16, 0.0f));
      DeviceArray<ControlBlock> control({control_with(0, 0.37f)});
      Sgd sgd;
      sgd.grad = device_grad.data();
      sgd.weights = device_weights.data();
      sgd.momentum = device_momentum.data();
      sgd.elems = static_cast<std::int64_t>(elems);
      sgd.range.momentum = 0.9f;
      sgd.range.weight_decay = 5e-4f;
      sgd.range.nesterov = nesterov;
      sgd.control = control.data();
      sgd.scalars = scalars.data();
      for (int step = 0; step < 2; ++step) {
        launch(sgd, nullptr);
        synchronize();
        host_range::sgd(grad.data(), weights.data(), momentum.data(), sgd.elems, {0.37f, 0.9f, 5e-4f, nesterov});
        ASSERT_TRUE(same_bits(device_weights.get(), weights)) << elems << " elements, step " << step;
        ASSERT_TRUE(same_bits(device_momentum.get(), momentum)) << elems << " elements, step " << step;
      }
      std::vector<float> skip(16, 0.0f);
      skip[names::kScalarSkip] = 1.0f;
      scalars.set(skip);
      launch(sgd, nullptr);
      synchronize();
      ASSERT_TRUE(same_bits(device_weights.get(), weights)) << "a skipped step";
      ASSERT_TRUE(device_weights.fences_hold() && device_momentum.fences_hold());
    }
  }
}

constexpr std::size_t kChannels[] = {1, 3, 64, 257, 2048};

TEST_F(RangeKernel, UpdateStatisticsGivesTheHostsBits) {
  constexpr std::size_t kPairs = 250;  // more than two tables hold
  std::vector<std::vector<float>> running, batch;
  std::vector<std::unique_ptr<DeviceArray<float>>> device_running, device_batch;
  std::vector<RunningPair> pairs;
  for (std::size_t i = 0; i < kPairs; ++i) {
    const std::size_t channels = kChannels[i % 5];
    running.push_back(random_floats(random_, channels));
    batch.push_back(random_floats(random_, channels, 0, 8));
    device_running.push_back(std::make_unique<DeviceArray<float>>(running.back()));
    device_batch.push_back(std::make_unique<DeviceArray<float>>(batch.back()));
    pairs.push_back({device_running.back()->data(), device_batch.back()->data(), static_cast<std::int64_t>(channels),
                     i % 2 == 0 ? 0.1f : 0.03f});
  }
  DeviceArray<float> scalars(std::vector<float>(16, 0.0f));
  launch_update_statistics(pairs, 8, scalars.data(), nullptr);
  synchronize();
  for (std::size_t i = 0; i < kPairs; ++i) {
    host_range::update_running(running[i].data(), batch[i].data(), pairs[i].elems, pairs[i].momentum, 8);
    ASSERT_TRUE(same_bits(device_running[i]->get(), running[i])) << i;
    ASSERT_TRUE(device_running[i]->fences_hold());
  }
  std::vector<float> skip(16, 0.0f);
  skip[names::kScalarSkip] = 1.0f;
  scalars.set(skip);
  launch_update_statistics(pairs, 8, scalars.data(), nullptr);
  synchronize();
  for (std::size_t i = 0; i < kPairs; ++i) ASSERT_TRUE(same_bits(device_running[i]->get(), running[i])) << i;
}

TEST_F(RangeKernel, FoldBatchNormGivesTheHostsBits) {
  constexpr std::size_t kNorms = 130;
  std::vector<std::unique_ptr<DeviceArray<float>>> arrays;
  std::vector<std::vector<float>> host;
  std::vector<FoldedNorm> norms;
  for (std::size_t i = 0; i < kNorms; ++i) {
    const std::size_t channels = kChannels[i % 5];
    for (int k = 0; k < 4; ++k) {
      host.push_back(random_floats(random_, channels, k == 1 ? 0.01f : -2.0f, 2.0f));
      arrays.push_back(std::make_unique<DeviceArray<float>>(host.back()));
    }
    for (int k = 0; k < 2; ++k) arrays.push_back(std::make_unique<DeviceArray<float>>(channels));
    const auto at = [&](std::size_t k) { return arrays[6 * i + k]->data(); };
    norms.push_back({at(0), at(1), at(2), at(3), at(4), at(5), static_cast<std::int64_t>(channels), 1e-5f});
  }
  launch_fold_batch_norm(norms, nullptr);
  synchronize();
  for (std::size_t i = 0; i < kNorms; ++i) {
    std::vector<float> scale(host[4 * i].size()), bias(host[4 * i].size());
    host_range::fold_batch_norm({host[4 * i].data(), host[4 * i + 1].data(), host[4 * i + 2].data(),
                                 host[4 * i + 3].data(), scale.data(), bias.data(), norms[i].channels, 1e-5f});
    ASSERT_TRUE(same_bits(arrays[6 * i + 4]->get(), scale)) << i;
    ASSERT_TRUE(same_bits(arrays[6 * i + 5]->get(), bias)) << i;
    ASSERT_TRUE(arrays[6 * i + 4]->fences_hold() && arrays[6 * i + 5]->fences_hold());
  }
}

TEST_F(RangeKernel, AccumulateByPhaseAndShard) {
  DeviceArray<float> metrics({1.5f, 2.0f, 3.0f, 4.0f}), scalars(std::vector<float>(16, 0.0f));
  DeviceArray<double> sums(std::vector<double>(8 + 4 * 8, 1.0));
  DeviceArray<ControlBlock> control(1);
  const auto run = [&](std::int32_t phase, std::int32_t shard) {
    ControlBlock block;
    block.phase = phase;
    block.shard = shard;
    control.set({block});
    launch_accumulate(metrics.data(), sums.data(), 8, control.data(), scalars.data(), nullptr);
    synchronize();
  };
  std::vector<double> wanted(8 + 4 * 8, 1.0);
  const auto add = [&](std::size_t first) {
    for (std::size_t i = 0; i < 4; ++i) wanted[first + i] += i == 0 ? 1.5 : 1.0 + static_cast<double>(i);
  };
  run(0, 3);
  add(0);
  run(1, 5);
  add(8 + 4 * 5);
  EXPECT_EQ(sums.get(), wanted);
  run(1, 8);
  run(1, -1);
  EXPECT_EQ(sums.get(), wanted) << "shards out of range";
  std::vector<float> skip(16, 0.0f);
  skip[names::kScalarSkip] = 1.0f;
  scalars.set(skip);
  run(0, 0);
  EXPECT_EQ(sums.get(), wanted) << "a skipped step";
  run(1, 0);
  add(8);
  EXPECT_EQ(sums.get(), wanted) << "validation goes on";
  EXPECT_TRUE(sums.fences_hold());
}

TEST_F(RangeKernel, TreeSumGivesTheHostsBits) {
  for (const int count : {1, 2, 8, 64, 1024}) {
    std::vector<double> entries(4 * static_cast<std::size_t>(count));
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (double& value : entries) value = uniform(random_);
    DeviceArray<double> device(entries), total(4);
    launch_tree_sum_entries(device.data(), count, total.data(), nullptr);
    synchronize();
    std::vector<double> wanted(4);
    host_range::tree_sum_entries(entries.data(), count, wanted.data());
    EXPECT_TRUE(same_bits(total.get(), wanted)) << count;
    EXPECT_TRUE(total.fences_hold());
  }
}

TEST_F(RangeKernel, ReadBackFillsThePinnedRing) {
  void* memory = nullptr;
  testing::require_cuda(cudaMallocHost(&memory, 64 * 128), "allocating pinned memory");
  std::memset(memory, 0, 64 * 128);
  const auto* ring = static_cast<const float*>(memory);
  const std::vector<float> metrics = random_floats(random_, 16), scalars = random_floats(random_, 16);
  DeviceArray<float> device_metrics(metrics), device_scalars(scalars);
  DeviceArray<ControlBlock> control(1);
  const auto run = [&](std::int64_t step, std::int32_t phase) {
    ControlBlock block;
    block.step = step;
    block.phase = phase;
    control.set({block});
    launch_read_back(device_metrics.data(), device_scalars.data(), static_cast<std::byte*>(memory), control.data(),
                     nullptr);
    synchronize();
  };
  run(3 * 64 + 63, 0);
  run(8, 1);
  for (std::size_t i = 0; i < 64 * 32; ++i) {
    const std::size_t at = i % 32;
    const float wanted = i / 32 != 63 ? 0.0f : at < 16 ? metrics[at] : scalars[at - 16];
    ASSERT_EQ(ring[i], wanted) << i;
  }
  cudaFreeHost(memory);
}

TEST_F(RangeKernel, DigestEqualsTheHosts) {
  struct Item {
    std::size_t rows, row_elems, stride;
  };
  std::vector<Item> items{{1, 1, 0},       {1, 3, 0}, {1, 257, 0},   {1, 4096, 0}, {1, 4097, 0},
                          {1, 1000003, 0}, {5, 3, 4}, {333, 27, 64}, {7, 64, 64},  {3, 5, 0}};
  for (std::size_t i = 0; i < 190; ++i) items.push_back({1, 1 + i * 53 % 5000, 0});  // more than two tables hold
  std::vector<std::unique_ptr<DeviceArray<float>>> arrays;
  std::vector<DigestItem> list;
  std::vector<Digest128> wanted;
  for (const Item& item : items) {
    const std::size_t stride = item.stride == 0 ? item.row_elems : item.stride;
    const std::vector<float> values = random_floats(random_, item.rows * stride);
    std::vector<float> logical;
    for (std::size_t row = 0; row < item.rows; ++row) {
      const auto first = values.begin() + static_cast<std::ptrdiff_t>(row * stride);
      logical.insert(logical.end(), first, first + static_cast<std::ptrdiff_t>(item.row_elems));
    }
    wanted.push_back(tensor_digest(logical));
    arrays.push_back(std::make_unique<DeviceArray<float>>(values));
    list.push_back({arrays.back()->data(), static_cast<std::int64_t>(item.rows),
                    static_cast<std::int64_t>(item.row_elems), static_cast<std::int64_t>(item.stride)});
  }
  DeviceArray<std::byte> out(items.size() * sizeof(Digest128));
  for (int attempt = 0; attempt < 2; ++attempt) {
    out.poison();
    launch_digest(list, out.data(), nullptr);
    synchronize();
    const std::vector<std::byte> bytes = out.get();
    std::vector<Digest128> got(items.size());
    std::memcpy(got.data(), bytes.data(), bytes.size());
    for (std::size_t i = 0; i < items.size(); ++i) ASSERT_EQ(got[i], wanted[i]) << "item " << i;
    ASSERT_TRUE(out.fences_hold());
  }
}

}  // namespace
}  // namespace renai::cuda
