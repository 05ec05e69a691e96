#pragma once
// StepHarness: one training step of a small model, on one rank or several, through plan, capture and replay, with every
// tensor in reach of a test. Add step_harness.cpp to the test's sources.

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "captured_plans.hpp"

namespace renai::test {

struct StepHarnessOptions {
  ModelSpec model;
  std::int64_t batch = 8, h = 28, w = 28, c = 1;
  std::int64_t classes = 10;
  int logical_shards = 1;
  int micro_batches = 1;  ///< Of each shard.
  float lr = 0.1f, momentum = 0.9f, weight_decay = 0.0f;
  bool nesterov = false;
  OptimizerKind optimizer = OptimizerKind::sgd;
  AdamParams adam;
  LarsParams lars;
  float label_smoothing = 0.0f;
  double ema_decay = 0.0;
  std::vector<int> freeze_group_of_param;  ///< As in GraphOptions.
  bool sync_bn = false;                    ///< Likewise.
  InputParams input;
  std::int64_t bucket_bytes = std::int64_t{4} << 20;
  bool reuse_slots = true;
  std::uint64_t seed = 1;
};

/// Parameters, gradients and momentum go in and out in logical layout (convolution K C R S, linear K x (C H W)).
class StepHarness {
 public:
  /// `device`: where the backend runs, null for the host. Memory of another device is copied there and back by each
  /// step. `ranks`: each of them has such a harness and runs its own shards; empty for one rank alone.
  StepHarness(const StepHarnessOptions& options, std::unique_ptr<Backend> backend,
              std::unique_ptr<Device> device = nullptr, Ranks ranks = {});

  const ComputationGraph& graph() const { return all_->graph; }
  const std::vector<MemoryPlan>& plans() const { return all_->plans; }
  const GraphAtlas& atlas() const { return *all_->atlas; }

  std::vector<std::string> param_names() const;
  std::int64_t param_elems(const std::string& name) const;
  std::vector<float> param(const std::string& name) const;
  /// The gradient of the step's mean loss, as the optimizer saw it.
  std::vector<float> grad(const std::string& name) const;
  std::vector<float> momentum(const std::string& name) const;
  /// The exponential average of a parameter, with `ema_decay`.
  std::vector<float> average(const std::string& name) const;
  void set_param(const std::string& name, std::span<const float> values);
  void set_momentum(const std::string& name, std::span<const float> values);
  /// Of Adam and AdamW.
  std::vector<float> second_moment(const std::string& name) const;
  void set_second_moment(const std::string& name, std::span<const float> values);
  /// "bn1.running_mean", "bn1.running_var".
  std::vector<float> running(const std::string& name) const;
  void set_running(const std::string& name, std::span<const float> values);

  /// One step on `images` (uint8, [batch, h, w, c]) and `labels` ([batch]); returns the mean loss. Shard s takes the
  /// rows from s * batch / V on, its micro-batches in order.
  double step(std::span<const std::uint8_t> images, std::span<const std::int32_t> labels);
  /// Logits [batch, classes] of images with the running statistics. V = 1.
  std::vector<float> infer(std::span<const std::uint8_t> images);
  /// Crop, flip, mixing and erasing of the rows of the following steps; none: whole images, not mixed.
  void set_samples(std::vector<SampleParams> samples) { samples_ = std::move(samples); }
  /// The rate of the steps to come.
  void set_lr(float lr) { options_.lr = lr; }
  /// Freeze groups that the steps to come leave as they are.
  void set_frozen(std::set<int> groups) { frozen_ = std::move(groups); }
  std::int64_t steps_done() const { return step_; }
  /// Values of any placed tensor of the training variant, as f32 in stored layout.
  std::vector<float> tensor(TensorId id) const;

 private:
  int local_shards() const { return graph().local_shards(); }
  void stage(int pass, std::span<const std::uint8_t> images, std::span<const std::int32_t> labels);
  void launch(GraphId id);
  void update_weights();
  const ParamInfo& find_param(const std::string& name) const;
  TensorId find_running(const std::string& name) const;
  std::vector<float> read_param(const ParamInfo& info, TensorId id) const;
  void write_param(const ParamInfo& info, TensorId id, std::span<const float> values);
  std::array<std::int64_t, 4> logical_extents(const ParamInfo& info) const;
  std::span<float> values_of(TensorId id) const;

  StepHarnessOptions options_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<CapturedPlans> all_;
  std::vector<SampleParams> samples_;
  std::set<int> frozen_;
  std::int64_t step_ = 0;
};

}  // namespace renai::test
