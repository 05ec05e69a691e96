#pragma once
// Matrix products of linear layers through cuBLASLt: one algorithm for each problem, without atomic reductions.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "plan_choices.hpp"
#include "renai/backend/backend.hpp"
#include "renai/tensor/dtype.hpp"

namespace renai::cuda {

enum class LinearPass : std::uint8_t { forward, data, weights };

/// y[n, k] = x[n, c] * w[k, c]^T (+ bias[k]) (relu); dx = dy * w; dw = dy^T * x. Row-major, dense.
struct LinearProblem {
  LinearPass pass = LinearPass::forward;
  std::int64_t n = 0, c = 0, k = 0;
  DType dtype = DType::f32, weights_out = DType::f32;
  bool bias = false, relu = false;

  std::string text() const;
};

class LinearPlan {
 public:
  virtual ~LinearPlan() = default;
  virtual std::int64_t workspace_bytes() const = 0;
  virtual const std::string& name() const = 0;
  /// Operands by pass: forward x w [bias] y; data dy w dx; weights x dy dw.
  virtual void execute(void* queue, const void* a, const void* b, const void* bias, void* out,
                       std::byte* workspace) = 0;
};

class LinearPlanner {
 public:
  virtual ~LinearPlanner() = default;
  /// Errors: BackendError with the library's reason.
  virtual std::shared_ptr<LinearPlan> plan(const LinearProblem& problem) = 0;
};

/// As make_conv_planner; the heuristics' first candidate is taken in both search modes.
std::unique_ptr<LinearPlanner> make_linear_planner(Precision precision, PlanChoices& choices);

/// "cuBLASLt 13.0.2"
std::string cublaslt_version_text();

}  // namespace renai::cuda
