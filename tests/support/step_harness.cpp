#include "step_harness.hpp"

#include <algorithm>
#include <cstring>

#include "renai/base/check.hpp"
#include "renai/graph/region_name.hpp"
#include "renai/graph/segments.hpp"
#include "renai/graph/shape_inference.hpp"

namespace renai::test {
namespace {

/// The variant that every step uses.
constexpr int kVariant = 0;

GraphOptions graph_options(const StepHarnessOptions& options, int world_size) {
  GraphOptions result;
  result.classes = options.classes;
  result.input_channels = options.c;
  result.world_size = world_size;
  result.sync_bn = options.sync_bn;
  result.logical_shards = options.logical_shards;
  result.micro_batches = options.micro_batches;
  result.input = options.input;
  result.label_smoothing = options.label_smoothing;
  result.optimizer = options.optimizer;
  result.adam = options.adam;
  result.lars = options.lars;
  result.momentum = options.momentum;
  result.nesterov = options.nesterov;
  result.weight_decay = options.weight_decay;
  result.ema_decay = options.ema_decay;
  result.freeze_group_of_param = options.freeze_group_of_param;
  return result;
}

/// The node that makes a tensor in the training graphs; nullptr for the network's input and for parameters.
const ComputeNode* producer(const ComputationGraph& graph, TensorId id) {
  for (const GraphId graph_id : {GraphId::FIRST_LAYER_FWD_A, GraphId::DEEP_FWD_BWD}) {
    for (const Node& node : graph.nodes(graph_id)) {
      if (!node.is_compute()) continue;
      const auto& compute = std::get<ComputeNode>(node.work);
      if (std::find(compute.outputs.begin(), compute.outputs.end(), id) != compute.outputs.end()) return &compute;
    }
  }
  return nullptr;
}

/// The forward node that reads a weight.
const ComputeNode& consumer(const ComputationGraph& graph, TensorId weight) {
  for (const GraphId graph_id : {GraphId::FIRST_LAYER_FWD_A, GraphId::DEEP_FWD_BWD}) {
    for (const Node& node : graph.nodes(graph_id)) {
      if (!node.is_compute()) continue;
      const auto& compute = std::get<ComputeNode>(node.work);
      const auto& inputs = compute.inputs;
      if (compute.pass == Pass::forward && std::find(inputs.begin(), inputs.end(), weight) != inputs.end()) {
        return compute;
      }
    }
  }
  throw InternalError("finding the layer of a weight", "no forward node reads it");
}

/// Calls f(place as stored, K R S C; place in K C R S) for each element in the order of storage. Extents K C R S.
template <typename F>
void for_each_place(const std::array<std::int64_t, 4>& extents, F f) {
  const auto [k_end, c_end, r_end, s_end] = extents;
  std::size_t stored = 0;
  for (std::int64_t k = 0; k < k_end; ++k) {
    for (std::int64_t r = 0; r < r_end; ++r) {
      for (std::int64_t s = 0; s < s_end; ++s) {
        for (std::int64_t c = 0; c < c_end; ++c) {
          f(stored++, static_cast<std::size_t>(((k * c_end + c) * r_end + r) * s_end + s));
        }
      }
    }
  }
}

}  // namespace

StepHarness::StepHarness(const StepHarnessOptions& options, std::unique_ptr<Backend> backend,
                         std::unique_ptr<Device> device, Ranks ranks)
    : options_(options), backend_(std::move(backend)) {
  GraphOptions graph_opts = graph_options(options_, ranks.communicator ? ranks.communicator->world_size() : 1);
  SpecRequest request;
  request.train_samples = request.global_batch = options_.batch;
  request.val_samples = request.val_global_batch = options_.batch / options_.micro_batches;
  request.logical_shards = options_.logical_shards;
  request.micro_batches = options_.micro_batches;
  request.resolutions = {{options_.h, 0}};
  request.val_resolution = options_.h;
  request.channels = options_.c;
  const std::vector<CompileSpec> specs = make_specs(request);
  {
    const ComputationGraph plain = build_computation_graph(options_.model, graph_opts);
    const ShapeTable shapes = derive_shapes(plain, specs);
    graph_opts.bucket_of_param = assign_buckets(plain, shapes[kVariant], options_.bucket_bytes);
  }
  ComputationGraph graph = build_computation_graph(options_.model, graph_opts);
  ShapeTable shapes = derive_shapes(graph, specs);
  const auto slot = SlotLayout::make(options_.batch / (options_.logical_shards * options_.micro_batches), options_.h,
                                     options_.w, options_.c);
  all_ = std::make_unique<CapturedPlans>(std::move(graph), specs, std::move(shapes), *backend_, slot,
                                         options_.reuse_slots, std::move(device), std::move(ranks));
  // Warming up ran kernels on the arena: what counts as state starts from zero again.
  std::memset(all_->memory, 0, static_cast<std::size_t>(all_->arena.size_bytes()));
}

std::vector<std::string> StepHarness::param_names() const {
  std::vector<std::string> names;
  for (const ParamInfo& info : graph().params()) names.push_back(info.name);
  return names;
}

const ParamInfo& StepHarness::find_param(const std::string& name) const {
  for (const ParamInfo& info : graph().params()) {
    if (info.name == name) return info;
  }
  throw UserError("finding parameter '" + name + "'", "the model has none of this name");
}

TensorId StepHarness::find_running(const std::string& name) const {
  for (const NormInfo& info : graph().norms()) {
    if (name == info.name + ".running_mean") return info.running_mean;
    if (name == info.name + ".running_var") return info.running_var;
  }
  throw UserError("finding running statistics '" + name + "'", "the model has none of this name");
}

std::span<float> StepHarness::values_of(TensorId id) const {
  const DTensor& place = plans()[kVariant].tensor(id);
  RENAI_CHECK(place.placed() && place.dtype == DType::f32, graph().tensor(id).name + " is not stored as f32");
  RENAI_CHECK(place.shape.rank() == 0 || place.padded_c == 0 || place.padded_c == place.shape[place.shape.rank() - 1],
              graph().tensor(id).name + " is padded");
  return {reinterpret_cast<float*>(all_->memory + place.offset_bytes), static_cast<std::size_t>(place.shape.elems())};
}

std::vector<float> StepHarness::tensor(TensorId id) const {
  const auto values = values_of(id);
  return {values.begin(), values.end()};
}

std::array<std::int64_t, 4> StepHarness::logical_extents(const ParamInfo& info) const {
  const auto& shapes = all_->shapes[kVariant];
  const Shape& shape = shapes[static_cast<std::size_t>(info.weight)];
  if (info.kind == ParamKind::conv_weight) return {shape[0], shape[3], shape[1], shape[2]};
  if (info.kind != ParamKind::linear_weight) return {shape.elems(), 1, 1, 1};
  // A linear layer after a flatten reads H x W x C; the walk stops at the first operator that mixes features.
  TensorId input = consumer(graph(), info.weight).inputs.front();
  for (const ComputeNode* node = producer(graph(), input); node != nullptr; node = producer(graph(), input)) {
    if (node->op != OpKind::activation && node->op != OpKind::dropout && node->op != OpKind::flatten) break;
    input = node->inputs.front();
    if (node->op == OpKind::flatten) {
      const Shape& map = shapes[static_cast<std::size_t>(input)];
      return {shape[0], map.c(), map.h(), map.w()};
    }
  }
  return {shape[0], shape[1], 1, 1};
}

std::vector<float> StepHarness::read_param(const ParamInfo& info, TensorId id) const {
  const auto extents = logical_extents(info);
  const auto stored = values_of(id);
  std::vector<float> logical(stored.size());
  for_each_place(extents, [&](std::size_t from, std::size_t to) { logical[to] = stored[from]; });
  return logical;
}

void StepHarness::write_param(const ParamInfo& info, TensorId id, std::span<const float> values) {
  const auto extents = logical_extents(info);
  const auto stored = values_of(id);
  RENAI_CHECK(values.size() == stored.size(), info.name + " has another number of elements");
  for_each_place(extents, [&](std::size_t to, std::size_t from) { stored[to] = values[from]; });
}

std::int64_t StepHarness::param_elems(const std::string& name) const {
  return all_->shapes[kVariant][static_cast<std::size_t>(find_param(name).weight)].elems();
}

std::vector<float> StepHarness::param(const std::string& name) const {
  const ParamInfo& info = find_param(name);
  return read_param(info, info.weight);
}

std::vector<float> StepHarness::grad(const std::string& name) const {
  const ParamInfo& info = find_param(name);
  return read_param(info, info.grad);
}

std::vector<float> StepHarness::momentum(const std::string& name) const {
  const ParamInfo& info = find_param(name);
  return read_param(info, info.momentum);
}

std::vector<float> StepHarness::average(const std::string& name) const {
  const ParamInfo& info = find_param(name);
  return read_param(info, info.ema);
}

void StepHarness::set_param(const std::string& name, std::span<const float> values) {
  const ParamInfo& info = find_param(name);
  write_param(info, info.weight, values);
}

void StepHarness::set_momentum(const std::string& name, std::span<const float> values) {
  const ParamInfo& info = find_param(name);
  write_param(info, info.momentum, values);
}

std::vector<float> StepHarness::second_moment(const std::string& name) const {
  const ParamInfo& info = find_param(name);
  return read_param(info, info.second_moment);
}

void StepHarness::set_second_moment(const std::string& name, std::span<const float> values) {
  const ParamInfo& info = find_param(name);
  write_param(info, info.second_moment, values);
}

std::vector<float> StepHarness::running(const std::string& name) const { return tensor(find_running(name)); }

void StepHarness::set_running(const std::string& name, std::span<const float> values) {
  const auto stored = values_of(find_running(name));
  RENAI_CHECK(values.size() == stored.size(), name + " has another number of elements");
  std::copy(values.begin(), values.end(), stored.begin());
}

void StepHarness::stage(int pass, std::span<const std::uint8_t> images, std::span<const std::int32_t> labels) {
  const SlotLayout& slot = plans()[kVariant].slot;
  std::byte* at = all_->staging[static_cast<std::size_t>(pass % 2)].data();
  const int part = all_->communicator->rank() * local_shards() * options_.micro_batches + pass;
  const std::int64_t first = part * slot.rows;
  ControlBlock control;
  control.seed = options_.seed;
  control.step = step_;
  control.shard = part;
  control.local_shard = pass / options_.micro_batches;
  control.micro_batch = pass % options_.micro_batches;
  control.rows = control.valid_rows = static_cast<std::int32_t>(slot.rows);
  control.lr = options_.lr;
  std::memcpy(at + slot.control_offset, &control, sizeof control);
  const std::int64_t image_bytes = slot.h * slot.w * slot.c;
  std::memcpy(at + slot.images_offset, images.data() + first * image_bytes,
              static_cast<std::size_t>(slot.rows * image_bytes));
  std::memcpy(at + slot.labels_offset, labels.data() + first,
              static_cast<std::size_t>(slot.rows) * sizeof(std::int32_t));
  for (std::int64_t row = 0; row < slot.rows; ++row) {
    const std::int64_t id = first + row;
    const float weight = 1.0f;
    SampleParams params;
    params.crop_h = static_cast<std::int32_t>(slot.h);
    params.crop_w = static_cast<std::int32_t>(slot.w);
    if (!samples_.empty()) params = samples_.at(static_cast<std::size_t>(id));
    std::memcpy(at + slot.ids_offset + row * 8, &id, sizeof id);
    std::memcpy(at + slot.weights_offset + row * 4, &weight, sizeof weight);
    std::memcpy(at + slot.params_offset + row * static_cast<std::int64_t>(sizeof params), &params, sizeof params);
  }
}

void StepHarness::launch(GraphId id) {
  if (Stream* stream = all_->launch(kVariant, id)) stream->synchronize();
}

/// As the schedule of a run: what is frozen has no gradient and no update.
void StepHarness::update_weights() {
  const auto launch_parts = [&](GraphId id, bool frozen, int first) {
    const std::vector<int> groups = freeze_group_of_parts(graph(), id);
    for (int part = first; part < static_cast<int>(groups.size()); ++part) {
      if (frozen_.contains(groups[static_cast<std::size_t>(part)]) != frozen) continue;
      if (Stream* stream = all_->launch_part(kVariant, id, part)) stream->synchronize();
    }
  };
  launch_parts(GraphId::ZERO_GRAD, true, 1);
  launch(GraphId::NAN_CHECK_AND_GRAD_SCALING);
  for (const GraphId id : kUpdateGraphs) launch_parts(id, false, 0);
}

double StepHarness::step(std::span<const std::uint8_t> images, std::span<const std::int32_t> labels) {
  RENAI_CHECK(static_cast<std::int64_t>(labels.size()) == options_.batch, "labels do not fill the batch");
  RENAI_CHECK(static_cast<std::int64_t>(images.size()) == options_.batch * options_.h * options_.w * options_.c,
              "images do not fill the batch");
  Stream& stream = *all_->streams.front();
  all_->to_device(stream);
  stream.synchronize();
  if (Stream* used = all_->launch_part(kVariant, GraphId::ZERO_GRAD, 0)) used->synchronize();
  for (int pass = 0; pass < local_shards() * options_.micro_batches; ++pass) {
    stage(pass, images, labels);
    const bool b = pass % 2 != 0;
    launch(b ? GraphId::TRANSFER_B : GraphId::TRANSFER_A);
    launch(b ? GraphId::FIRST_LAYER_FWD_B : GraphId::FIRST_LAYER_FWD_A);
    launch(GraphId::DEEP_FWD_BWD);
    launch(b ? GraphId::FIRST_LAYER_BWD_B : GraphId::FIRST_LAYER_BWD_A);
    launch(GraphId::CAST_DEEP_GRAD);
    launch(GraphId::CAST_FIRST_GRAD);
  }
  for (const GraphId id : {GraphId::DEEP_COMM, GraphId::FIRST_COMM, GraphId::STATS_COMM}) launch(id);
  update_weights();
  for (const GraphId id : {GraphId::UPDATE_STATS, GraphId::EMA_UPDATE, GraphId::ACCUM_METRICS}) launch(id);
  all_->from_device(stream);
  stream.synchronize();
  ++step_;
  const Region& metrics = plans()[kVariant].region(region_name::kMetrics);
  std::array<float, 2> sums{};
  std::memcpy(sums.data(), all_->memory + metrics.offset_bytes, sizeof sums);
  return static_cast<double>(sums[0]) / static_cast<double>(sums[1]);
}

std::vector<float> StepHarness::infer(std::span<const std::uint8_t> images) {
  RENAI_CHECK(options_.logical_shards == 1, "inference takes the whole batch as one shard");
  RENAI_CHECK(static_cast<std::int64_t>(images.size()) == options_.batch * options_.h * options_.w * options_.c,
              "images do not fill the batch");
  int variant = 0;
  while (all_->specs[static_cast<std::size_t>(variant)].kind != VariantKind::validation) ++variant;
  Stream& stream = *all_->streams.front();
  all_->to_device(stream);
  stream.synchronize();
  stage(0, images, std::vector<std::int32_t>(static_cast<std::size_t>(options_.batch)));
  for (const GraphId id : {GraphId::UPDATE_BN_INF_PARAMS, GraphId::TRANSFER_A, GraphId::INF_MAIN_A}) {
    if (Stream* used = all_->launch(variant, id)) used->synchronize();
  }
  all_->from_device(stream);
  stream.synchronize();
  const DTensor& place = plans()[static_cast<std::size_t>(variant)].tensor(graph().parts().inference_logits);
  RENAI_CHECK(place.placed() && place.dtype == DType::f32, "logits are stored as f32");
  const auto* logits = reinterpret_cast<const float*>(all_->memory + place.offset_bytes);
  return {logits, logits + options_.batch * options_.classes};
}

}  // namespace renai::test
