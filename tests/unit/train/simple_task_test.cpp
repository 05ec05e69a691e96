// SimpleTask: operators through the engine's own plan, capture and replay.
#include "renai/train/simple_task.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "op_harness.hpp"
#include "renai/base/error.hpp"
#include "train_case.hpp"

namespace renai {
namespace {

using testing::OneRank;

/// relu(x w^T + b). Shapes: x 2x3, w 4x3, b 4, y 2x4.
struct LinearRelu {
  LinearRelu() {
    const LinearParams linear{4, true};
    graph.add_compute(OpKind::linear, Pass::forward, linear, {x, w, b}, {sum});
    graph.add_compute(OpKind::activation, Pass::forward, ActivationParams{Activation::relu}, {sum}, {y});
  }

  SimpleTask make(const Run& run) const { return {ComputationGraph(graph.parts()), graph.shapes(), run}; }
  void set(SimpleTask& task) const {
    task.set(w, std::vector<float>{1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1});
    task.set(b, std::vector<float>{0, 0.5f, -1, 0});
  }

  test::OpGraph graph;
  TensorId x = graph.add_tensor("x", TensorRole::activation, {2, 3});
  TensorId w = graph.param(graph.add_param("fc.weight", ParamKind::linear_weight, {4, 3})).weight;
  TensorId b = graph.param(graph.add_param("fc.bias", ParamKind::bias, {4})).weight;
  TensorId sum = graph.add_tensor("sum", TensorRole::activation, {2, 4});
  TensorId y = graph.add_tensor("y", TensorRole::activation, {2, 4});
};

TEST(SimpleTask, EachRunComputesFromWhatIsSet) {
  OneRank rank;
  const LinearRelu ops;
  SimpleTask task = ops.make(rank.run());
  ops.set(task);
  task.set(ops.x, std::vector<float>{1, 2, 3, -1, -2, -3});
  task.run();
  EXPECT_EQ(task.get(ops.sum), (std::vector<float>{1, 2.5f, 2, 6, -1, -1.5f, -4, -6}));
  EXPECT_EQ(task.get(ops.y), (std::vector<float>{1, 2.5f, 2, 6, 0, 0, 0, 0}));
  task.set(ops.x, std::vector<float>{0, 0, 0, 0, 0, 4});
  task.launch();
  task.launch();
  task.synchronize();
  EXPECT_EQ(task.get(ops.y), (std::vector<float>{0, 0.5f, 0, 0, 0, 0.5f, 3, 4}));
}

TEST(SimpleTask, ReplayedAndEnqueuedWorkGiveTheSameBits) {
  const LinearRelu ops;
  std::vector<std::vector<float>> results;
  for (const bool capture : {true, false}) {
    OneRank rank;
    auto run = rank.run();
    run.capture = capture;
    SimpleTask task = ops.make(run);
    ops.set(task);
    task.set(ops.x, std::vector<float>{0.1f, 0.2f, 0.3f, -0.7f, 1e-3f, 7});
    task.run();
    results.push_back(task.get(ops.y));
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(SimpleTask, ValuesFillTheShape) {
  OneRank rank;
  const LinearRelu ops;
  SimpleTask task = ops.make(rank.run());
  EXPECT_THROW(task.set(ops.x, std::vector<float>{1, 2, 3}), InternalError);
}

}  // namespace
}  // namespace renai
