#include "convolution.hpp"

#include <cuda_runtime_api.h>
#include <cudnn_frontend.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "checked.hpp"
#include "renai/base/check.hpp"
#include "renai/base/error.hpp"
#include "renai/base/text.hpp"

namespace renai::cuda {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

/// Workspaces above this are not worth their memory. Units: bytes.
constexpr std::int64_t kMaxWorkspaceBytes = std::int64_t{1} << 29;
/// Candidates that `measure` times, in the order of the heuristics.
constexpr std::int64_t kMeasuredCandidates = 12;

enum Uid : std::int64_t { kFirst = 1, kSecond, kBias, kOut };

using cuda::require;

void require(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS) throw BackendError(what, cudnnGetErrorString(status), kGpuRemedy);
}

fe::DataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return fe::DataType_t::FLOAT;
    case DType::f16: return fe::DataType_t::HALF;
    case DType::bf16: return fe::DataType_t::BFLOAT16;
    default: throw InternalError("a convolution of " + std::string(dtype_name(dtype)), "cuDNN takes f32, f16, bf16");
  }
}

Tensor nhwc(fe::graph::Graph& graph, const char* name, Uid uid, const Shape& shape, DType dtype) {
  const std::int64_t n = shape.n(), h = shape.h(), w = shape.w(), c = shape.c();
  return graph.tensor(fe::graph::Tensor_attributes()
                          .set_name(name)
                          .set_uid(uid)
                          .set_data_type(data_type(dtype))
                          .set_dim({n, c, h, w})
                          .set_stride({h * w * c, 1, w * c, c}));
}

void make_output(const Tensor& tensor, Uid uid, const Shape& shape, DType dtype) {
  const std::int64_t n = shape.n(), h = shape.h(), w = shape.w(), c = shape.c();
  tensor->set_output(true)
      .set_uid(uid)
      .set_data_type(data_type(dtype))
      .set_dim({n, c, h, w})
      .set_stride({h * w * c, 1, w * c, c});
}

template <typename Attributes>
Attributes attributes(const WindowParams& window) {
  return Attributes()
      .set_padding({window.pad_h, window.pad_w})
      .set_stride({window.stride_h, window.stride_w})
      .set_dilation({window.dilation_h, window.dilation_w});
}

std::string choice_text(std::int64_t engine, const std::unordered_map<fe::KnobType_t, std::int64_t>& knobs) {
  std::map<int, std::int64_t> sorted;
  for (const auto& [knob, value] : knobs) sorted[static_cast<int>(knob)] = value;
  std::string text = std::to_string(engine) + ":";
  for (const auto& [knob, value] : sorted) text += std::to_string(knob) + "=" + std::to_string(value) + ",";
  if (text.back() == ',') text.pop_back();
  return text;
}

/// "3 67:2=7,6=1": the third candidate of the heuristics' list, which names engine and knobs. The place finds a
/// candidate again, the rest proves that the list is still the same: knobs that the front end has no name for would be
/// lost.
std::string plan_name(fe::graph::Graph& graph, std::int64_t index) {
  std::int64_t engine = 0;
  std::unordered_map<fe::KnobType_t, std::int64_t> knobs;
  auto status = graph.get_engine_and_knobs_at_index(index, engine, knobs);
  if (status.is_bad()) throw BackendError("asking for an engine's knobs", status.get_message(), kPlanRemedy);
  return std::to_string(index) + " " + choice_text(engine, knobs);
}

/// -1 when the text is not one of plan_name.
std::int64_t place_of(std::string_view choice) {
  std::int64_t index = -1;
  const auto [end, error] = std::from_chars(choice.data(), choice.data() + choice.size(), index);
  return error == std::errc() && end != choice.data() + choice.size() && *end == ' ' ? index : -1;
}

class Handle {
 public:
  Handle() { require(cudnnCreate(&handle_), "starting cuDNN"); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { cudnnDestroy(handle_); }
  cudnnHandle_t get() const { return handle_; }

 private:
  cudnnHandle_t handle_ = nullptr;
};

class CudnnPlan final : public ConvPlan {
 public:
  CudnnPlan(std::shared_ptr<Handle> handle, std::shared_ptr<fe::graph::Graph> graph, std::int64_t index,
            std::string name)
      : handle_(std::move(handle)), graph_(std::move(graph)), index_(index), name_(std::move(name)) {
    workspace_bytes_ = graph_->get_workspace_size_plan_at_index(index_);
  }

  std::int64_t workspace_bytes() const override { return workspace_bytes_; }
  const std::string& name() const override { return name_; }

  void execute(void* queue, const void* a, const void* b, const void* bias, void* out, std::byte* workspace) override {
    std::unordered_map<std::int64_t, void*> pack{
        {kFirst, const_cast<void*>(a)}, {kSecond, const_cast<void*>(b)}, {kOut, out}};
    if (bias != nullptr) pack[kBias] = const_cast<void*>(bias);
    require(cudnnSetStream(handle_->get(), static_cast<cudaStream_t>(queue)), "handing a stream to cuDNN");
    auto status = graph_->execute_plan_at_index(handle_->get(), pack, workspace, index_);
    if (status.is_bad()) throw BackendError("running a convolution (" + name_ + ")", status.get_message(), kGpuRemedy);
  }

 private:
  std::shared_ptr<Handle> handle_;
  std::shared_ptr<fe::graph::Graph> graph_;
  std::int64_t index_;
  std::string name_;
  std::int64_t workspace_bytes_ = 0;
};

/// Device memory for timing candidates at start-up.
class Scratch {
 public:
  explicit Scratch(std::int64_t size_bytes) {
    const auto asked = static_cast<std::size_t>(std::max<std::int64_t>(size_bytes, 256));
    const cudaError_t status = cudaMalloc(&data_, asked);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      throw ResourceError("cannot allocate device memory to time convolutions", format_bytes(size_bytes) + " asked for",
                          "use --kernel-search heuristic or a smaller batch, or end other programs on this GPU");
    }
    require(status, "allocating memory to time convolutions");
    require(cudaMemset(data_, 0, asked), "clearing memory");
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { cudaFree(data_); }
  std::byte* get() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

class TimingEvent {
 public:
  TimingEvent() { require(cudaEventCreate(&event_), "timing convolutions"); }
  TimingEvent(const TimingEvent&) = delete;
  TimingEvent& operator=(const TimingEvent&) = delete;
  ~TimingEvent() { cudaEventDestroy(event_); }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudnnPlanner final : public ConvPlanner {
 public:
  CudnnPlanner(Precision precision, bool measure, PlanChoices& choices, std::function<void()> tried)
      : precision_(precision),
        measure_(measure),
        choices_(&choices),
        tried_(std::move(tried)),
        handle_(std::make_shared<Handle>()) {}

  std::shared_ptr<ConvPlan> plan(const ConvProblem& problem) override {
    const std::string text = problem.text();
    if (const auto known = plans_.find(text); known != plans_.end()) return known->second;
    std::shared_ptr<ConvPlan> plan;
    if (const auto choice = choices_->find(text)) plan = chosen_plan(problem, *choice);
    if (!plan) {
      plan = search(problem);
      choices_->set(text, plan->name());
    }
    plans_[text] = plan;
    return plan;
  }

 private:
  std::shared_ptr<fe::graph::Graph> make_graph(const ConvProblem& problem) const {
    auto graph = std::make_shared<fe::graph::Graph>();
    graph->set_io_data_type(data_type(problem.dtype))
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    const Shape weights{problem.y.c(), problem.params.window.kernel_h, problem.params.window.kernel_w,
                        problem.x.c() / problem.params.groups};
    const WindowParams& window = problem.params.window;
    switch (problem.pass) {
      case ConvPass::forward: {
        const Tensor x = nhwc(*graph, "x", kFirst, problem.x, problem.dtype);
        const Tensor w = nhwc(*graph, "w", kSecond, weights, problem.dtype);
        Tensor y = graph->conv_fprop(x, w, attributes<fe::graph::Conv_fprop_attributes>(window));
        if (problem.bias) {
          y->set_data_type(fe::DataType_t::FLOAT);
          const Tensor bias = nhwc(*graph, "bias", kBias, Shape{1, 1, 1, problem.y.c()}, problem.dtype);
          y = graph->pointwise(y, bias, fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::ADD));
        }
        make_output(y, kOut, problem.y, problem.dtype);
        break;
      }
      case ConvPass::data: {
        const Tensor dy = nhwc(*graph, "dy", kFirst, problem.y, problem.dtype);
        const Tensor w = nhwc(*graph, "w", kSecond, weights, problem.dtype);
        make_output(graph->conv_dgrad(dy, w, attributes<fe::graph::Conv_dgrad_attributes>(window)), kOut, problem.x,
                    problem.dtype);
        break;
      }
      case ConvPass::weights: {
        const Tensor x = nhwc(*graph, "x", kFirst, problem.x, problem.dtype);
        const Tensor dy = nhwc(*graph, "dy", kSecond, problem.y, problem.dtype);
        make_output(graph->conv_wgrad(dy, x, attributes<fe::graph::Conv_wgrad_attributes>(window)), kOut, weights,
                    problem.weights_out);
        break;
      }
    }
    check(graph->validate(), problem);
    check(graph->build_operation_graph(handle_->get()), problem);
    return graph;
  }

  static void check(fe::error_t status, const ConvProblem& problem) {
    if (status.is_bad()) throw BackendError("cuDNN plan of " + problem.text(), status.get_message(), kPlanRemedy);
  }

  /// A graph with the candidates that may be taken, in the order of the heuristics. Determinism: no timing takes part.
  std::shared_ptr<fe::graph::Graph> make_candidates(const ConvProblem& problem) const {
    auto graph = make_graph(problem);
    check(graph->create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}), problem);
    graph->deselect_numeric_notes(refused_notes());
    graph->deselect_workspace_greater_than(kMaxWorkspaceBytes);
    return graph;
  }

  /// Null when this library's list has another candidate in that place.
  std::shared_ptr<ConvPlan> chosen_plan(const ConvProblem& problem, const std::string& choice) const {
    const std::int64_t index = place_of(choice);
    auto graph = make_candidates(problem);
    if (index < 0 || index >= graph->get_execution_plan_count() || plan_name(*graph, index) != choice) return nullptr;
    if (graph->build_plan_at_index(index).is_bad()) return nullptr;
    return std::make_shared<CudnnPlan>(handle_, std::move(graph), index, choice);
  }

  /// Engines that the precision and the determinism contract leave out.
  std::vector<fe::NumericalNote_t> refused_notes() const {
    using Note = fe::NumericalNote_t;
    std::vector<Note> notes{Note::NONDETERMINISTIC, Note::REDUCED_PRECISION_REDUCTION};
    if (precision_ == Precision::fp32 || precision_ == Precision::tf32) {
      notes.insert(notes.end(), {Note::FFT, Note::WINOGRAD, Note::WINOGRAD_TILE_4x4, Note::WINOGRAD_TILE_6x6,
                                 Note::WINOGRAD_TILE_13x13});
    }
    if (precision_ == Precision::fp32) notes.insert(notes.end(), {Note::TENSOR_CORE, Note::DOWN_CONVERT_INPUTS});
    return notes;
  }

  std::shared_ptr<ConvPlan> search(const ConvProblem& problem) const {
    auto graph = make_candidates(problem);
    const std::int64_t count = graph->get_execution_plan_count();
    std::shared_ptr<CudnnPlan> best;
    double best_seconds = 0;
    std::string reasons;
    std::int64_t measured = 0;
    for (std::int64_t i = 0; i < count && (measure_ ? measured < kMeasuredCandidates : best == nullptr); ++i) {
      auto status = graph->build_plan_at_index(i);
      if (status.is_bad()) {
        reasons += "\n  candidate " + std::to_string(i) + ": " + status.get_message();
        continue;
      }
      auto plan = std::make_shared<CudnnPlan>(handle_, graph, i, plan_name(*graph, i));
      if (!measure_) return plan;
      ++measured;
      const double seconds = time_plan(problem, *plan);
      if (tried_) tried_();
      if (best == nullptr || seconds < best_seconds) {
        best = plan;
        best_seconds = seconds;
      }
    }
    if (best == nullptr) {
      throw BackendError("cuDNN plan of " + problem.text(), "no deterministic engine takes it" + reasons, kPlanRemedy);
    }
    return best;
  }

  static double time_plan(const ConvProblem& problem, CudnnPlan& plan) {
    const auto elems = [&](const Shape& shape) { return align_up(shape.elems() * 4); };
    const Shape weights{problem.y.c(), problem.params.window.kernel_h, problem.params.window.kernel_w, problem.x.c()};
    const std::int64_t x_bytes = elems(problem.x), y_bytes = elems(problem.y), w_bytes = elems(weights);
    const Scratch scratch(x_bytes + y_bytes + w_bytes + align_up(problem.y.c() * 4) + plan.workspace_bytes());
    std::byte *x = scratch.get(), *y = x + x_bytes, *w = y + y_bytes, *bias = w + w_bytes;
    std::byte* workspace = bias + align_up(problem.y.c() * 4);
    const void* first = problem.pass == ConvPass::data ? y : x;
    const void* second = problem.pass == ConvPass::weights ? y : w;
    void* out = problem.pass == ConvPass::forward ? y : problem.pass == ConvPass::data ? x : w;
    const TimingEvent start, end;
    float best_ms = 0;
    for (int round = 0; round < 4; ++round) {
      require(cudaEventRecord(start.get(), nullptr), "timing convolutions");
      plan.execute(nullptr, first, second, problem.bias ? bias : nullptr, out, workspace);
      require(cudaEventRecord(end.get(), nullptr), "timing convolutions");
      require(cudaEventSynchronize(end.get()), "timing convolutions");
      float ms = 0;
      require(cudaEventElapsedTime(&ms, start.get(), end.get()), "timing convolutions");
      if (round == 1 || (round > 1 && ms < best_ms)) best_ms = ms;
    }
    return double{best_ms};
  }

  static std::int64_t align_up(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

  Precision precision_;
  bool measure_;
  PlanChoices* choices_;
  std::function<void()> tried_;
  std::shared_ptr<Handle> handle_;
  std::map<std::string, std::shared_ptr<ConvPlan>> plans_;
};

}  // namespace

std::string ConvProblem::text() const {
  static constexpr const char* kPass[] = {"fwd", "dgrad", "wgrad"};
  std::string text = std::string("conv ") + kPass[static_cast<int>(pass)] + " " + std::string(dtype_name(dtype));
  if (pass == ConvPass::weights) text += "->" + std::string(dtype_name(weights_out));
  text += " x" + x.str() + " y" + y.str() + " " + print(OpParams(params));
  if (bias) text += " +bias";
  return text;
}

std::unique_ptr<ConvPlanner> make_conv_planner(Precision precision, bool measure, PlanChoices& choices,
                                               std::function<void()> tried) {
  return std::make_unique<CudnnPlanner>(precision, measure, choices, std::move(tried));
}

std::string cudnn_version_text() {
  const std::size_t version = cudnnGetVersion();
  return "cuDNN " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace renai::cuda
