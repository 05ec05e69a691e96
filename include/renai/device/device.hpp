#pragma once
// Device, Stream, Event, Buffer: the few things that run-time objects need. Leaves: host, cuda.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace renai {

/// Owned memory of one device (arena) or page-locked host memory. Move-only. 256-byte aligned, zero-filled at creation.
class Buffer {
 public:
  using Release = void (*)(std::byte* data, std::int64_t size_bytes) noexcept;
  Buffer() = default;
  Buffer(std::byte* data, std::int64_t size_bytes, Release release)
      : data_(data), size_bytes_(size_bytes), release_(release) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) release_(data_, size_bytes_);
  }
  std::byte* data() const noexcept { return data_; }
  std::int64_t size_bytes() const noexcept { return size_bytes_; }
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    std::swap(release_, other.release_);
  }

 private:
  std::byte* data_ = nullptr;
  std::int64_t size_bytes_ = 0;
  Release release_ = nullptr;
};

/// A point in a stream's work. Reusable: recording again moves it. Never recorded counts as reached.
class Event {
 public:
  virtual ~Event() = default;
  /// Errors: rethrows the failure of the work before the event.
  virtual bool ready() const = 0;
  /// Blocks the calling host thread; false when the time is over. Errors: as ready().
  virtual bool wait_host(std::chrono::milliseconds limit) const = 0;
  /// As wait_host, for threads beside the step (loaders): not counted as a host synchronisation.
  virtual bool wait_background(std::chrono::milliseconds limit) const = 0;
  /// Time between two reached events of one device, made by create_timed_event. Units: microseconds.
  virtual double microseconds_since(const Event& earlier) const = 0;
};

/// Recorded work that can be launched again and again. On a GPU a cudaGraphExec_t; on the host a list of prepared
/// calls.
class RecordedGraph {
 public:
  virtual ~RecordedGraph() = default;
};

/// An ordered queue of work. Calls return at once; a failure of the work is rethrown by the next call and by events.
/// Between begin_capture and end_capture calls are recorded instead of run (the calling thread only).
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<RecordedGraph> end_capture() = 0;
  virtual void launch(RecordedGraph& graph) = 0;
  virtual void record(Event& event) = 0;  ///< In capture: an external event, released each time the graph passes it.
  virtual void wait(
      const Event& event) = 0;  ///< Later work waits for the event's latest record. In capture: external wait.
  virtual void copy(std::byte* to, const std::byte* from, std::int64_t size_bytes) = 0;  ///< Any of host and device.
  virtual void zero(std::byte* at, std::int64_t size_bytes) = 0;
  virtual void synchronize() = 0;  ///< Host waits for all work so far. Not used in a step.
};

/// Counts since creation, to prove that the steady state allocates nothing and never blocks.
struct DeviceCounters {
  std::int64_t allocations = 0, allocated_bytes = 0, pinned_allocations = 0, host_synchronizations = 0, launches = 0;
};

struct DeviceInfo {
  std::string kind;             ///< "cpu", "cuda"
  std::string model;            ///< CPU or GPU model name.
  std::string uuid;             ///< GPU UUID; empty on the host.
  std::string instruction_set;  ///< "avx512_core_bf16", "sm_90".
  int numa_node = -1;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceInfo info() const = 0;
  /// Errors: ResourceError with the size asked for and what is free.
  virtual Buffer allocate(std::int64_t size_bytes) = 0;
  virtual Buffer allocate_pinned(std::int64_t size_bytes) = 0;
  /// Streams share workers where the leaf maps them so (host: COMPUTE and UPDATE run on one thread). `index` is a
  /// StreamId's value.
  virtual std::unique_ptr<Stream> create_stream(int index) = 0;
  virtual std::unique_ptr<Event> create_event() = 0;
  /// As create_event, for measuring: microseconds_since may be asked. Dearer than a plain event on some leaves.
  virtual std::unique_ptr<Event> create_timed_event() { return create_event(); }
  virtual DeviceCounters counters() const = 0;
};

}  // namespace renai
