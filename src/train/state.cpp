#include "renai/train/state.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

#include "initial_values.hpp"
#include "renai/base/error.hpp"
#include "renai/graph/region_name.hpp"
#include "renai/graph/segments.hpp"

namespace renai {
namespace {

std::vector<float> download_floats(Engine& engine, const DTensor& tensor) {
  std::vector<float> stored(static_cast<std::size_t>(tensor.size_bytes / 4));
  engine.download(tensor.offset_bytes, std::as_writable_bytes(std::span(stored)));
  const std::int64_t c = tensor.shape.rank() > 0 ? tensor.shape.c() : 1;
  const std::int64_t stride = tensor.padded_c > 0 ? tensor.padded_c : c;
  std::vector<float> values(static_cast<std::size_t>(tensor.shape.elems()));
  for (std::int64_t row = 0; row < tensor.shape.elems() / c; ++row) {
    std::copy_n(stored.begin() + row * stride, c, values.begin() + row * c);
  }
  return values;
}

void upload_floats(Engine& engine, const DTensor& tensor, std::span<const float> values) {
  const std::int64_t c = tensor.shape.rank() > 0 ? tensor.shape.c() : 1;
  const std::int64_t stride = tensor.padded_c > 0 ? tensor.padded_c : c;
  std::vector<float> stored(static_cast<std::size_t>(values.size()) / static_cast<std::size_t>(c) *
                            static_cast<std::size_t>(stride));
  for (std::int64_t row = 0; row < static_cast<std::int64_t>(values.size()) / c; ++row) {
    std::copy_n(values.begin() + row * c, c, stored.begin() + row * stride);
  }
  engine.upload(tensor.offset_bytes, std::as_bytes(std::span(stored)));
}

StateTensor make_tensor(const std::string& name, const std::vector<std::int64_t>& extents,
                        std::span<const float> values) {
  StateTensor tensor{name, DType::f32, extents, {}};
  tensor.data.resize(values.size_bytes());
  std::memcpy(tensor.data.data(), values.data(), values.size_bytes());
  return tensor;
}

template <typename T>
StateTensor make_scalar(const std::string& name, DType dtype, T value) {
  StateTensor tensor{name, dtype, {1}, std::vector<std::byte>(sizeof(T))};
  std::memcpy(tensor.data.data(), &value, sizeof(T));
  return tensor;
}

StateTensor gather_param(Engine& engine, const ParamLayout& layout, const std::string& name, const DTensor& tensor) {
  std::vector<float> values = download_floats(engine, tensor);
  if (!layout.parts.empty()) values = to_logical(values, layout.parts);
  return make_tensor(name, layout.logical, values);
}

/// The optimizer's state of a parameter. Its tensors' names are those of the checkpoint.
std::vector<TensorId> moments_of(const ParamInfo& param) {
  std::vector<TensorId> moments;
  for (const TensorId moment : {param.momentum, param.second_moment}) {
    if (moment != kNoTensor) moments.push_back(moment);
  }
  return moments;
}

const StateTensor& require_tensor(const StateDict& state, const std::string& group, const std::string& name,
                                  const std::vector<std::int64_t>& extents, const std::string& file) {
  const StateTensor* tensor = state.find(group, name);
  const auto print_extents = [](const std::vector<std::int64_t>& list) {
    std::string text = "[";
    for (const std::int64_t extent : list) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
    return text + "]";
  };
  if (tensor == nullptr) {
    throw DataError(file, "group '" + group + "' has no tensor '" + name + "'", "use a checkpoint of the same model");
  }
  if (tensor->extents != extents || tensor->dtype != DType::f32) {
    throw DataError(file,
                    "'" + group + "/" + name + "' is " + std::string(dtype_name(tensor->dtype)) + " " +
                        print_extents(tensor->extents) + ", the model needs float32 " + print_extents(extents),
                    "use a checkpoint of the same model and data set");
  }
  return *tensor;
}

std::vector<float> floats(const StateTensor& tensor) {
  std::vector<float> values(tensor.data.size() / 4);
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

/// "tensor 'fc.bias' holds a NaN at element 3", or nothing.
std::string not_finite(const StateTensor& tensor) {
  const std::vector<float> values = floats(tensor);
  const auto bad = std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  if (bad == values.end()) return {};
  return "tensor '" + tensor.name + "' holds " + (std::isnan(*bad) ? "a NaN" : "an infinity") + " at element " +
         std::to_string(bad - values.begin());
}

/// Training from such values would skip every step.
void require_finite(const StateTensor& tensor, const std::string& file) {
  if (const std::string why = not_finite(tensor); !why.empty()) {
    throw DataError(file, why, "start from weights that are numbers");
  }
}

/// Normalising divides by the root of it.
void require_variance(const StateTensor& tensor, const std::string& file) {
  require_finite(tensor, file);
  const std::vector<float> values = floats(tensor);
  const auto bad = std::find_if(values.begin(), values.end(), [](float value) { return value < 0.0f; });
  if (bad == values.end()) return;
  throw DataError(file, "variance '" + tensor.name + "' is negative at element " + std::to_string(bad - values.begin()),
                  "start from statistics of batches");
}

void restore_param(Engine& engine, const ParamLayout& layout, const StateTensor& tensor, const DTensor& place) {
  std::vector<float> values = floats(tensor);
  if (!layout.parts.empty()) values = to_stored(values, layout.parts);
  upload_floats(engine, place, values);
}

void refuse_surplus(const ComputationGraph& graph, const StateDict& state, const std::string& file) {
  const auto group = state.groups.find("weights");
  if (group == state.groups.end()) throw DataError(file, "it has no group 'weights'", "give a checkpoint of renai");
  for (const StateTensor& tensor : group->second) {
    bool known = false;
    for (const ParamInfo& param : graph.params()) known = known || param.name == tensor.name;
    for (const NormInfo& norm : graph.norms()) {
      known = known || norm.name + ".running_mean" == tensor.name || norm.name + ".running_var" == tensor.name ||
              norm.name + ".num_batches_tracked" == tensor.name;
    }
    if (!known) {
      throw DataError(file, "it has a tensor '" + tensor.name + "' that the model '" + graph.model().name + "' lacks",
                      "use a checkpoint of the same model");
    }
  }
}

template <typename T>
T scalar(const StateDict& state, const std::string& name, DType dtype, const std::string& file) {
  const StateTensor* tensor = state.find("progress", name);
  if (tensor == nullptr || tensor->dtype != dtype || tensor->data.size() != sizeof(T)) {
    throw DataError(file, "group 'progress' has no valid '" + name + "'",
                    "continue from a checkpoint of renai, or use --init-from for weights alone");
  }
  T value;
  std::memcpy(&value, tensor->data.data(), sizeof(T));
  return value;
}

}  // namespace

namespace {

/// In group `progress`: updates of each freeze group from 1 on, with Adam and AdamW.
constexpr const char* kGroupUpdates = "group_updates";

/// Appends what `scalars` has for freeze groups. A checkpoint without the counts is of a run in which no layer started
/// late: each had the run's count as long as it was trained.
void restore_group_updates(const ComputationGraph& graph, const StateDict& state, const std::string& file,
                           std::vector<float>& scalars) {
  const float of_run = scalars[region_name::kScalarUpdates];
  scalars.resize(static_cast<std::size_t>(scalar_count(graph)));
  const std::size_t groups = (scalars.size() - region_name::kScalarCount) / 3;
  if (groups == 0) return;
  std::vector<float> updates(groups, of_run);
  if (state.find("progress", kGroupUpdates) != nullptr) {
    updates = floats(require_tensor(state, "progress", kGroupUpdates, {static_cast<std::int64_t>(groups)}, file));
  }
  for (std::size_t g = 0; g < groups; ++g) {
    scalars[static_cast<std::size_t>(region_name::adam_scalars(static_cast<int>(g) + 1))] = updates[g];
  }
}

/// The kernels' copy of the weights follows each upload. Any variant's slot does: the graph is shape-invariant.
void refresh_half_weights(Engine& engine) { engine.launch(0, GraphId::CAST_MAIN); }

}  // namespace

void initialize_state(Engine& engine, std::uint64_t seed) {
  const Blueprint& blueprint = engine.blueprint();
  const ComputationGraph& graph = blueprint.graph;
  const MemoryPlan& plan = blueprint.plans.front();
  const std::vector<Shape>& shapes = blueprint.shapes.front();
  const std::vector<ParamLayout> layouts = param_layouts(graph, shapes);
  for (std::size_t i = 0; i < graph.params().size(); ++i) {
    const ParamInfo& param = graph.params()[i];
    std::vector<float> values = initial_values(graph, shapes, param, seed);
    const ParamLayout& layout = layouts[i];
    if (!layout.parts.empty()) values = to_stored(values, layout.parts);
    upload_floats(engine, plan.tensor(param.weight), values);
    if (param.ema != kNoTensor) upload_floats(engine, plan.tensor(param.ema), values);
  }
  for (const NormInfo& norm : graph.norms()) {
    for (const TensorId id : {norm.running_var, norm.ema_var}) {
      if (id == kNoTensor) continue;
      const DTensor& var = plan.tensor(id);
      upload_floats(engine, var, std::vector<float>(static_cast<std::size_t>(var.shape.elems()), 1.0f));
    }
  }
  std::vector<float> scalars(static_cast<std::size_t>(scalar_count(graph)), 0.0f);
  scalars[region_name::kScalarLossScale] = graph.options().dynamic_loss_scale ? region_name::kInitialLossScale : 1.0f;
  engine.upload(plan.region(region_name::kScalars).offset_bytes, std::as_bytes(std::span(scalars)));
  refresh_half_weights(engine);
}

StateDict gather_state(Engine& engine, const Progress& progress) {
  const Blueprint& blueprint = engine.blueprint();
  const ComputationGraph& graph = blueprint.graph;
  const MemoryPlan& plan = blueprint.plans.front();
  const std::vector<ParamLayout> layouts = param_layouts(graph, blueprint.shapes.front());
  StateDict state;
  for (std::size_t i = 0; i < graph.params().size(); ++i) {
    const ParamInfo& param = graph.params()[i];
    state.groups["weights"].push_back(gather_param(engine, layouts[i], param.name, plan.tensor(param.weight)));
    for (const TensorId moment : moments_of(param)) {
      state.groups["optimizer"].push_back(
          gather_param(engine, layouts[i], graph.tensor(moment).name, plan.tensor(moment)));
    }
    if (param.ema != kNoTensor) {
      state.groups["ema"].push_back(gather_param(engine, layouts[i], param.name, plan.tensor(param.ema)));
    }
  }
  for (const NormInfo& norm : graph.norms()) {
    const ParamLayout& layout = layouts[static_cast<std::size_t>(norm.scale_param)];
    const auto gather = [&](const char* group, TensorId mean, TensorId var) {
      auto& tensors = state.groups[group];
      tensors.push_back(gather_param(engine, layout, norm.name + ".running_mean", plan.tensor(mean)));
      tensors.push_back(gather_param(engine, layout, norm.name + ".running_var", plan.tensor(var)));
    };
    gather("bn_running", norm.running_mean, norm.running_var);
    if (norm.ema_mean != kNoTensor) gather("ema", norm.ema_mean, norm.ema_var);
  }
  std::vector<float> scalars(static_cast<std::size_t>(scalar_count(graph)));
  engine.download(plan.region(region_name::kScalars).offset_bytes, std::as_writable_bytes(std::span(scalars)));
  auto& group = state.groups["progress"];
  group.push_back(make_scalar("step", DType::i64, progress.step));
  group.push_back(make_scalar("best_top1", DType::f64, progress.best_top1));
  group.push_back(make_scalar("skipped_steps", DType::i64, progress.skipped_steps));
  group.push_back(make_scalar("epoch_loss_sum", DType::f64, progress.epoch_loss_sum));
  group.push_back(make_scalar("epoch_images", DType::f64, progress.epoch_images));
  if (progress.validation_due) group.push_back(make_scalar("validation_due", DType::i64, std::int64_t{1}));
  group.push_back(
      make_tensor("scalars", {region_name::kScalarCount}, std::span(scalars).first(region_name::kScalarCount)));
  if (scalars.size() == region_name::kScalarCount) return state;
  std::vector<float> updates;
  for (int g = 1; region_name::adam_scalars(g) < static_cast<int>(scalars.size()); ++g) {
    updates.push_back(scalars[static_cast<std::size_t>(region_name::adam_scalars(g))]);
  }
  group.push_back(make_tensor(kGroupUpdates, {static_cast<std::int64_t>(updates.size())}, updates));
  return state;
}

std::string describe_useless(const StateDict& state) {
  for (const char* group : {"weights", "bn_running", "ema"}) {
    const auto found = state.groups.find(group);
    if (found == state.groups.end()) continue;
    for (const StateTensor& tensor : found->second) {
      if (std::string why = not_finite(tensor); !why.empty()) return why;
    }
  }
  return {};
}

StateDict averages_as_weights(StateDict state, const std::string& file) {
  const auto averages = state.groups.find("ema");
  if (averages == state.groups.end()) {
    throw UserError(file + " with --ema", "it holds no averaged weights: its run had no --ema",
                    "evaluate its weights, or train with --ema");
  }
  state.groups["weights"] = averages->second;
  return state;
}

Progress restore_state(Engine& engine, const StateDict& state, const std::string& file, bool weights_only) {
  const Blueprint& blueprint = engine.blueprint();
  const ComputationGraph& graph = blueprint.graph;
  const MemoryPlan& plan = blueprint.plans.front();
  const std::vector<ParamLayout> layouts = param_layouts(graph, blueprint.shapes.front());
  refuse_surplus(graph, state, file);
  for (std::size_t i = 0; i < graph.params().size(); ++i) {
    const ParamInfo& param = graph.params()[i];
    const StateTensor& weight = require_tensor(state, "weights", param.name, layouts[i].logical, file);
    if (weights_only) require_finite(weight, file);
    restore_param(engine, layouts[i], weight, plan.tensor(param.weight));
    if (param.ema != kNoTensor) {
      const StateTensor& average =
          weights_only ? weight : require_tensor(state, "ema", param.name, layouts[i].logical, file);
      restore_param(engine, layouts[i], average, plan.tensor(param.ema));
    }
    if (weights_only) continue;
    for (const TensorId moment : moments_of(param)) {
      const std::string& name = graph.tensor(moment).name;
      restore_param(engine, layouts[i], require_tensor(state, "optimizer", name, layouts[i].logical, file),
                    plan.tensor(moment));
    }
  }
  for (const NormInfo& norm : graph.norms()) {
    for (const auto& [suffix, id, ema] : {std::tuple{".running_mean", norm.running_mean, norm.ema_mean},
                                          {".running_var", norm.running_var, norm.ema_var}}) {
      const std::string name = norm.name + suffix;
      const bool in_weights = state.find("weights", name) != nullptr;
      if (weights_only && !in_weights && state.find("bn_running", name) == nullptr) continue;
      const ParamLayout& layout = layouts[static_cast<std::size_t>(norm.scale_param)];
      const StateTensor& tensor =
          require_tensor(state, in_weights ? "weights" : "bn_running", name, layout.logical, file);
      if (weights_only) (id == norm.running_var ? require_variance : require_finite)(tensor, file);
      restore_param(engine, layout, tensor, plan.tensor(id));
      if (ema == kNoTensor) continue;
      const StateTensor& average = weights_only ? tensor : require_tensor(state, "ema", name, layout.logical, file);
      restore_param(engine, layout, average, plan.tensor(ema));
    }
  }
  refresh_half_weights(engine);
  Progress progress;
  if (weights_only) return progress;
  progress.step = scalar<std::int64_t>(state, "step", DType::i64, file);
  progress.best_top1 = scalar<double>(state, "best_top1", DType::f64, file);
  progress.skipped_steps = scalar<std::int64_t>(state, "skipped_steps", DType::i64, file);
  // Earlier checkpoints lack them: the mean is then that of the steps from here on.
  if (state.find("progress", "epoch_loss_sum") != nullptr) {
    progress.epoch_loss_sum = scalar<double>(state, "epoch_loss_sum", DType::f64, file);
    progress.epoch_images = scalar<double>(state, "epoch_images", DType::f64, file);
  }
  progress.validation_due = state.find("progress", "validation_due") != nullptr;
  std::vector<float> scalars = floats(require_tensor(state, "progress", "scalars", {region_name::kScalarCount}, file));
  restore_group_updates(graph, state, file, scalars);
  engine.upload(plan.region(region_name::kScalars).offset_bytes, std::as_bytes(std::span(scalars)));
  return progress;
}

}  // namespace renai
