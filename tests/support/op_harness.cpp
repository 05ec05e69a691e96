#include "op_harness.hpp"

#include <cstring>

#include "renai/base/check.hpp"
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
  if (has_second_moments(parts_.options.optimizer)) {
    info.second_moment = add_tensor(name + ".exp_avg_sq", TensorRole::second_moment, shape);
  }
  for (const TensorId id : {info.weight, info.grad, info.momentum, info.second_moment}) {
    if (id == kNoTensor) continue;
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

/// Slots are not reused: every tensor can be set before a run and read after it.
OpHarness::OpHarness(const OpGraph& graph, Backend& backend, const ShapeId& variant, const SlotLayout& slot,
                     std::unique_ptr<Device> device)
    : all_(std::make_unique<CapturedPlans>(ComputationGraph(graph.parts()),
                                           std::vector<CompileSpec>{{"op", VariantKind::training, variant, false}},
                                           ShapeTable{graph.shapes()}, backend, slot, false, std::move(device))) {}

void OpHarness::poison() { fill(0xFF); }
void OpHarness::clear() { fill(0); }

/// A control block is staged with every shard: a kernel may read it, whatever it does.
void OpHarness::fill(int byte) {
  std::memset(all_->memory, byte, static_cast<std::size_t>(all_->arena.size_bytes()));
  const TensorId control = graph().parts().control;
  if (control != kNoTensor && plan().tensor(control).placed()) set_control(ControlBlock{});
}

std::span<std::byte> OpHarness::bytes_of(TensorId tensor) {
  const DTensor& place = plan().tensor(tensor);
  RENAI_CHECK(place.placed(), "'" + graph().tensor(tensor).name + "' has a place");
  return {all_->memory + place.offset_bytes, static_cast<std::size_t>(place.size_bytes)};
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
                   store_value(all_->memory + to + i * dtype_bytes(place.dtype), place.dtype, value);
                 }
               });
}

std::vector<float> OpHarness::get(TensorId tensor) const {
  const DTensor& place = plan().tensor(tensor);
  RENAI_CHECK(place.placed() && is_float(place.dtype), graph().tensor(tensor).name + " is stored as a float type");
  std::vector<float> values(static_cast<std::size_t>(place.shape.elems()));
  for_each_row(place, place.shape.elems(), [&](std::int64_t to, std::int64_t from, std::int64_t count, std::int64_t) {
    for (std::int64_t i = 0; i < count; ++i) {
      values[static_cast<std::size_t>(to + i)] =
          load_value(all_->memory + from + i * dtype_bytes(place.dtype), place.dtype);
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
  RENAI_CHECK(place.placed() && place.dtype == DType::i32, graph().tensor(tensor).name + " is stored as i32");
  std::vector<std::int32_t> values(static_cast<std::size_t>(place.shape.elems()));
  std::memcpy(values.data(), all_->memory + place.offset_bytes, values.size() * sizeof(std::int32_t));
  return values;
}

void OpHarness::set_control(const ControlBlock& control) {
  std::memcpy(bytes_of(graph().parts().control).data(), &control, sizeof control);
}

std::span<std::byte> OpHarness::region(std::string_view name) {
  const Region& interval = plan().region(name);
  return {all_->memory + interval.offset_bytes, static_cast<std::size_t>(interval.size_bytes)};
}

std::span<float> OpHarness::region_floats(std::string_view name) {
  const std::span<std::byte> bytes = region(name);
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

std::span<std::byte> OpHarness::staging(int index) {
  Buffer& buffer = all_->staging[static_cast<std::size_t>(index)];
  return {buffer.data(), static_cast<std::size_t>(buffer.size_bytes())};
}

std::span<const float> OpHarness::read_back(std::int64_t step) const {
  const std::byte* slot = all_->read_back.data() + step % kReadBackSlots * kReadBackBytes;
  return {reinterpret_cast<const float*>(slot), static_cast<std::size_t>(kReadBackBytes) / sizeof(float)};
}

void OpHarness::launch() {
  const AtlasSlot& slot = all_->atlas->slot(0, GraphId::SIMPLE_TASK_GRAPH);
  all_->to_device(*all_->streams[static_cast<std::size_t>(slot.stream)]);
  all_->launch(0, GraphId::SIMPLE_TASK_GRAPH);
}

void OpHarness::wait() {
  const AtlasSlot& slot = all_->atlas->slot(0, GraphId::SIMPLE_TASK_GRAPH);
  Stream& stream = *all_->streams[static_cast<std::size_t>(slot.stream)];
  all_->from_device(stream);
  stream.synchronize();
}

void OpHarness::run() {
  launch();
  wait();
}

}  // namespace renai::test
