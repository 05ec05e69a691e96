#include "renai/train/blueprint.hpp"

#include <algorithm>
#include <set>

#include "renai/base/check.hpp"
#include "renai/base/error.hpp"
#include "renai/base/option_word.hpp"
#include "renai/data/loader.hpp"
#include "renai/model/adjust.hpp"
#include "renai/train/freeze.hpp"

namespace renai {
namespace {

GraphOptions graph_options(const Recipe& recipe, const DataShape& data, int world_size) {
  GraphOptions options;
  options.classes = data.classes;
  options.input_channels = data.c;
  options.world_size = world_size;
  options.logical_shards = recipe.logical_shards;
  options.micro_batches = recipe.accumulate;
  options.input = data.normalization;
  options.label_smoothing = static_cast<float>(recipe.label_smoothing);
  options.optimizer = optimizer_of(recipe);
  options.adam = {recipe.beta1, recipe.beta2, static_cast<float>(recipe.eps)};
  options.lars = {static_cast<float>(recipe.lars_eta), static_cast<float>(recipe.lars_eps)};
  options.momentum = static_cast<float>(recipe.momentum);
  options.nesterov = recipe.nesterov;
  options.weight_decay = static_cast<float>(recipe.weight_decay);
  options.bn_weight_decay = recipe.bn_weight_decay;
  options.clip_norm = static_cast<float>(recipe.clip_norm);
  options.ema_decay = recipe.ema;
  options.bn_momentum = static_cast<float>(recipe.bn_momentum);
  options.sync_bn = recipe.sync_bn;
  options.half_weights = recipe.precision == "bf16" || recipe.precision == "fp16";
  // The range of bf16 is that of fp32: only fp16 loses small gradients.
  options.dynamic_loss_scale =
      recipe.loss_scale == "dynamic" || (recipe.loss_scale == "auto" && recipe.precision == "fp16");
  options.loss_scale_interval = recipe.loss_scale_interval;
  return options;
}

/// A persistent tensor has one shape: a model whose weights depend on the resolution cannot change it.
void require_equal_persistent_shapes(const ComputationGraph& graph, std::span<const CompileSpec> specs,
                                     const ShapeTable& shapes) {
  for (std::size_t spec = 1; spec < specs.size(); ++spec) {
    for (const ParamInfo& param : graph.params()) {
      const auto id = static_cast<std::size_t>(param.weight);
      if (shapes[spec][id] != shapes[0][id]) {
        throw UserError(
            "model '" + graph.model().name + "' at resolution " + std::to_string(specs[spec].shape.h),
            "parameter '" + param.name + "' would be " + shapes[spec][id].str() + " but is " + shapes[0][id].str() +
                " at " + std::to_string(specs[0].shape.h),
            "use one resolution, or a model with global or adaptive average pooling before its linear layers");
      }
    }
  }
}

std::int64_t largest_rows(std::span<const CompileSpec> specs) {
  std::int64_t rows = 1;
  for (const CompileSpec& spec : specs) rows = std::max(rows, spec.shape.n);
  return rows;
}

/// Room for the stored images, or for what is decoded of images that differ in size.
SlotLayout slot_layout(std::span<const CompileSpec> specs, const DataShape& data) {
  std::int64_t h = data.h, w = data.w;
  if (data.encoded) {
    h = w = 1;
    for (const CompileSpec& spec : specs) {
      h = std::max(h, staged_extent(spec.shape.h));
      w = std::max(w, staged_extent(spec.shape.w));
    }
  }
  return SlotLayout::make(largest_rows(specs), h, w, data.c);
}

std::int64_t scratch_bytes(const ComputationGraph& graph, std::span<const Shape> shapes,
                           const Communicator& communicator) {
  if (communicator.world_size() == 1) return 0;
  std::int64_t all_bytes = 0;
  for (std::size_t id = 0; id < shapes.size(); ++id) {
    const TensorRole role = graph.tensors()[id].role;
    if (role == TensorRole::grad || role == TensorRole::metrics || role == TensorRole::batch_mean ||
        role == TensorRole::batch_var) {
      all_bytes += align_slot(shapes[id].elems() * 4);
    }
  }
  return align_slot(communicator.tree_reduce_scratch_bytes(all_bytes / 4));
}

}  // namespace

DataShape describe_data(const Manifest& manifest, std::int64_t train_samples, std::int64_t val_samples) {
  DataShape shape;
  shape.train_samples = train_samples;
  shape.val_samples = val_samples;
  shape.h = manifest.height;
  shape.w = manifest.width;
  shape.c = manifest.channels;
  shape.encoded = manifest.encoding != "raw";
  shape.classes = static_cast<std::int64_t>(manifest.classes.size());
  for (std::size_t i = 0; i < 4; ++i) {
    shape.normalization.mean[i] = static_cast<float>(manifest.mean[i]);
    shape.normalization.std[i] = static_cast<float>(manifest.std[i] > 0 ? manifest.std[i] : 1.0);
  }
  return shape;
}

OptimizerKind optimizer_of(const Recipe& recipe) {
  return named_value("--optimizer", recipe.optimizer,
                     {OptimizerKind::sgd, OptimizerKind::lars, OptimizerKind::adam, OptimizerKind::adamw},
                     optimizer_name);
}

Precision precision_of(const Recipe& recipe) {
  return named_value("--precision", recipe.precision,
                     {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16}, precision_name);
}

ModelSpec model_of(const Recipe& recipe) {
  ModelSpec model = load_model(recipe.model);
  if (recipe.init != "model") set_init(model, recipe.init);
  if (const std::optional<double> rate = dropout_rate(recipe)) set_dropout(model, static_cast<float>(*rate));
  if (recipe.zero_gamma) set_zero_gamma(model);
  return model;
}

int Blueprint::validation_variant(bool last) const {
  const auto first = std::find_if(specs.begin(), specs.end(),
                                  [](const CompileSpec& spec) { return spec.kind == VariantKind::validation; });
  RENAI_CHECK(first != specs.end(), "this blueprint has validation variants");
  return static_cast<int>(first - specs.begin()) + (last ? 1 : 0);
}

std::vector<ResolutionPhase> resolution_phases(const Recipe& recipe, const ModelSpec& model, const DataShape& data) {
  if (!recipe.resolution.empty()) return parse_resolution(recipe.resolution);
  const std::int64_t size = model.resolution > 0 ? model.resolution : data.h;
  return {{size, 0}};
}

int phase_of_epoch(std::span<const ResolutionPhase> phases, std::int64_t epoch) {
  int phase = 0;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    if (phases[i].epoch <= epoch) phase = static_cast<int>(i);
  }
  return phase;
}

Blueprint make_blueprint(const Recipe& recipe, const DataShape& data, Backend& backend,
                         const Communicator& communicator, const BlueprintOptions& options) {
  const ModelSpec model = options.model ? *options.model : model_of(recipe);
  GraphOptions features = graph_options(recipe, data, communicator.world_size());
  const std::vector<ResolutionPhase> phases = resolution_phases(recipe, model, data);

  SpecRequest request;
  request.train_samples = options.training ? data.train_samples : 0;
  request.val_samples = data.val_samples;
  request.global_batch = recipe.global_batch;
  request.val_global_batch = validation_batch(recipe);
  request.logical_shards = recipe.logical_shards;
  request.micro_batches = recipe.accumulate;
  request.resolutions = phases;
  request.val_resolution = recipe.val_resolution > 0 ? recipe.val_resolution : phases.back().size;
  request.channels = data.c;
  std::vector<CompileSpec> specs = make_specs(request);

  const ComputationGraph draft = build_computation_graph(model, features);
  const std::vector<Shape> draft_shapes = derive_shapes(draft, std::span(specs).first(1)).front();
  features.freeze_group_of_param = make_freeze_plan(recipe, draft.params()).group_of_param;
  features.bucket_of_param =
      assign_buckets(draft, draft_shapes, static_cast<std::int64_t>(recipe.bucket_mib * 1024.0 * 1024.0));
  ComputationGraph graph = build_computation_graph(model, features);

  if (recipe.bn_momentum > 0.0 && graph.norms().empty()) {
    throw UserError("--bn-momentum " + std::to_string(recipe.bn_momentum),
                    "model '" + model.name + "' has no batch norm", "leave the option away");
  }
  if (recipe.sync_bn && graph.norms().empty()) {
    throw UserError("--sync-bn", "model '" + model.name + "' has no batch norm", "leave the option away");
  }
  ShapeTable shapes = derive_shapes(graph, specs);
  require_equal_persistent_shapes(graph, specs, shapes);
  KernelBook book = backend.survey(graph, shapes, specs);
  verify(book, graph, static_cast<int>(specs.size()));

  const SlotLayout slot = slot_layout(specs, data);
  PlanRequest plan_request;
  plan_request.graph = &graph;
  plan_request.book = &book;
  plan_request.specs = specs;
  plan_request.shapes = &shapes;
  plan_request.slot = slot;
  plan_request.comm_scratch_bytes = scratch_bytes(graph, shapes.front(), communicator);
  plan_request.reuse_slots = options.reuse_slots;
  std::vector<MemoryPlan> plans = build_memory_plans(plan_request);
  verify(plan_request, plans);
  GraphAtlas atlas = build_atlas(graph, specs, options.dedup);
  verify(atlas, graph);
  return Blueprint{
      std::move(graph), std::move(specs), std::move(shapes), std::move(book), std::move(plans), std::move(atlas), slot};
}

}  // namespace renai
