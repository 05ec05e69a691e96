#pragma once
// Engine: a Blueprint in memory: arena, staging, streams, events and captured graphs. Can only launch.

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "renai/backend/pre_capture.hpp"
#include "renai/comm/control_group.hpp"
#include "renai/device/device.hpp"
#include "renai/train/blueprint.hpp"

namespace renai {

/// What a run stands on; owned by `app`, passed down.
struct Run {
  Device* device = nullptr;
  Backend* backend = nullptr;
  Communicator* communicator = nullptr;
  ControlGroup* control = nullptr;
  bool capture = true;  ///< False: graphs are enqueued kernel by kernel at each launch, to compare with.
};

/// The memory, streams and captured graphs of one run.
class Engine {
 public:
  /// Books all memory, warms up and captures (compile phases 6 and 7). `blueprint` must outlive the engine.
  Engine(const Blueprint& blueprint, const Run& run);

  const Blueprint& blueprint() const { return *blueprint_; }
  const Run& run() const { return run_; }
  Stream& stream(StreamId id) { return *streams_[static_cast<std::size_t>(id)]; }
  bool has(int variant, GraphId id) const { return table_[index(variant, id)].graph != nullptr; }
  /// Launches every part of a graph, or one; nothing when the slot is empty.
  void launch(int variant, GraphId id);
  void launch_part(int variant, GraphId id, int part);
  Event& bucket_event(int bucket) { return *bucket_events_[static_cast<std::size_t>(bucket)]; }
  std::unique_ptr<Event> create_event() const { return run_.device->create_event(); }

  std::array<std::byte*, 2> staging() const { return {staging_[0].data(), staging_[1].data()}; }
  /// Metrics and scalars of a step, as written by read_back: 16 + 16 f32.
  std::span<const float> read_back(std::int64_t step) const;
  std::byte* arena() const { return arena_->data(); }
  std::int64_t arena_bytes() const { return arena_->size_bytes(); }
  double capture_seconds() const { return captured_.seconds; }

  /// When one launched graph ran on its stream. Units: microseconds since start_timeline.
  struct TimedLaunch {
    GraphId id = GraphId::SIMPLE_TASK_GRAPH;
    StreamId stream = StreamId::COMPUTE;
    double start_us = 0, end_us = 0;
  };
  /// From now on each launch is framed by two events (made here, so this is for measuring only).
  void start_timeline();
  /// Waits for all streams and returns the launches since start_timeline, in launch order.
  std::vector<TimedLaunch> stop_timeline();

  /// Blocking copies between host and arena, outside the step (initialisation, checkpoints, results).
  void upload(std::int64_t offset_bytes, std::span<const std::byte> data);
  void download(std::int64_t offset_bytes, std::span<std::byte> data);

 private:
  struct Entry {
    const CapturedGraph* graph = nullptr;
    Stream* stream = nullptr;
    StreamId stream_id = StreamId::COMPUTE;
  };
  struct Frame {
    GraphId id;
    StreamId stream;
    std::unique_ptr<Event> start, end;
  };
  void launch_one(const Entry& entry, GraphId id, int part);
  static std::size_t index(int variant, GraphId id) {
    return static_cast<std::size_t>(variant) * kGraphIdCount + static_cast<std::size_t>(id);
  }
  const Blueprint* blueprint_;
  Run run_;
  std::shared_ptr<const Buffer> arena_;  // shared: the messages of a failed collective may outlive the engine
  std::array<Buffer, 2> staging_;
  Buffer read_back_;
  std::vector<std::unique_ptr<Event>> bucket_events_;
  std::vector<std::unique_ptr<Stream>> streams_;
  PreCaptureResult captured_;  // after streams_: executables go before streams and communicator
  std::vector<Entry> table_;
  bool timing_ = false;
  std::vector<Frame> frames_;
};

}  // namespace renai
