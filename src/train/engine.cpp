#include "renai/train/engine.hpp"

#include <cstring>
#include <span>
#include <vector>

#include "renai/base/check.hpp"
#include "renai/tensor/slot_layout.hpp"

namespace renai {
namespace {

int bucket_event_count(const ComputationGraph& graph) {
  int count = graph.deep_buckets();
  for (const auto& nodes : graph.parts().nodes) {
    for (const Node& node : nodes) count = std::max(count, node.records_event + 1);
  }
  return count;
}

/// Before capture, graphs that hold exchanges run once, with --sync-bn the first layer's, too: that is on slots which
/// no loader has filled yet. They get images that are seen whole.
void fill_slots(const Blueprint& blueprint, std::byte* arena, Stream& stream) {
  const MemoryPlan& plan = blueprint.plans.front();
  SampleParams whole;
  whole.crop_h = static_cast<std::int32_t>(blueprint.slot.h);
  whole.crop_w = static_cast<std::int32_t>(blueprint.slot.w);
  const std::vector<SampleParams> samples(static_cast<std::size_t>(blueprint.slot.rows), whole);
  const auto bytes = std::as_bytes(std::span(samples));
  for (const TensorId slot : {blueprint.graph.parts().slot_a, blueprint.graph.parts().slot_b}) {
    if (slot == kNoTensor || !plan.tensor(slot).placed()) continue;  // A hand-built graph may read none.
    std::byte* to = arena + plan.tensor(slot).offset_bytes + blueprint.slot.params_offset;
    stream.copy(to, bytes.data(), static_cast<std::int64_t>(bytes.size()));
  }
  stream.synchronize();
}

}  // namespace

Engine::Engine(const Blueprint& blueprint, const Run& run) : blueprint_(&blueprint), run_(run) {
  const MemoryPlan& plan = blueprint.plans.front();
  arena_ = std::make_shared<const Buffer>(run_.device->allocate(plan.arena_bytes));
  if (run_.communicator != nullptr) run_.communicator->use_memory(arena_);
  for (Buffer& buffer : staging_) buffer = run_.device->allocate_pinned(blueprint.slot.size_bytes);
  read_back_ = run_.device->allocate_pinned(kReadBackSlots * kReadBackBytes);
  for (int i = 0; i < bucket_event_count(blueprint.graph); ++i) bucket_events_.push_back(run_.device->create_event());
  for (int i = 0; i < kStreamCount; ++i) streams_.push_back(run_.device->create_stream(i));

  std::vector<BindContext> contexts;
  for (std::size_t i = 0; i < blueprint.plans.size(); ++i) {
    BindContext context;
    context.graph = &blueprint.graph;
    context.book = &blueprint.book;
    context.plan = &blueprint.plans[i];
    context.spec = static_cast<int>(i);
    context.arena = arena_->data();
    context.staging = staging();
    context.read_back = read_back_.data();
    context.bucket_events = bucket_events_;
    context.communicator = run_.communicator;
    contexts.push_back(context);
  }
  fill_slots(blueprint, arena_->data(), stream(StreamId::UPDATE));
  captured_ = capture_atlas(blueprint.atlas, contexts, *run_.backend, streams_, *run_.control, run_.capture);

  table_.resize(static_cast<std::size_t>(blueprint.atlas.variant_count()) * kGraphIdCount);
  for (int variant = 0; variant < blueprint.atlas.variant_count(); ++variant) {
    for (int id = 0; id < kGraphIdCount; ++id) {
      const AtlasSlot& slot = blueprint.atlas.slot(variant, static_cast<GraphId>(id));
      if (!slot.used) continue;
      Entry& entry = table_[index(variant, static_cast<GraphId>(id))];
      entry.graph = &captured_.graphs[static_cast<std::size_t>(slot.capture)];
      entry.stream = streams_[static_cast<std::size_t>(slot.stream)].get();
      entry.stream_id = slot.stream;
    }
  }
}

void Engine::launch_one(const Entry& entry, GraphId id, int part) {
  if (!timing_) {
    entry.graph->launch(*entry.stream, part);
    return;
  }
  Frame& frame =
      frames_.emplace_back(id, entry.stream_id, run_.device->create_timed_event(), run_.device->create_timed_event());
  entry.stream->record(*frame.start);
  entry.graph->launch(*entry.stream, part);
  entry.stream->record(*frame.end);
}

void Engine::launch(int variant, GraphId id) {
  const Entry& entry = table_[index(variant, id)];
  if (entry.graph == nullptr) return;
  for (int part = 0; part < entry.graph->part_count(); ++part) launch_one(entry, id, part);
}

void Engine::launch_part(int variant, GraphId id, int part) {
  const Entry& entry = table_[index(variant, id)];
  if (entry.graph != nullptr) launch_one(entry, id, part);
}

void Engine::start_timeline() {
  frames_.clear();
  timing_ = true;
}

std::vector<Engine::TimedLaunch> Engine::stop_timeline() {
  timing_ = false;
  for (const auto& one : streams_) one->synchronize();
  std::vector<TimedLaunch> launches;
  if (frames_.empty()) return launches;
  const Event& origin = *frames_.front().start;
  for (const Frame& frame : frames_) {
    launches.push_back(
        {frame.id, frame.stream, frame.start->microseconds_since(origin), frame.end->microseconds_since(origin)});
  }
  frames_.clear();
  return launches;
}

std::span<const float> Engine::read_back(std::int64_t step) const {
  const std::byte* slot = read_back_.data() + (step % kReadBackSlots) * kReadBackBytes;
  return {reinterpret_cast<const float*>(slot), kReadBackBytes / sizeof(float)};
}

// A copy from or to memory that is not page-locked may wait for the stream's work inside of the driver, where nobody
// looks whether the other ranks are alive: the stream is empty before it.

void Engine::upload(std::int64_t offset_bytes, std::span<const std::byte> data) {
  RENAI_CHECK(offset_bytes >= 0 && offset_bytes + static_cast<std::int64_t>(data.size()) <= arena_->size_bytes(),
              "an upload stays inside the arena");
  Stream& update = stream(StreamId::UPDATE);
  update.synchronize();
  update.copy(arena_->data() + offset_bytes, data.data(), static_cast<std::int64_t>(data.size()));
  update.synchronize();
}

void Engine::download(std::int64_t offset_bytes, std::span<std::byte> data) {
  RENAI_CHECK(offset_bytes >= 0 && offset_bytes + static_cast<std::int64_t>(data.size()) <= arena_->size_bytes(),
              "a download stays inside the arena");
  Stream& update = stream(StreamId::UPDATE);
  update.synchronize();
  update.copy(data.data(), arena_->data() + offset_bytes, static_cast<std::int64_t>(data.size()));
  update.synchronize();
}

}  // namespace renai
