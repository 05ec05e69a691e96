#pragma once
// SimpleTask: one hand-built graph in the SIMPLE_TASK_GRAPH slot, through the same plan, capture and replay as a
// training step.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "renai/train/engine.hpp"

namespace renai {

class SimpleTask {
 public:
  /// Plans, captures and keeps `graph` (nodes in SIMPLE_TASK_GRAPH only) for one shape. `shapes` gives every tensor's
  /// shape.
  SimpleTask(ComputationGraph graph, std::vector<Shape> shapes, const Run& run);
  ~SimpleTask();
  void set(TensorId tensor, std::span<const float> values);
  std::vector<float> get(TensorId tensor);
  /// Launches once and waits. Errors: the failure of the work.
  void run();
  /// Launches without waiting.
  void launch();
  void synchronize();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace renai
