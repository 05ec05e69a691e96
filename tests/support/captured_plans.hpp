#pragma once
// CapturedPlans: what the harnesses of operators and of steps have in common: the leaves of one rank, a graph's plans,
// the memory they book, and every capture.

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "half_values.hpp"
#include "renai/backend/backend.hpp"
#include "renai/backend/pre_capture.hpp"
#include "renai/comm/communicator.hpp"
#include "renai/comm/control_group.hpp"
#include "renai/comm/mpi.hpp"
#include "renai/device/device.hpp"
#include "renai/device/host.hpp"
#include "renai/graph/computation_graph.hpp"
#include "renai/graph/region_name.hpp"
#include "renai/plan/graph_atlas.hpp"
#include "renai/plan/memory_plan.hpp"

namespace renai::test {

/// What one rank of several has; empty: one rank alone.
struct Ranks {
  std::unique_ptr<MpiSession> session;
  std::unique_ptr<ControlGroup> control;
  std::unique_ptr<Communicator> communicator;
};

/// Not movable: bound contexts refer to the members.
struct CapturedPlans {
  /// `own_device`: where the backend runs; null for the host. Errors: those of survey, plan and capture.
  CapturedPlans(ComputationGraph given, std::vector<CompileSpec> variants, ShapeTable shape_table, Backend& backend,
                const SlotLayout& slot, bool reuse_slots, std::unique_ptr<Device> own_device = nullptr,
                Ranks ranks = {})
      : session(std::move(ranks.session)),
        graph(std::move(given)),
        specs(std::move(variants)),
        shapes(std::move(shape_table)),
        device(own_device ? std::move(own_device) : make_host_device()),
        control(ranks.control ? std::move(ranks.control) : make_self_control_group()),
        communicator(ranks.communicator ? std::move(ranks.communicator) : make_self_communicator()) {
    book = backend.survey(graph, shapes, specs);
    verify(book, graph, static_cast<int>(specs.size()));
    PlanRequest request;
    request.graph = &graph;
    request.book = &book;
    request.specs = specs;
    request.shapes = &shapes;
    request.slot = slot;
    request.reuse_slots = reuse_slots;
    request.comm_scratch_bytes = comm_scratch_bytes();
    plans = build_memory_plans(request);
    verify(request, plans);
    atlas = std::make_unique<GraphAtlas>(build_atlas(graph, specs));
    capture(backend);
  }
  CapturedPlans(const CapturedPlans&) = delete;
  CapturedPlans& operator=(const CapturedPlans&) = delete;

  /// Starts all parts of a graph that the variant has; returns the stream that they run on, or null.
  Stream* launch(int variant, GraphId id) {
    const AtlasSlot& slot = atlas->slot(variant, id);
    if (!slot.used) return nullptr;
    Stream& stream = *streams[static_cast<std::size_t>(slot.stream)];
    const CapturedGraph& captured = captures.graphs.at(static_cast<std::size_t>(slot.capture));
    for (int part = 0; part < captured.part_count(); ++part) captured.launch(stream, part);
    return &stream;
  }

  /// Starts one part of it.
  Stream* launch_part(int variant, GraphId id, int part) {
    const AtlasSlot& slot = atlas->slot(variant, id);
    if (!slot.used) return nullptr;
    Stream& stream = *streams[static_cast<std::size_t>(slot.stream)];
    captures.graphs.at(static_cast<std::size_t>(slot.capture)).launch(stream, part);
    return &stream;
  }

  bool mirrored() const { return memory != arena.data(); }
  /// Brings what tests set to another device, with the half copy of the weights.
  void to_device(Stream& stream) {
    cast_half_weights();
    if (mirrored()) stream.copy(arena.data(), memory, arena.size_bytes());
  }
  /// Brings what kernels wrote back.
  void from_device(Stream& stream) const {
    if (mirrored()) stream.copy(memory, arena.data(), arena.size_bytes());
  }

  std::unique_ptr<MpiSession> session;
  ComputationGraph graph;
  std::vector<CompileSpec> specs;
  ShapeTable shapes;
  std::unique_ptr<Device> device;
  std::unique_ptr<ControlGroup> control;
  std::unique_ptr<Communicator> communicator;
  KernelBook book;
  std::vector<MemoryPlan> plans;
  std::unique_ptr<GraphAtlas> atlas;
  Buffer arena, mirror, read_back;
  std::byte* memory = nullptr;  ///< What tests see: the arena, or its mirror on the host.
  std::array<Buffer, 2> staging;
  std::vector<std::unique_ptr<Event>> bucket_events;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<BindContext> contexts;
  PreCaptureResult captures;  // Goes before streams and events.

 private:
  /// For a reduction of all values of a shard at once.
  std::int64_t comm_scratch_bytes() const {
    std::int64_t elems = 0;
    for (std::size_t i = 0; i < graph.tensors().size(); ++i) {
      const TensorRole role = graph.tensors()[i].role;
      const bool reduced = role == TensorRole::grad || role == TensorRole::metrics || role == TensorRole::batch_mean ||
                           role == TensorRole::batch_var;
      if (reduced) elems += align_slot(shapes.front()[i].elems() * 4) / 4;
    }
    return communicator->world_size() == 1 ? 0 : align_slot(communicator->tree_reduce_scratch_bytes(elems));
  }

  /// What CAST_MAIN leaves before a step.
  void cast_half_weights() const {
    const MemoryPlan& plan = plans.front();
    if (!plan.has_region(region_name::kWeightsHalf)) return;
    const Region& weights = plan.region(region_name::kWeights);
    std::byte* half = memory + plan.region(region_name::kWeightsHalf).offset_bytes;
    for (std::int64_t i = 0; i < weights.size_bytes / 4; ++i) {
      store_value(half + 2 * i, book.half_dtype, load_value(memory + weights.offset_bytes + 4 * i, DType::f32));
    }
  }

  void capture(Backend& backend) {
    arena = device->allocate(plans.front().arena_bytes);
    memory = arena.data();
    if (device->info().kind != "cpu") {
      mirror = device->allocate_pinned(arena.size_bytes());
      memory = mirror.data();
    }
    for (Buffer& buffer : staging) buffer = device->allocate_pinned(plans.front().slot.size_bytes);
    read_back = device->allocate_pinned(kReadBackSlots * kReadBackBytes);
    for (int i = 0; i < graph.deep_buckets(); ++i) bucket_events.push_back(device->create_event());
    for (int i = 0; i < kStreamCount; ++i) streams.push_back(device->create_stream(i));
    for (std::size_t i = 0; i < plans.size(); ++i) {
      BindContext context;
      context.graph = &graph;
      context.book = &book;
      context.plan = &plans[i];
      context.spec = static_cast<int>(i);
      context.arena = arena.data();
      context.staging = {staging[0].data(), staging[1].data()};
      context.read_back = read_back.data();
      context.bucket_events = bucket_events;
      context.communicator = communicator.get();
      contexts.push_back(context);
    }
    captures = capture_atlas(*atlas, contexts, backend, streams, *control);
  }
};

}  // namespace renai::test
