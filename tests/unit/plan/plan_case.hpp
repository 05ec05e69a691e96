#pragma once
// A zoo model compiled up to its plans with a kernel book of one entry for each node.

#include <string>
#include <vector>

#include "renai/plan/graph_atlas.hpp"
#include "trivial_book.hpp"

namespace renai {

struct PlanOptions {
  std::string model = "cnn-small";
  int world_size = 1;
  bool branches = false;
  std::int64_t bucket_bytes = 25 << 20;
  std::vector<ResolutionPhase> phases = {};  ///< Empty: the model's size.
  std::int64_t train_samples = 60000, val_samples = 10000, global_batch = 128;
  bool workspaces = true;
  bool half_weights = false;
  double ema_decay = 0.0;
  OptimizerKind optimizer = OptimizerKind::sgd;
};

inline bool may_be_half(TensorRole role) {
  return role == TensorRole::activation || role == TensorRole::activation_grad;
}

inline std::int64_t input_size(const std::string& model) { return model == "resnet9" ? 32 : 28; }
inline std::int64_t input_channels(const std::string& model) { return model == "resnet9" ? 3 : 1; }

inline SpecRequest spec_request(const PlanOptions& options) {
  SpecRequest request;
  request.train_samples = options.train_samples;
  request.val_samples = options.val_samples;
  request.global_batch = options.global_batch;
  request.resolutions = options.phases;
  if (request.resolutions.empty()) request.resolutions = {{input_size(options.model), 0}};
  request.channels = input_channels(options.model);
  return request;
}

inline ComputationGraph build_graph(const PlanOptions& options, const std::vector<CompileSpec>& specs) {
  GraphOptions features;
  features.input_channels = input_channels(options.model);
  features.world_size = options.world_size;
  features.parallel_branches = options.branches;
  features.half_weights = options.half_weights;
  features.ema_decay = options.ema_decay;
  features.optimizer = options.optimizer;
  const ModelSpec model = load_model(options.model);
  const ComputationGraph draft = build_computation_graph(model, features);
  features.bucket_of_param =
      assign_buckets(draft, derive_shapes(draft, std::span(specs).first(1))[0], options.bucket_bytes);
  return build_computation_graph(model, features);
}

/// Not movable: the request refers to the members.
class PlanCase {
 public:
  explicit PlanCase(const PlanOptions& options = {})
      : specs(make_specs(spec_request(options))),
        graph(build_graph(options, specs)),
        shapes(derive_shapes(graph, specs)),
        book(trivial_book(graph, shapes)) {
    if (!options.workspaces) {
      for (auto& entries : book.entries) {
        for (KernelEntry& entry : entries) entry.workspace_bytes.clear();
      }
    }
    request.graph = &graph;
    request.book = &book;
    request.specs = specs;
    request.shapes = &shapes;
    request.comm_scratch_bytes = 1000;
    std::int64_t rows = 1;
    for (const CompileSpec& spec : specs) rows = std::max(rows, spec.shape.n);
    const std::int64_t size = input_size(options.model);
    request.slot = SlotLayout::make(rows, size, size, input_channels(options.model));
    plans = build_memory_plans(request);
  }
  PlanCase(const PlanCase&) = delete;
  PlanCase& operator=(const PlanCase&) = delete;

  std::vector<CompileSpec> specs;
  ComputationGraph graph;
  ShapeTable shapes;
  KernelBook book;
  PlanRequest request;
  std::vector<MemoryPlan> plans;
};

}  // namespace renai
