#pragma once
// OpInstance: a case made into a graph (forward and backward of one operator, as in a training step) with random inputs
// and what to look at afterwards. Shared by parity tests and benchmarks.

#include <cstdint>
#include <string>
#include <vector>

#include "op_case.hpp"
#include "op_harness.hpp"

namespace renai::test {

struct OpInstance {
  struct FloatInput {
    TensorId tensor = kNoTensor;
    std::vector<float> values;
  };
  struct IntInput {
    TensorId tensor = kNoTensor;
    std::vector<std::int32_t> values;
  };
  struct Output {
    TensorId tensor = kNoTensor;
    std::int64_t depth = 1;  ///< Products or terms that are summed into one element.
    bool exact = false;      ///< Every backend must give the same bits.
  };
  /// `gradient` is the derivative of sum(dy * y) by `input`; without dy, of metrics[0] / N.
  struct GradientCheck {
    TensorId input = kNoTensor, gradient = kNoTensor, y = kNoTensor, dy = kNoTensor;
    bool linear = false;  ///< y is linear in the input: differences have no truncation error.
  };

  OpGraph graph;
  ShapeId variant{1, 1, 1, 1};
  SlotLayout slot = SlotLayout::make(1, 1, 1, 1);
  std::vector<FloatInput> floats;
  std::vector<IntInput> ints;
  ControlBlock control;
  std::vector<std::byte> slot_bytes;  ///< For slot A; empty where no slot is read.
  std::vector<Output> outputs;
  std::vector<GradientCheck> gradients;
  std::int64_t flops = 0;  ///< Multiply-adds times two of all nodes; 0 for operators bound by memory.
};

/// Operators with a case file, in the order of op.hpp.
const std::vector<std::string>& op_case_files();

/// Determinism: a pure function of the case and the seed. Errors: UserError for a case that makes no sense.
OpInstance make_op_instance(const OpCase& op_case, std::uint64_t seed);

/// Poisons everything, then sets the inputs.
void set_inputs(const OpInstance& instance, OpHarness& harness);

}  // namespace renai::test
