#pragma once
// SimpleTask: one hand-built graph in the SIMPLE_TASK_GRAPH slot, through the same plan, capture and replay as a
// training step.

#include <memory>
#include <span>
#include <vector>

#include "renai/train/engine.hpp"

namespace renai {

/// A graph on one rank, every tensor of which can be set before a run and read after it.
class SimpleTask {
 public:
  /// Plans, captures and keeps `graph`, whose nodes all stand in SIMPLE_TASK_GRAPH.
  /// Shapes: `shapes` has one for each tensor. Errors: BackendError where a node has no kernel.
  SimpleTask(ComputationGraph graph, std::vector<Shape> shapes, const Run& run);
  ~SimpleTask();
  SimpleTask(const SimpleTask&) = delete;
  SimpleTask& operator=(const SimpleTask&) = delete;

  /// Values of a tensor that is stored as f32 without padding, in its shape's order. Errors: InternalError for another
  /// number of values or another tensor.
  void set(TensorId tensor, std::span<const float> values);
  std::vector<float> get(TensorId tensor);
  /// Launches once and waits. Errors: the failure of the work.
  void run();
  /// Launches without waiting; `synchronize` waits for all that was launched.
  void launch();
  void synchronize();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace renai
