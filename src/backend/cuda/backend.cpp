// The cuda backend: cuDNN, cuBLASLt and own kernels, recorded into CUDA streams.

#include <cuda_runtime_api.h>

#include <chrono>

#include "../lowering/lowering.hpp"
#include "checked.hpp"
#include "leaf.hpp"
#include "range_ops.hpp"
#include "renai/backend/cuda.hpp"
#include "renai/base/check.hpp"
#include "renai/base/error.hpp"
#include "renai/base/log.hpp"
#include "renai/device/cuda.hpp"
#include "renai/graph/shape_inference.hpp"

namespace renai {
namespace {

using cuda::require;

/// Of the rules by which kernels are chosen: choices that were made by other ones are made again.
constexpr const char* kRules = "rules 1";

DType stored_type(Precision precision) {
  switch (precision) {
    case Precision::bf16: return DType::bf16;
    case Precision::fp16: return DType::f16;
    default: return DType::f32;
  }
}

/// What a cached plan depends on besides its operation.
std::string machine_text(Precision precision, const std::string& search) {
  int device = 0;
  require(cudaGetDevice(&device), "asking for the GPU");
  cudaDeviceProp properties{};
  require(cudaGetDeviceProperties(&properties, device), "asking for the GPU's properties");
  return std::string(properties.name) + " sm_" + std::to_string(properties.major) + std::to_string(properties.minor) +
         ", " + cuda::cudnn_version_text() + ", " + cuda::cublaslt_version_text() + ", " +
         std::string(precision_name(precision)) + ", " + search + ", " + kRules;
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const CudaBackendOptions& options)
      : options_(options), cache_(options.plan_cache_dir, machine_text(options.precision, options.kernel_search)) {
    leaf_.precision = options.precision;
    leaf_.dtype = stored_type(options.precision);
    choices_.merge(cache_.read());
    leaf_.convolutions = cuda::make_conv_planner(options.precision, options.kernel_search == "measure", choices_,
                                                 [this] { tell_still_choosing(); });
    leaf_.products = cuda::make_linear_planner(options.precision, choices_);
    catalogue_.backend = "cuda";
    for (const auto& part : {cuda::conv_implementations(leaf_), cuda::linear_implementations(leaf_),
                             cuda::norm_implementations(leaf_), cuda::elementwise_implementations(leaf_),
                             cuda::pool_implementations(leaf_), cuda::edge_implementations(leaf_)}) {
      catalogue_.implementations.insert(catalogue_.implementations.end(), part.begin(), part.end());
    }
  }

  std::string name() const override { return "cuda"; }
  std::string library() const override {
    return cuda::cudnn_version_text() + ", " + cuda::cublaslt_version_text() + ", kernel search " +
           options_.kernel_search;
  }
  Support supports(Precision precision) const override {
    if (precision == options_.precision) return Support::ok();
    return Support::refuse("this backend was made for " + std::string(precision_name(options_.precision)));
  }

  /// Rank 0 chooses; the others read its choices first.
  KernelBook survey(const ComputationGraph& graph, const ShapeTable& shapes,
                    std::span<const CompileSpec> specs) override {
    ControlGroup* control = options_.control;
    const bool follows = control != nullptr && control->rank() > 0;
    if (follows) choices_.merge(hear_choices(*control));
    tells_ = !follows && control != nullptr && control->world_size() > 1;
    told_at_ = std::chrono::steady_clock::now();
    const std::string known = choices_.text();
    catalogue_.range_entry = [&graph, &shapes, specs](const RangeNode& node) {
      KernelEntry entry;
      entry.kernel = cuda_range_kernel_name(node);
      const std::int64_t bytes = cuda_range_workspace_bytes(graph, node, shapes);
      if (bytes > 0) entry.workspace_bytes.assign(specs.size(), bytes);
      return entry;
    };
    KernelBook book = lowering::make_book(catalogue_, graph, shapes, specs);
    if (!follows) {
      if (tells_) control->broadcast(kChosen + choices_.text(), 0, kStage);
      tells_ = false;
      if (choices_.text() != known) keep_choices();
    }
    if (leaf_.half()) store_half(graph, shapes, book);
    return book;
  }

  /// Runs the COMPUTE nodes once, so that the libraries have made what they need before capture. RANGE nodes would
  /// change the state.
  void warm_up(const BindContext& context, GraphId id) override {
    if (!warm_up_stream_) {
      cudaStream_t stream = nullptr;
      require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
      warm_up_stream_.reset(stream);
    }
    const lowering::Binder binder(catalogue_, context, id);
    for (std::size_t i = 0; i < context.book->of(id).size(); ++i) {
      if (const cuda::Call call = binder.bind(i, warm_up_stream_.get())) call();
    }
    require(cudaStreamSynchronize(warm_up_stream_.get()), "running kernels once before capture");
  }

  void record(const BindContext& context, GraphId id, int part, Stream& stream) override {
    auto* queue = dynamic_cast<CudaStream*>(&stream);
    if (queue == nullptr) {
      throw BackendError("recording kernels of the backend 'cuda'", "the stream is not one of the cuda device",
                         "pair this backend with the cuda device");
    }
    const lowering::Binder binder(catalogue_, context, id);
    const std::vector<Node>& nodes = context.graph->nodes(id);
    for (std::size_t i = 0; i < context.book->of(id).size(); ++i) {
      const KernelEntry& entry = context.book->of(id)[i];
      const Node& last = nodes[static_cast<std::size_t>(entry.nodes.back())];
      if (last.part != part) continue;
      if (const auto* range = std::get_if<RangeNode>(&last.work)) {
        record_cuda_range_node(context, *range, *queue, binder.workspace(i));
      } else if (const cuda::Call call = binder.bind(i, queue->native(), queue)) {
        call();
      }
      if (last.records_event >= 0) {
        const auto event = static_cast<std::size_t>(last.records_event);
        RENAI_CHECK(event < context.bucket_events.size(), "'" + last.name() + "' records an event that exists");
        queue->record(*context.bucket_events[event]);
      }
    }
  }

 private:
  static constexpr const char* kStage = "choosing kernel plans";
  static constexpr const char* kStillChoosing = "still choosing";
  static inline const std::string kChosen = "chosen\n";

  /// Rank 0's choices, however long it takes: it says often enough that it is still at work.
  static std::string hear_choices(ControlGroup& control) {
    std::string heard = control.broadcast({}, 0, kStage);
    while (heard == kStillChoosing) heard = control.broadcast({}, 0, kStage);
    RENAI_CHECK(heard.starts_with(kChosen), "rank 0 tells its kernel plans");
    return heard.substr(kChosen.size());
  }

  /// Timing all candidates may take longer than the others' patience.
  void tell_still_choosing() {
    const auto now = std::chrono::steady_clock::now();
    if (!tells_ || now - told_at_ < options_.control->deadline() / 4) return;
    options_.control->broadcast(kStillChoosing, 0, kStage);
    told_at_ = now;
  }

  void keep_choices() const {
    const std::string failure = cache_.write(choices_.text());
    if (failure.empty() || options_.log == nullptr) return;
    options_.log->warning("kernel plans are not kept for later runs: " + failure);
  }

  /// Activations and their gradients in half precision, the network's input with padded channels. Saved statistics stay
  /// f32.
  void store_half(const ComputationGraph& graph, const ShapeTable& shapes, KernelBook& book) const {
    const lowering::Uses uses(graph);
    book.half_dtype = leaf_.dtype;
    for (std::size_t i = 0; i < graph.tensors().size(); ++i) {
      const auto id = static_cast<TensorId>(i);
      const TensorRole role = graph.tensor(id).role;
      const bool half = role == TensorRole::activation || role == TensorRole::activation_grad;
      book.dtypes.push_back(half ? leaf_.dtype : tensor_dtype(role));
      std::int64_t c = 0;
      for (const std::vector<Shape>& table : shapes) {
        if (c == 0 && table[i].rank() > 0) c = table[i].c();
      }
      book.padded_c.push_back(is_transient(role) && c > 0 ? cuda::stored_channels(leaf_, graph, uses, id, c) : 0);
    }
  }

  struct DestroyStream {
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  };

  CudaBackendOptions options_;
  bool tells_ = false;  ///< The others wait for this rank's choices.
  std::chrono::steady_clock::time_point told_at_;
  cuda::PlanChoices choices_;
  cuda::PlanCacheFile cache_;
  cuda::Leaf leaf_;
  cuda::Catalogue catalogue_;
  std::unique_ptr<CUstream_st, DestroyStream> warm_up_stream_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const CudaBackendOptions& options) {
  return std::make_unique<CudaBackend>(options);
}

}  // namespace renai
