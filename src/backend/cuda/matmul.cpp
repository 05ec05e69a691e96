#include "matmul.hpp"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <charconv>
#include <iterator>
#include <map>
#include <memory>

#include "checked.hpp"
#include "renai/base/check.hpp"
#include "renai/base/error.hpp"

namespace renai::cuda {
namespace {

constexpr std::size_t kMaxWorkspaceBytes = std::size_t{1} << 25;

void require(cublasStatus_t status, const std::string& what) {
  if (status != CUBLAS_STATUS_SUCCESS) throw BackendError(what, cublasLtGetStatusString(status), kGpuRemedy);
}

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return CUDA_R_32F;
    case DType::f16: return CUDA_R_16F;
    case DType::bf16: return CUDA_R_16BF;
    default: throw InternalError("a matrix product of " + std::string(dtype_name(dtype)), "f32, f16 and bf16 only");
  }
}

cublasComputeType_t compute_type(Precision precision) {
  return precision == Precision::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

class Handle {
 public:
  Handle() { require(cublasLtCreate(&handle_), "starting cuBLASLt"); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { cublasLtDestroy(handle_); }
  cublasLtHandle_t get() const { return handle_; }

 private:
  cublasLtHandle_t handle_ = nullptr;
};

class Layout {
 public:
  Layout(DType dtype, std::int64_t rows, std::int64_t columns) {
    require(cublasLtMatrixLayoutCreate(&layout_, data_type(dtype), static_cast<std::uint64_t>(rows),
                                       static_cast<std::uint64_t>(columns), rows),
            "describing a matrix");
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  ~Layout() { cublasLtMatrixLayoutDestroy(layout_); }
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

/// The library is column-major: a row-major [r, c] is its c x r. A, B, D are therefore the transposed operands, in the
/// order in which the product's factors swap.
struct Sides {
  std::int64_t a_rows, a_columns, b_rows, b_columns, d_rows, d_columns;
  cublasOperation_t a_op, b_op;
};

Sides sides_of(const LinearProblem& p) {
  switch (p.pass) {
    case LinearPass::forward: return {p.c, p.k, p.c, p.n, p.k, p.n, CUBLAS_OP_T, CUBLAS_OP_N};  // w, x -> y
    case LinearPass::data: return {p.c, p.k, p.k, p.n, p.c, p.n, CUBLAS_OP_N, CUBLAS_OP_N};     // w, dy -> dx
    case LinearPass::weights: return {p.c, p.n, p.k, p.n, p.c, p.k, CUBLAS_OP_N, CUBLAS_OP_T};  // x, dy -> dw
  }
  throw InternalError("a matrix product", "the pass is unknown");
}

/// The operation and the layouts of one problem.
class Operation {
 public:
  Operation(const LinearProblem& p, Precision precision)
      : Operation(p, sides_of(p), p.pass == LinearPass::weights ? p.weights_out : p.dtype, precision) {}

  cublasLtMatmulDesc_t desc() const { return desc_.get(); }
  cublasLtMatrixLayout_t a() const { return a_.get(); }
  cublasLtMatrixLayout_t b() const { return b_.get(); }
  cublasLtMatrixLayout_t d() const { return d_.get(); }

  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) const {
    require(cublasLtMatmulDescSetAttribute(desc(), attribute, &value, sizeof value), "describing a matrix product");
  }

 private:
  Operation(const LinearProblem& p, const Sides& sides, DType out, Precision precision)
      : a_(p.dtype, sides.a_rows, sides.a_columns),
        b_(p.dtype, sides.b_rows, sides.b_columns),
        d_(out, sides.d_rows, sides.d_columns) {
    cublasLtMatmulDesc_t made = nullptr;
    require(cublasLtMatmulDescCreate(&made, compute_type(precision), CUDA_R_32F), "describing a matrix product");
    desc_.reset(made);
    set(CUBLASLT_MATMUL_DESC_TRANSA, sides.a_op);
    set(CUBLASLT_MATMUL_DESC_TRANSB, sides.b_op);
    if (!p.bias && !p.relu) return;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, !p.relu  ? CUBLASLT_EPILOGUE_BIAS
                                       : p.bias ? CUBLASLT_EPILOGUE_RELU_BIAS
                                                : CUBLASLT_EPILOGUE_RELU);
    if (p.bias) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(p.dtype));
  }

  struct DestroyDesc {
    void operator()(cublasLtMatmulDesc_t desc) const { cublasLtMatmulDescDestroy(desc); }
  };
  Layout a_, b_, d_;
  std::unique_ptr<cublasLtMatmulDescOpaque_t, DestroyDesc> desc_;
};

/// The attributes that make up an algorithm. Its opaque words hold more than that, and differ between equal ones.
constexpr cublasLtMatmulAlgoConfigAttributes_t kAlgoAttributes[] = {CUBLASLT_ALGO_CONFIG_ID,
                                                                    CUBLASLT_ALGO_CONFIG_TILE_ID,
                                                                    CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                                                    CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                                                    CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING,
                                                                    CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION,
                                                                    CUBLASLT_ALGO_CONFIG_STAGES_ID,
                                                                    CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID,
                                                                    CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID};
constexpr std::size_t kAlgoAttributeCount = std::size(kAlgoAttributes);
using AlgoValues = std::array<std::uint32_t, kAlgoAttributeCount>;

/// Two of the attributes have 16 bits.
std::size_t attribute_bytes(cublasLtMatmulAlgoConfigAttributes_t attribute) {
  const bool narrow =
      attribute == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID || attribute == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
  return narrow ? sizeof(std::uint16_t) : sizeof(std::uint32_t);
}

AlgoValues values_of(const cublasLtMatmulAlgo_t& algo) {
  AlgoValues values{};
  for (std::size_t i = 0; i < kAlgoAttributeCount; ++i) {
    std::size_t written = 0;
    require(cublasLtMatmulAlgoConfigGetAttribute(&algo, kAlgoAttributes[i], &values[i],
                                                 attribute_bytes(kAlgoAttributes[i]), &written),
            "reading a matrix product's algorithm");
  }
  return values;
}

/// "32768 21:15:1:0:0:0:36:0:3": workspace, then the attributes.
std::string algo_text(const AlgoValues& values, std::size_t workspace_bytes) {
  std::string text = std::to_string(workspace_bytes) + " ";
  for (std::size_t i = 0; i < values.size(); ++i) text += (i == 0 ? "" : ":") + std::to_string(values[i]);
  return text;
}

bool parse_algo(std::string_view text, AlgoValues& values, std::size_t& workspace_bytes) {
  const auto number = [&text](auto& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
  };
  if (!number(workspace_bytes)) return false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (text.empty() || text.front() != (i == 0 ? ' ' : ':')) return false;
    text.remove_prefix(1);
    if (!number(values[i])) return false;
  }
  return text.empty();
}

class LtPlan final : public LinearPlan {
 public:
  LtPlan(std::shared_ptr<Handle> handle, const LinearProblem& problem, Precision precision,
         const cublasLtMatmulAlgo_t& algo, std::size_t workspace_bytes, std::string name)
      : handle_(std::move(handle)),
        problem_(problem),
        operation_(problem, precision),
        algo_(algo),
        workspace_bytes_(workspace_bytes),
        name_(std::move(name)) {}

  std::int64_t workspace_bytes() const override { return static_cast<std::int64_t>(workspace_bytes_); }
  const std::string& name() const override { return name_; }

  void execute(void* queue, const void* a, const void* b, const void* bias, void* out, std::byte* workspace) override {
    if (problem_.bias) operation_.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    // Forward and data take the weights as the library's first factor.
    const bool swap = problem_.pass != LinearPass::weights;
    const float one = 1.0f, zero = 0.0f;
    require(cublasLtMatmul(handle_->get(), operation_.desc(), &one, swap ? b : a, operation_.a(), swap ? a : b,
                           operation_.b(), &zero, out, operation_.d(), out, operation_.d(), &algo_, workspace,
                           workspace_bytes_, static_cast<cudaStream_t>(queue)),
            "running " + problem_.text());
  }

 private:
  std::shared_ptr<Handle> handle_;
  LinearProblem problem_;
  Operation operation_;
  cublasLtMatmulAlgo_t algo_;
  std::size_t workspace_bytes_;
  std::string name_;
};

class LtPlanner final : public LinearPlanner {
 public:
  LtPlanner(Precision precision, PlanChoices& choices)
      : precision_(precision), choices_(&choices), handle_(std::make_shared<Handle>()) {}

  std::shared_ptr<LinearPlan> plan(const LinearProblem& problem) override {
    const std::string text = problem.text();
    if (const auto known = plans_.find(text); known != plans_.end()) return known->second;
    std::shared_ptr<LinearPlan> plan;
    if (const auto choice = choices_->find(text)) plan = chosen_plan(problem, *choice);
    if (!plan) {
      plan = search(problem);
      choices_->set(text, plan->name());
    }
    plans_[text] = plan;
    return plan;
  }

 private:
  /// Null when this library does not take the choice.
  std::shared_ptr<LinearPlan> chosen_plan(const LinearProblem& problem, const std::string& choice) const {
    AlgoValues values{};
    std::size_t workspace_bytes = 0;
    if (!parse_algo(choice, values, workspace_bytes)) return nullptr;
    const cudaDataType_t type = data_type(problem.dtype);
    const cudaDataType_t out = data_type(problem.pass == LinearPass::weights ? problem.weights_out : problem.dtype);
    cublasLtMatmulAlgo_t algo{};
    cublasStatus_t status = cublasLtMatmulAlgoInit(handle_->get(), compute_type(precision_), CUDA_R_32F, type, type,
                                                   out, out, static_cast<int>(values[0]), &algo);
    for (std::size_t i = 1; i < values.size() && status == CUBLAS_STATUS_SUCCESS; ++i) {
      status = cublasLtMatmulAlgoConfigSetAttribute(&algo, kAlgoAttributes[i], &values[i],
                                                    attribute_bytes(kAlgoAttributes[i]));
    }
    if (status != CUBLAS_STATUS_SUCCESS) return nullptr;
    const Operation operation(problem, precision_);
    cublasLtMatmulHeuristicResult_t result{};
    status = cublasLtMatmulAlgoCheck(handle_->get(), operation.desc(), operation.a(), operation.b(), operation.d(),
                                     operation.d(), &algo, &result);
    if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > workspace_bytes) return nullptr;
    return std::make_shared<LtPlan>(handle_, problem, precision_, algo, workspace_bytes, choice);
  }

  std::shared_ptr<LinearPlan> search(const LinearProblem& problem) const {
    const Operation operation(problem, precision_);
    cublasLtMatmulPreference_t preference = nullptr;
    require(cublasLtMatmulPreferenceCreate(&preference), "choosing a matrix product");
    const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, cublasStatus_t (*)(cublasLtMatmulPreference_t)> owner(
        preference, cublasLtMatmulPreferenceDestroy);
    const std::size_t limit = kMaxWorkspaceBytes;
    // Split sums may only be combined by a kernel of their own, in a fixed order.
    const std::uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    require(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit,
                                                 sizeof limit),
            "choosing a matrix product");
    require(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                                                 sizeof schemes),
            "choosing a matrix product");
    // Half copies of weights start at multiples of 128 bytes, everything else at 256.
    constexpr std::uint32_t kAlignment = 128;
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      require(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &kAlignment, sizeof kAlignment),
              "choosing a matrix product");
    }
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_->get(), operation.desc(), operation.a(), operation.b(), operation.d(),
                                       operation.d(), preference, 1, &result, &found);
    if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
      throw BackendError("cuBLASLt plan of " + problem.text(),
                         std::string("no algorithm takes it: ") + cublasLtGetStatusString(status), kPlanRemedy);
    }
    // Made again from its text: every rank, and every later run, then holds the same.
    const std::string name = algo_text(values_of(result.algo), result.workspaceSize);
    std::shared_ptr<LinearPlan> plan = chosen_plan(problem, name);
    if (!plan) {
      plan = std::make_shared<LtPlan>(handle_, problem, precision_, result.algo, result.workspaceSize, name);
    }
    return plan;
  }

  Precision precision_;
  PlanChoices* choices_;
  std::shared_ptr<Handle> handle_;
  std::map<std::string, std::shared_ptr<LinearPlan>> plans_;
};

}  // namespace

std::string LinearProblem::text() const {
  static constexpr const char* kPass[] = {"fwd", "dgrad", "wgrad"};
  std::string text = std::string("linear ") + kPass[static_cast<int>(pass)] + " " + std::string(dtype_name(dtype));
  if (pass == LinearPass::weights) text += "->" + std::string(dtype_name(weights_out));
  text += " n" + std::to_string(n) + " c" + std::to_string(c) + " k" + std::to_string(k);
  if (bias) text += " +bias";
  if (relu) text += " +relu";
  return text;
}

std::unique_ptr<LinearPlanner> make_linear_planner(Precision precision, PlanChoices& choices) {
  return std::make_unique<LtPlanner>(precision, choices);
}

std::string cublaslt_version_text() {
  const std::size_t version = cublasLtGetVersion();
  return "cuBLASLt " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace renai::cuda
