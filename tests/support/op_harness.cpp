#include "op_harness.hpp"

#include <cstring>

#include "half_values.hpp"
#include "renai/base/check.hpp"
#include "renai/comm/mpi.hpp"
#include "renai/device/host.hpp"
#include "renai/graph/region_name.hpp"

namespace renai::test {

OpGraph::OpGraph() {
  parts_.nodes.resize(kGraphIdCount);
  parts_.options.logical_shards = 1;
  parts_.model.name = "hand-built";
  parts_.model.layers.resize(1);  // What add_compute's nodes belong to.
  parts_.model.layers[0].name = "op";
}

TensorId OpGraph::add_tensor(const std::string& name, TensorRole role, const Shape& shape) {
  parts_.tensors.push_back({name, role, -1, -1});
  shapes_.push_back(shape);
  return static_cast<TensorId>(parts_.tensors.size()) - 1;
}

std::int32_t OpGraph::add_param(const std::string& name, ParamKind kind, const Shape& shape, bool decay) {
  const auto index = static_cast<std::int32_t>(parts_.params.size());
  ParamInfo info;
  info.name = name;
  info.kind = kind;
  info.decay = decay;
  info.weight = add_tensor(name, TensorRole::weight, shape);
  info.grad = add_tensor(name + ".grad", TensorRole::grad, shape);
  info.momentum = add_tensor(name + ".momentum", TensorRole::momentum, shape);
  for (const TensorId id : {info.weight, info.grad, info.momentum}) {
    parts_.tensors[static_cast<std::size_t>(id)].param = index;
  }
  parts_.params.push_back(info);
  parts_.deep_buckets = 1;
  return index;
}

std::int32_t OpGraph::add_norm(const std::string& name, std::int64_t channels, const BatchNormParams& params) {
  const auto index = static_cast<std::int32_t>(parts_.norms.size());
  const auto tensor = [&](const char* suffix, TensorRole role) {
    const TensorId id = add_tensor(name + suffix, role, Shape{channels});
    parts_.tensors[static_cast<std::size_t>(id)].norm = index;
    return id;
  };
  NormInfo info;
  info.name = name;
  info.momentum = params.momentum;
  info.eps = params.eps;
  info.scale_param = add_param(name + ".weight", ParamKind::bn_scale, Shape{channels}, false);
  info.bias_param = add_param(name + ".bias", ParamKind::bn_bias, Shape{channels}, false);
  info.running_mean = tensor(".running_mean", TensorRole::running_mean);
  info.running_var = tensor(".running_var", TensorRole::running_var);
  info.batch_mean = tensor(".batch_mean", TensorRole::batch_mean);
  info.batch_var = tensor(".batch_var", TensorRole::batch_var);
  info.folded_scale = tensor(".folded_scale", TensorRole::folded_scale);
  info.folded_bias = tensor(".folded_bias", TensorRole::folded_bias);
  parts_.norms.push_back(info);
  return index;
}

void OpGraph::add_input_side(std::int64_t rows) {
  // A slot's extent is the layout's, not the variant's.
  parts_.slot_a = add_tensor("slot_a", TensorRole::slot, Shape{});
  parts_.slot_b = add_tensor("slot_b", TensorRole::slot, Shape{});
  parts_.control = add_tensor("control", TensorRole::control, Shape{static_cast<std::int64_t>(sizeof(ControlBlock))});
  labels = add_tensor("labels", TensorRole::labels, Shape{rows});
  mix_labels = add_tensor("mix_labels", TensorRole::mix_labels, Shape{rows});
  mix_lambda = add_tensor("mix_lambda", TensorRole::mix_lambda, Shape{rows});
  sample_weights = add_tensor("sample_weights", TensorRole::sample_weights, Shape{rows});
  parts_.metrics = add_tensor("metrics", TensorRole::metrics, Shape{region_name::kMetricCount});
}

void OpGraph::add_compute(OpKind op, Pass pass, OpParams params, std::vector<TensorId> inputs,
                          std::vector<TensorId> outputs) {
  ComputeNode node;
  node.name = std::string(op_kind_name(op)) + "." + std::string(pass_name(pass));
  node.op = op;
  node.pass = pass;
  node.params = std::move(params);
  node.inputs = std::move(inputs);
  node.outputs = std::move(outputs);
  node.layer = 0;
  Node placed;
  placed.work = std::move(node);
  parts_.nodes[static_cast<std::size_t>(GraphId::SIMPLE_TASK_GRAPH)].push_back(std::move(placed));
}

void OpGraph::add_range(RangeOp op, const RangeParams& params, std::vector<std::string> inputs,
                        std::vector<std::string> outputs) {
  Node placed;
  placed.work = RangeNode{std::string(range_op_name(op)), op, params, std::move(inputs), std::move(outputs)};
  parts_.nodes[static_cast<std::size_t>(GraphId::SIMPLE_TASK_GRAPH)].push_back(std::move(placed));
}

OpHarness::OpHarness(const OpGraph& graph, Backend& backend, const ShapeId& variant, const SlotLayout& slot,
                     std::unique_ptr<Device> device)
    : graph_(std::make_unique<ComputationGraph>(graph.parts())),
      device_(device ? std::move(device) : make_host_device()),
      control_(make_self_control_group()),
      communicator_(make_self_communicator()),
      specs_{{"op", VariantKind::training, variant, false}},
      shapes_{graph.shapes()} {
  book_ = backend.survey(*graph_, shapes_, specs_);
  verify(book_, *graph_, 1);
  PlanRequest request;
  request.graph = graph_.get();
  request.book = &book_;
  request.specs = specs_;
  request.shapes = &shapes_;
  request.slot = slot;
  request.reuse_slots = false;  // Every tensor can be set before a run and read after it.
  plans_ = build_memory_plans(request);
  verify(request, plans_);
  atlas_ = std::make_unique<GraphAtlas>(build_atlas(*graph_, specs_));
  arena_ = device_->allocate(plan().arena_bytes);
  memory_ = arena_.data();
  if (device_->info().kind != "cpu") {
    mirror_ = device_->allocate_pinned(plan().arena_bytes);
    memory_ = mirror_.data();
  }
  for (Buffer& buffer : staging_) buffer = device_->allocate_pinned(slot.size_bytes);
  read_back_ = device_->allocate_pinned(kReadBackSlots * kReadBackBytes);
  for (int i = 0; i < graph_->deep_buckets(); ++i) bucket_events_.push_back(device_->create_event());
  for (int i = 0; i < kStreamCount; ++i) streams_.push_back(device_->create_stream(i));
  BindContext context;
  context.graph = graph_.get();
  context.book = &book_;
  context.plan = &plan();
  context.arena = arena_.data();
  context.staging = {staging_[0].data(), staging_[1].data()};
  context.read_back = read_back_.data();
  context.bucket_events = bucket_events_;
  context.communicator = communicator_.get();
  contexts_.push_back(context);
  captured_ = capture_atlas(*atlas_, contexts_, backend, streams_, *control_);
}

void OpHarness::poison() { std::memset(memory_, 0xFF, static_cast<std::size_t>(arena_.size_bytes())); }
void OpHarness::clear() { std::memset(memory_, 0, static_cast<std::size_t>(arena_.size_bytes())); }

std::span<std::byte> OpHarness::bytes_of(TensorId tensor) {
  const DTensor& place = plan().tensor(tensor);
  RENAI_CHECK(place.placed(), "'" + graph_->tensor(tensor).name + "' has a place");
  return {memory_ + place.offset_bytes, static_cast<std::size_t>(place.size_bytes)};
}

namespace {

/// Copies logical rows between a dense list and a stored tensor whose rows may be padded.
template <typename CopyRow>
void for_each_row(const DTensor& place, std::int64_t values, CopyRow&& copy_row) {
  RENAI_CHECK(values == place.shape.elems(), "values fill the shape " + place.shape.str());
  const std::int64_t row = place.shape.rank() > 0 ? place.shape[place.shape.rank() - 1] : 1;
  const std::int64_t stride = std::max(row, place.padded_c);
  for (std::int64_t i = 0; i * row < values; ++i) {
    copy_row(i * row, place.offset_bytes + i * stride * dtype_bytes(place.dtype), row, stride - row);
  }
}

}  // namespace

void OpHarness::set(TensorId tensor, std::span<const float> values) {
  const DTensor& place = plan().tensor(tensor);
  for_each_row(place, static_cast<std::int64_t>(values.size()),
               [&](std::int64_t from, std::int64_t to, std::int64_t count, std::int64_t padding) {
                 for (std::int64_t i = 0; i < count + padding; ++i) {
                   const float value = i < count ? values[static_cast<std::size_t>(from + i)] : 0.0f;
                   store_value(memory_ + to + i * dtype_bytes(place.dtype), place.dtype, value);
                 }
               });
}

std::vector<float> OpHarness::get(TensorId tensor) const {
  const DTensor& place = plan().tensor(tensor);
  RENAI_CHECK(place.placed() && is_float(place.dtype), graph_->tensor(tensor).name + " is stored as a float type");
  std::vector<float> values(static_cast<std::size_t>(place.shape.elems()));
  for_each_row(place, place.shape.elems(), [&](std::int64_t to, std::int64_t from, std::int64_t count, std::int64_t) {
    for (std::int64_t i = 0; i < count; ++i) {
      values[static_cast<std::size_t>(to + i)] = load_value(memory_ + from + i * dtype_bytes(place.dtype), place.dtype);
    }
  });
  return values;
}

void OpHarness::set_ints(TensorId tensor, std::span<const std::int32_t> values) {
  const std::span<std::byte> bytes = bytes_of(tensor);
  RENAI_CHECK(values.size_bytes() == bytes.size(), "values fill the tensor");
  std::memcpy(bytes.data(), values.data(), bytes.size());
}

std::vector<std::int32_t> OpHarness::get_ints(TensorId tensor) const {
  const DTensor& place = plan().tensor(tensor);
  RENAI_CHECK(place.placed() && place.dtype == DType::i32, graph_->tensor(tensor).name + " is stored as i32");
  std::vector<std::int32_t> values(static_cast<std::size_t>(place.shape.elems()));
  std::memcpy(values.data(), memory_ + place.offset_bytes, values.size() * sizeof(std::int32_t));
  return values;
}

void OpHarness::set_control(const ControlBlock& control) {
  std::memcpy(bytes_of(graph_->parts().control).data(), &control, sizeof control);
}

std::span<std::byte> OpHarness::region(std::string_view name) {
  const Region& interval = plan().region(name);
  return {memory_ + interval.offset_bytes, static_cast<std::size_t>(interval.size_bytes)};
}

std::span<float> OpHarness::region_floats(std::string_view name) {
  const std::span<std::byte> bytes = region(name);
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

std::span<std::byte> OpHarness::staging(int index) {
  Buffer& buffer = staging_[static_cast<std::size_t>(index)];
  return {buffer.data(), static_cast<std::size_t>(buffer.size_bytes())};
}

std::span<const float> OpHarness::read_back(std::int64_t step) const {
  const std::byte* slot = read_back_.data() + step % kReadBackSlots * kReadBackBytes;
  return {reinterpret_cast<const float*>(slot), static_cast<std::size_t>(kReadBackBytes) / sizeof(float)};
}

/// What CAST_MAIN leaves before a step.
void OpHarness::cast_half_weights() {
  if (!plan().has_region(region_name::kWeightsHalf)) return;
  const std::span<const float> weights = region_floats(region_name::kWeights);
  std::byte* half = region(region_name::kWeightsHalf).data();
  for (std::size_t i = 0; i < weights.size(); ++i) store_value(half + 2 * i, book_.half_dtype, weights[i]);
}

void OpHarness::launch() {
  const AtlasSlot& slot = atlas_->slot(0, GraphId::SIMPLE_TASK_GRAPH);
  cast_half_weights();
  Stream& stream = *streams_[static_cast<std::size_t>(slot.stream)];
  if (memory_ != arena_.data()) stream.copy(arena_.data(), memory_, arena_.size_bytes());
  captured_.graphs.at(static_cast<std::size_t>(slot.capture)).launch(*streams_[static_cast<std::size_t>(slot.stream)]);
}

void OpHarness::wait() {
  Stream& stream = *streams_[static_cast<std::size_t>(atlas_->slot(0, GraphId::SIMPLE_TASK_GRAPH).stream)];
  if (memory_ != arena_.data()) stream.copy(memory_, arena_.data(), arena_.size_bytes());
  stream.synchronize();
}

void OpHarness::run() {
  launch();
  wait();
}

}  // namespace renai::test
