#pragma once
// OpHarness: a hand-built graph in the SIMPLE_TASK_GRAPH slot on one rank, through plan, capture and replay, with every
// tensor and region in reach. Add op_harness.cpp to the test's sources.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "captured_plans.hpp"

namespace renai::test {

/// Tensors, their shapes and the nodes of SIMPLE_TASK_GRAPH, put together by a test.
class OpGraph {
 public:
  OpGraph();

  TensorId add_tensor(const std::string& name, TensorRole role, const Shape& shape);
  /// A parameter with weight, gradient and momentum, and the second moment if the graph's optimizer has one, in one
  /// deep bucket; returns its index.
  std::int32_t add_param(const std::string& name, ParamKind kind, const Shape& shape, bool decay = true);
  /// A batch norm over `channels` with scale and bias parameters; returns its index.
  std::int32_t add_norm(const std::string& name, std::int64_t channels, const BatchNormParams& params);
  /// Slots A and B, control block, labels, mix, weights and metrics for shards of `rows`.
  void add_input_side(std::int64_t rows);

  void add_compute(OpKind op, Pass pass, OpParams params, std::vector<TensorId> inputs, std::vector<TensorId> outputs);
  void add_range(RangeOp op, const RangeParams& params, std::vector<std::string> inputs,
                 std::vector<std::string> outputs);

  const ComputationGraph::Parts& parts() const { return parts_; }
  ComputationGraph::Parts& parts() { return parts_; }
  const std::vector<Shape>& shapes() const { return shapes_; }
  const ParamInfo& param(std::int32_t index) const { return parts_.params.at(static_cast<std::size_t>(index)); }
  const NormInfo& norm(std::int32_t index) const { return parts_.norms.at(static_cast<std::size_t>(index)); }

  TensorId labels = kNoTensor, mix_labels = kNoTensor, mix_lambda = kNoTensor, sample_weights = kNoTensor;

 private:
  ComputationGraph::Parts parts_;
  std::vector<Shape> shapes_;
};

class OpHarness {
 public:
  /// `variant` names the capture's shape only. `slot` is needed where the graph reads a slot. `device`: where the
  /// backend runs, null for the host. Memory of another device is copied there by `launch` and back by `wait`. Errors:
  /// those of survey, plan and capture.
  OpHarness(const OpGraph& graph, Backend& backend, const ShapeId& variant = {1, 1, 1, 1},
            const SlotLayout& slot = SlotLayout::make(1, 1, 1, 1), std::unique_ptr<Device> device = nullptr);

  /// Every byte of the arena becomes 0xFF, all floats are not numbers, all integers -1; or 0. The control block is a
  /// new one.
  void poison();
  void clear();
  /// Logical values; padding becomes zero.
  void set(TensorId tensor, std::span<const float> values);
  void set_ints(TensorId tensor, std::span<const std::int32_t> values);
  void set_control(const ControlBlock& control);
  std::vector<float> get(TensorId tensor) const;
  std::vector<std::int32_t> get_ints(TensorId tensor) const;

  std::span<std::byte> region(std::string_view name);
  std::span<float> region_floats(std::string_view name);
  std::span<std::byte> bytes_of(TensorId tensor);
  std::span<std::byte> staging(int index);
  std::span<const float> read_back(std::int64_t step) const;

  /// Replays the captured graph once and waits. Errors: the failure of a kernel.
  void run();
  /// Replays without waiting; `wait` ends it.
  void launch();
  void wait();

  const ComputationGraph& graph() const { return all_->graph; }
  const KernelBook& book() const { return all_->book; }
  const MemoryPlan& plan() const { return all_->plans.front(); }

 private:
  void fill(int byte);
  std::unique_ptr<CapturedPlans> all_;
};

}  // namespace renai::test
