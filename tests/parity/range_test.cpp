// RANGE operations of a backend against plain arithmetic.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "op_harness.hpp"
#include "renai/base/digest.hpp"
#include "renai/base/error.hpp"
#include "renai/graph/region_name.hpp"
#include "under_test.hpp"

namespace renai::test {
namespace {

namespace names = region_name;

constexpr std::int64_t kRows = 3;

class RangeParity : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      backend_ = make_backend_under_test();
    } catch (const BackendError& error) {
      GTEST_SKIP() << error.what();
    }
    graph_.add_input_side(kRows);
    weight_ = graph_.param(graph_.add_param("w", ParamKind::conv_weight, {3, 3, 3, 5}));
    bias_ = graph_.param(graph_.add_param("b", ParamKind::bias, Shape{7}, false));
    norm_ = graph_.norm(graph_.add_norm("bn", 6, {0.01f, 0.25f}));
    scale_ = graph_.param(norm_.scale_param);
    shift_ = graph_.param(norm_.bias_param);
  }

  OpHarness& build(RangeOp op, const RangeParams& params, std::vector<std::string> inputs,
                   std::vector<std::string> outputs) {
    graph_.parts().options.logical_shards = params.logical_shards;
    graph_.add_range(op, params, std::move(inputs), std::move(outputs));
    harness_ = std::make_unique<OpHarness>(graph_, *backend_, ShapeId{kRows, 1, 1, 1}, SlotLayout::make(kRows, 2, 2, 1),
                                           make_device_under_test());
    return *harness_;
  }

  std::vector<float> random(std::int64_t count, float low = -1, float high = 1) {
    std::uniform_real_distribution<float> uniform(low, high);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = uniform(random_);
    return values;
  }

  std::vector<float> fill(TensorId id, float low = -1, float high = 1) {
    const std::vector<float> values = random(harness_->plan().tensor(id).shape.elems(), low, high);
    harness_->set(id, values);
    return values;
  }

  std::vector<float> fill_region(const std::string& name) {
    const std::span<float> region = harness_->region_floats(name);
    const std::vector<float> values = random(static_cast<std::int64_t>(region.size()));
    std::copy(values.begin(), values.end(), region.begin());
    return values;
  }

  ControlBlock control_;
  std::mt19937_64 random_{std::random_device{}()};
  OpGraph graph_;
  ParamInfo weight_, bias_, scale_, shift_;
  NormInfo norm_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<OpHarness> harness_;
};

TEST_F(RangeParity, CopySlotCopiesTheStagingBufferOfItsSlot) {
  for (const int index : {0, 1}) {
    graph_.parts().nodes[static_cast<std::size_t>(GraphId::SIMPLE_TASK_GRAPH)].clear();
    OpHarness& harness = build(RangeOp::copy_slot, {}, {}, {std::string(index == 0 ? names::kSlotA : names::kSlotB)});
    for (std::byte& value : harness.staging(0)) value = std::byte{0x5A};
    for (std::byte& value : harness.staging(1)) value = std::byte{0xA5};
    harness.clear();
    harness.run();
    const std::byte wanted = index == 0 ? std::byte{0x5A} : std::byte{0xA5};
    const auto slot = harness.region(index == 0 ? names::kSlotA : names::kSlotB);
    for (std::int64_t i = 0; i < harness.plan().slot.size_bytes; ++i) {
      ASSERT_EQ(slot[static_cast<std::size_t>(i)], wanted);
    }
    EXPECT_EQ(harness.region(index == 0 ? names::kSlotB : names::kSlotA)[0], std::byte{0});
  }
}

TEST_F(RangeParity, ZeroClearsItsRegionAndNothingElse) {
  OpHarness& harness = build(RangeOp::zero, {}, {}, {std::string(names::kShardValues)});
  harness.poison();
  harness.run();
  for (const std::byte value : harness.region(names::kShardValues)) ASSERT_EQ(value, std::byte{0});
  for (const std::byte value : harness.region(names::kWeights)) ASSERT_EQ(value, std::byte{0xFF});
  for (const std::byte value : harness.region(names::kMomentum)) ASSERT_EQ(value, std::byte{0xFF});
}

/// Eight shards one after the other give the balanced tree, bit for bit; a shard of several micro-batches is their sum
/// in order.
TEST_F(RangeParity, MergeShardIsTheBalancedTree) {
  for (const int micro_batches : {1, 3}) {
    graph_.parts().nodes[static_cast<std::size_t>(GraphId::SIMPLE_TASK_GRAPH)].clear();
    graph_.parts().options.micro_batches = micro_batches;
    RangeParams params;
    params.logical_shards = params.local_shards = 8;
    params.micro_batches = micro_batches;
    std::vector<std::string> inputs{"metrics", "bn_batch", "counter0", "counter1", "counter2"};
    if (micro_batches > 1) inputs.emplace_back(names::kMicro);
    OpHarness& harness = build(RangeOp::merge_shard, params, inputs, {"metrics", "bn_batch"});
    harness.clear();
    std::vector<std::vector<float>> shards(8);
    for (std::int32_t pass = 0; pass < 8 * micro_batches; ++pass) {
      control_.local_shard = pass / micro_batches;
      control_.micro_batch = pass % micro_batches;
      harness.set_control(control_);
      std::vector<float> all = fill_region("metrics");
      const std::vector<float> batch = fill_region("bn_batch");
      all.insert(all.end(), batch.begin(), batch.end());
      std::vector<float>& shard = shards[static_cast<std::size_t>(control_.local_shard)];
      if (shard.empty()) shard.assign(all.size(), 0.0f);
      for (std::size_t i = 0; i < all.size(); ++i) shard[i] += all[i];
      harness.run();
    }
    const auto metrics = harness.region_floats("metrics"), batch = harness.region_floats("bn_batch");
    for (std::size_t i = 0; i < shards[0].size(); ++i) {
      const auto v = [&](std::size_t shard) { return shards[shard][i]; };
      const float sum = ((v(0) + v(1)) + (v(2) + v(3))) + ((v(4) + v(5)) + (v(6) + v(7)));
      ASSERT_EQ(i < metrics.size() ? metrics[i] : batch[i - metrics.size()], sum) << "element " << i;
    }
    EXPECT_EQ(harness.region_floats("grad")[0], 0.0f) << "regions outside of the values stay";
  }
}

class CheckAndScale : public RangeParity {
 protected:
  void prepare(float clip_norm, const RangeParams& scaling = {}) {
    RangeParams params = scaling;
    params.logical_shards = 4;
    params.clip_norm = clip_norm;
    build(RangeOp::check_and_scale, params, {"grad", "metrics"}, {"grad", "scalars"});
    harness_->clear();
    w_ = fill(weight_.grad);
    b_ = fill(bias_.grad);
    double squares = 0;
    for (auto* values : {&w_, &b_}) {
      for (float& value : *values) {
        value /= 4;
        squares += double{value} * double{value};
      }
    }
    norm_of_scaled_ = std::sqrt(squares);
  }
  float scalar(int index) { return harness_->region_floats(names::kScalars)[static_cast<std::size_t>(index)]; }

  std::vector<float> w_, b_;
  double norm_of_scaled_ = 0;
};

TEST_F(CheckAndScale, DividesByTheShardsAndReportsTheNorm) {
  prepare(0.0f);
  harness_->run();
  EXPECT_EQ(harness_->get(weight_.grad), w_);
  EXPECT_EQ(harness_->get(bias_.grad), b_);
  EXPECT_NEAR(scalar(names::kScalarGradNorm), norm_of_scaled_, 1e-6 * norm_of_scaled_);
  EXPECT_EQ(scalar(names::kScalarSkip), 0.0f);
  EXPECT_EQ(scalar(names::kScalarSkippedSteps), 0.0f);
}

TEST_F(CheckAndScale, ClipsToTheNorm) {
  prepare(0.125f);
  ASSERT_GT(norm_of_scaled_, 0.125);
  harness_->run();
  double squares = 0;
  for (const float value : harness_->get(weight_.grad)) squares += double{value} * double{value};
  for (const float value : harness_->get(bias_.grad)) squares += double{value} * double{value};
  EXPECT_NEAR(std::sqrt(squares), 0.125, 1e-5);
  EXPECT_NEAR(scalar(names::kScalarGradNorm), norm_of_scaled_, 1e-6 * norm_of_scaled_) << "the norm before clipping";
}

TEST_F(CheckAndScale, LeavesASmallGradientUnclipped) {
  prepare(1000.0f);
  harness_->run();
  EXPECT_EQ(harness_->get(weight_.grad), w_);
}

TEST_F(CheckAndScale, AnyValueThatIsNotFiniteSkipsTheStep) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    graph_.parts().nodes[static_cast<std::size_t>(GraphId::SIMPLE_TASK_GRAPH)].clear();
    prepare(0.125f);
    harness_->region_floats(names::kMetrics)[0] = bad;
    harness_->run();
    EXPECT_EQ(scalar(names::kScalarSkip), 1.0f);
    EXPECT_EQ(harness_->get(weight_.grad), w_) << "a skipped step's gradient is scaled but not clipped";
    harness_->region_floats(names::kMetrics)[0] = 0.0f;
    std::vector<float> broken = b_;
    broken.back() = bad;
    harness_->set(bias_.grad, broken);
    harness_->run();
    EXPECT_EQ(scalar(names::kScalarSkip), 1.0f);
    EXPECT_EQ(scalar(names::kScalarSkippedSteps), 2.0f);
    EXPECT_EQ(scalar(names::kScalarBadSteps), 2.0f);
    harness_->set(bias_.grad, b_);
    harness_->run();
    EXPECT_EQ(scalar(names::kScalarSkip), 0.0f);
    EXPECT_EQ(scalar(names::kScalarSkippedSteps), 2.0f);
    EXPECT_EQ(scalar(names::kScalarBadSteps), 0.0f);
  }
}

/// The gradient of a scaled loss is unscaled; an overflow skips the step and halves the scale, good steps double it.
TEST_F(CheckAndScale, ADynamicLossScaleShrinksAndGrows) {
  RangeParams scaling;
  scaling.dynamic_loss_scale = true;
  scaling.loss_scale_interval = 3;
  prepare(0.0f, scaling);
  const auto set_scale = [&](float scale) {
    harness_->region_floats(names::kScalars)[names::kScalarLossScale] = scale;
  };
  const auto scaled = [](std::vector<float> values, float factor) {
    for (float& value : values) value *= factor;
    return values;
  };
  set_scale(1024.0f);
  harness_->set(weight_.grad, scaled(w_, 4 * 1024.0f));
  harness_->set(bias_.grad, scaled(b_, 4 * 1024.0f));
  harness_->run();
  EXPECT_EQ(harness_->get(weight_.grad), w_);
  EXPECT_EQ(harness_->get(bias_.grad), b_);
  EXPECT_NEAR(scalar(names::kScalarGradNorm), norm_of_scaled_, 1e-6 * norm_of_scaled_) << "of the gradient itself";
  EXPECT_EQ(scalar(names::kScalarLossScale), 1024.0f);
  EXPECT_EQ(scalar(names::kScalarGoodSteps), 1.0f);

  std::vector<float> broken = w_;
  broken[1] = std::numeric_limits<float>::infinity();
  harness_->set(weight_.grad, broken);
  harness_->run();
  EXPECT_EQ(scalar(names::kScalarSkip), 1.0f);
  EXPECT_EQ(scalar(names::kScalarLossScale), 512.0f);
  EXPECT_EQ(scalar(names::kScalarGoodSteps), 0.0f);
  EXPECT_EQ(scalar(names::kScalarSkippedSteps), 1.0f);
  harness_->set(weight_.grad, w_);
  for (const auto& [scale, good] : {std::pair{512.0f, 1.0f}, {512.0f, 2.0f}, {1024.0f, 0.0f}, {1024.0f, 1.0f}}) {
    harness_->run();
    EXPECT_EQ(scalar(names::kScalarSkip), 0.0f);
    EXPECT_EQ(scalar(names::kScalarLossScale), scale);
    EXPECT_EQ(scalar(names::kScalarGoodSteps), good);
  }
  set_scale(1.0f);
  harness_->region_floats(names::kMetrics)[0] = std::numeric_limits<float>::quiet_NaN();
  harness_->run();
  EXPECT_EQ(scalar(names::kScalarLossScale), 1.0f) << "the floor";
}

/// Each element at half the distance from the region's start, nearest in the book's half type.
TEST_F(RangeParity, CastWeightsRoundsEveryElement) {
  graph_.parts().options.half_weights = true;
  OpHarness& harness =
      build(RangeOp::cast_weights, {}, {std::string(names::kWeights)}, {std::string(names::kWeightsHalf)});
  harness.poison();
  for (float& value : harness.region_floats(names::kWeights)) value = 0.0f;
  const std::vector<float> weights = fill(weight_.weight);
  fill(bias_.weight);
  harness.run();
  const bool f16 = harness.book().half_dtype == DType::f16;
  const auto decode = [f16](std::uint16_t half) {
    if (!f16) return double{std::bit_cast<float>(std::uint32_t{half} << 16)};
    const double magnitude =
        (half & 0x7C00) == 0 ? std::ldexp(half & 1023, -24) : std::ldexp(1024 + (half & 1023), (half >> 10 & 31) - 25);
    return (half & 0x8000) != 0 ? -magnitude : magnitude;
  };
  const std::span<const std::byte> half = harness.region(names::kWeightsHalf);
  const std::span<const float> all = harness.region_floats(names::kWeights);
  ASSERT_GE(half.size(), 2 * all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, half.data() + 2 * i, sizeof bits);
    const double unit = f16 ? 0x1p-11 : 0x1p-8;
    ASSERT_NEAR(decode(bits), double{all[i]}, unit * std::abs(double{all[i]}) + 0x1p-25) << i;
  }
  EXPECT_EQ(harness.get(weight_.weight), weights);
}

/// Three steps from a zero buffer against the published rule in fp64.
TEST_F(RangeParity, SgdFollowsThePublishedRule) {
  for (const bool nesterov : {false, true}) {
    graph_.parts().nodes[static_cast<std::size_t>(GraphId::SIMPLE_TASK_GRAPH)].clear();
    RangeParams params;
    params.momentum = 0.9f;
    params.nesterov = nesterov;
    params.weight_decay = 0.01f;
    OpHarness& harness =
        build(RangeOp::sgd, params, {"grad.deep0.decay", "weights.deep0.decay", "momentum.deep0.decay", "scalars"},
              {"weights.deep0.decay", "momentum.deep0.decay"});
    harness.clear();
    const std::vector<float> start = fill(weight_.weight), other = fill(bias_.weight);
    std::vector<double> w(start.begin(), start.end()), buf(start.size(), 0.0);
    for (int step = 0; step < 3; ++step) {
      control_.lr = 0.5f / static_cast<float>(step + 1);
      harness.set_control(control_);
      const std::vector<float> grad = fill(weight_.grad);
      harness.run();
      for (std::size_t i = 0; i < w.size(); ++i) {
        const double g = double{grad[i]} + 0.01 * w[i];
        buf[i] = 0.9 * buf[i] + g;
        w[i] -= double{control_.lr} * (nesterov ? g + 0.9 * buf[i] : buf[i]);
      }
    }
    const std::vector<float> got = harness.get(weight_.weight), momentum = harness.get(weight_.momentum);
    for (std::size_t i = 0; i < w.size(); ++i) {
      ASSERT_NEAR(double{got[i]}, w[i], 2e-6);
      ASSERT_NEAR(double{momentum[i]}, buf[i], 2e-6);
    }
    EXPECT_EQ(harness.get(bias_.weight), other) << "another segment";
    harness.region_floats(names::kScalars)[names::kScalarSkip] = 1.0f;
    harness.run();
    EXPECT_EQ(harness.get(weight_.weight), got) << "a skipped step changes nothing";
    EXPECT_EQ(harness.get(weight_.momentum), momentum);
  }
}

TEST_F(RangeParity, UpdateStatisticsTakesTheMeanOfTheShards) {
  RangeParams params;
  params.logical_shards = 4;
  OpHarness& harness = build(RangeOp::update_statistics, params, {"bn_batch", "scalars"}, {"bn_running"});
  harness.clear();
  const std::vector<float> mean = fill(norm_.running_mean), var = fill(norm_.running_var, 0, 1);
  const std::vector<float> batch_mean = fill(norm_.batch_mean), batch_var = fill(norm_.batch_var, 0, 4);
  harness.run();
  const std::vector<float> new_mean = harness.get(norm_.running_mean), new_var = harness.get(norm_.running_var);
  for (std::size_t c = 0; c < mean.size(); ++c) {
    EXPECT_NEAR(new_mean[c], 0.75 * double{mean[c]} + 0.25 * double{batch_mean[c]} / 4, 1e-7);
    EXPECT_NEAR(new_var[c], 0.75 * double{var[c]} + 0.25 * double{batch_var[c]} / 4, 1e-7);
  }
  harness.region_floats(names::kScalars)[names::kScalarSkip] = 1.0f;
  harness.run();
  EXPECT_EQ(harness.get(norm_.running_mean), new_mean);
}

/// The first update that is not skipped takes the values; the others are PyTorch's, each product rounded.
TEST_F(RangeParity, AveragesFollowTheirValues) {
  RangeParams params;
  params.ema_decay = 0.75;
  OpHarness& harness = build(RangeOp::ema, params, {"weights", "scalars"}, {"momentum"});
  harness.clear();
  float& skip = harness.region_floats(names::kScalars)[names::kScalarSkip];
  float& skipped = harness.region_floats(names::kScalars)[names::kScalarSkippedSteps];
  std::vector<float> w = fill(weight_.weight), b = fill(bias_.weight);
  const auto run = [&](std::int64_t step) {
    control_.step = step;
    harness.set_control(control_);
    harness.run();
  };
  skip = skipped = 1.0f;
  run(0);
  EXPECT_EQ(harness.get(weight_.momentum), std::vector<float>(w.size(), 0.0f)) << "a skipped step changes nothing";
  skip = 0.0f;
  run(1);
  EXPECT_EQ(harness.get(weight_.momentum), w);
  EXPECT_EQ(harness.get(bias_.momentum), b);
  std::vector<float> wanted = w;
  for (std::int64_t step = 2; step < 5; ++step) {
    w = fill(weight_.weight);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const volatile float kept = 0.75f * wanted[i], added = 0.25f * w[i];
      wanted[i] = kept + added;
    }
    run(step);
    EXPECT_EQ(harness.get(weight_.momentum), wanted) << "step " << step;
  }
}

TEST_F(RangeParity, FoldedBatchNormIsTheNormOfRunningStatistics) {
  OpHarness& harness = build(RangeOp::fold_batch_norm, {}, {"bn_running", "weights"}, {"bn_folded"});
  harness.poison();
  const std::vector<float> mean = fill(norm_.running_mean), var = fill(norm_.running_var, 0, 2);
  const std::vector<float> scale = fill(scale_.weight), shift = fill(shift_.weight);
  harness.run();
  const std::vector<float> folded_scale = harness.get(norm_.folded_scale), folded_bias = harness.get(norm_.folded_bias);
  for (std::size_t c = 0; c < mean.size(); ++c) {
    const double x = 0.7;
    const double wanted =
        (x - double{mean[c]}) / std::sqrt(double{var[c]} + double{0.01f}) * double{scale[c]} + double{shift[c]};
    EXPECT_NEAR(x * double{folded_scale[c]} + double{folded_bias[c]}, wanted, 3e-6);
  }
}

class Accumulators : public RangeParity {
 protected:
  std::span<double> sums() {
    const auto bytes = harness_->region(names::kAccumulators);
    return {reinterpret_cast<double*>(bytes.data()), bytes.size() / sizeof(double)};
  }
  void set_metrics(float loss) {
    const auto metrics = harness_->region_floats(names::kMetrics);
    for (std::size_t i = 0; i < 4; ++i) metrics[i] = loss + static_cast<float>(i);
  }
};

TEST_F(Accumulators, SumByPhaseAndShard) {
  RangeParams params;
  params.logical_shards = 8;
  build(RangeOp::accumulate, params, {"metrics", "scalars"}, {"accumulators"});
  harness_->clear();
  set_metrics(1.5f);
  harness_->run();
  harness_->run();
  control_.phase = 1;
  control_.shard = 5;
  harness_->set_control(control_);
  harness_->run();
  for (std::size_t i = 0; i < sums().size(); ++i) {
    const std::size_t shard = names::kAccumulatorShards + 4 * 5;
    const double wanted = i < 4                         ? 2 * (1.5 + static_cast<double>(i))
                          : i >= shard && i < shard + 4 ? 1.5 + static_cast<double>(i - shard)
                                                        : 0.0;
    EXPECT_EQ(sums()[i], wanted) << "entry " << i;
  }
  control_.phase = 0;
  harness_->set_control(control_);
  harness_->region_floats(names::kScalars)[names::kScalarSkip] = 1.0f;
  set_metrics(std::numeric_limits<float>::quiet_NaN());
  harness_->run();
  EXPECT_EQ(sums()[0], 3.0) << "a skipped step is not counted";
}

TEST_F(Accumulators, TotalIsTheTreeOverTheShards) {
  RangeParams params;
  params.logical_shards = params.local_shards = 4;
  build(RangeOp::reduce_accumulators, params, {"accumulators"}, {"accumulators"});
  harness_->clear();
  std::array<std::array<double, 4>, 4> entries{};
  for (std::size_t shard = 0; shard < 4; ++shard) {
    for (std::size_t i = 0; i < 4; ++i) {
      entries[shard][i] = std::uniform_real_distribution<double>(0, 1)(random_);
      sums()[names::kAccumulatorShards + 4 * shard + i] = entries[shard][i];
    }
  }
  harness_->run();
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(sums()[names::kAccumulatorTotal + i], (entries[0][i] + entries[1][i]) + (entries[2][i] + entries[3][i]));
    EXPECT_EQ(sums()[names::kAccumulatorShards + i], entries[0][i]) << "the shards' entries stay";
  }
}

TEST_F(Accumulators, ClearSetsAllToZero) {
  build(RangeOp::clear_accumulators, {}, {}, {"accumulators"});
  harness_->poison();
  harness_->run();
  for (const double sum : sums()) EXPECT_EQ(sum, 0.0);
}

TEST_F(RangeParity, ReadBackFillsTheRingInTraining) {
  OpHarness& harness = build(RangeOp::read_back, {}, {"metrics", "scalars"}, {});
  harness.clear();
  const std::vector<float> metrics = fill_region("metrics"), scalars = fill_region("scalars");
  control_.step = 3 * kReadBackSlots + 7;
  harness.set_control(control_);
  harness.run();
  const auto slot = harness.read_back(7);
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(slot[i], metrics[i]);
    EXPECT_EQ(slot[16 + i], scalars[i]);
  }
  control_.step = 8;
  control_.phase = 1;
  harness.set_control(control_);
  harness.run();
  EXPECT_EQ(harness.read_back(8)[0], 0.0f) << "validation leaves the ring alone";
}

TEST_F(RangeParity, DigestCoversElementsInOrderOfThePlan) {
  OpHarness& harness = build(RangeOp::digest, {}, {"weights", "momentum", "bn_running", "grad"}, {"digests"});
  harness.clear();
  const std::vector<TensorId> order = digest_tensors(harness.graph());
  ASSERT_EQ(order.size(), 4u * 3u + 2u);
  std::vector<Digest128> wanted;
  for (const TensorId id : order) wanted.push_back(tensor_digest(fill(id)));
  harness.run();
  std::vector<Digest128> got(order.size());
  std::memcpy(got.data(), harness.region(names::kDigests).data(), got.size() * sizeof(Digest128));
  EXPECT_EQ(got, wanted);
  std::vector<float> changed = harness.get(bias_.momentum);
  std::swap(changed[0], changed[1]);
  harness.set(bias_.momentum, changed);
  harness.run();
  std::vector<Digest128> after(order.size());
  std::memcpy(after.data(), harness.region(names::kDigests).data(), after.size() * sizeof(Digest128));
  for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(after[i] == got[i], order[i] != bias_.momentum);
}

}  // namespace
}  // namespace renai::test
