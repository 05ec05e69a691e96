#pragma once
// Convolutions through cuDNN's graphs: one plan for each problem, among deterministic engines.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "plan_choices.hpp"
#include "renai/backend/backend.hpp"
#include "renai/graph/op.hpp"
#include "renai/tensor/dtype.hpp"
#include "renai/tensor/shape.hpp"

namespace renai::cuda {

enum class ConvPass : std::uint8_t { forward, data, weights };

/// Activations NHWC `dtype`, weights KRSC `dtype`. `bias`: forward adds a bias of `dtype` in the same kernel.
/// `weights_out`: type of the weight gradient.
struct ConvProblem {
  ConvPass pass = ConvPass::forward;
  Shape x, y;  ///< x may have stored channels beyond the weights' use.
  Conv2dParams params;
  DType dtype = DType::f32, weights_out = DType::f32;
  bool bias = false;

  std::string text() const;  ///< Everything that a plan depends on.
};

/// A built plan. Immutable; its addresses are given at execution.
class ConvPlan {
 public:
  virtual ~ConvPlan() = default;
  virtual std::int64_t workspace_bytes() const = 0;
  virtual const std::string& name() const = 0;  ///< Place in the heuristics' list, engine and knobs.
  /// Enqueues on `queue` (cudaStream_t). Operands by pass: forward x w [bias] y; data dy w dx; weights x dy dw.
  virtual void execute(void* queue, const void* a, const void* b, const void* bias, void* out,
                       std::byte* workspace) = 0;
};

/// Makes plans and remembers them. Not thread-safe.
class ConvPlanner {
 public:
  virtual ~ConvPlanner() = default;
  /// Errors: BackendError with cuDNN's reason when no deterministic engine takes the problem.
  virtual std::shared_ptr<ConvPlan> plan(const ConvProblem& problem) = 0;
};

/// `choices` is read first and gets what was chosen; it must outlive the planner. `measure`: time the candidates
/// instead of taking the heuristics' first. fp32 uses no tensor cores, tf32 does.
/// `tried` is called after each timed candidate.
std::unique_ptr<ConvPlanner> make_conv_planner(Precision precision, bool measure, PlanChoices& choices,
                                               std::function<void()> tried = {});

/// "cuDNN 9.19.0"
std::string cudnn_version_text();

}  // namespace renai::cuda
