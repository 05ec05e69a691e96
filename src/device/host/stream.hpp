#pragma once
// The stream of the host leaf, and what all streams of one device share.

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "graph_body.hpp"
#include "renai/device/host.hpp"
#include "worker.hpp"

namespace renai::host {

/// Workers, counters and the ticket sequence of one device. Lives as long as its last stream.
struct Core {
  explicit Core(const HostDeviceOptions& options);
  std::uint64_t next_ticket() noexcept { return tickets.fetch_add(1, std::memory_order_relaxed) + 1; }
  /// The worker of a stream index. Errors: InternalError when out of range.
  Worker& worker_of(int stream_index);

  HostDeviceOptions options;
  std::shared_ptr<Counters> counters = std::make_shared<Counters>();
  std::atomic<std::uint64_t> tickets{0};
  std::vector<std::unique_ptr<Worker>> workers;
};

class StreamOnWorker final : public HostStream {
 public:
  StreamOnWorker(std::shared_ptr<Core> core, int index);
  ~StreamOnWorker() override;  ///< Waits for the work so far; its failure is dropped.

  void begin_capture() override;
  std::unique_ptr<RecordedGraph> end_capture() override;
  void launch(RecordedGraph& graph) override;
  void record(Event& event) override;
  void wait(const Event& event) override;
  void copy(std::byte* to, const std::byte* from, std::int64_t size_bytes) override;
  void zero(std::byte* at, std::int64_t size_bytes) override;
  void synchronize() override;
  void enqueue(std::function<void()> work) override;

 private:
  bool capturing() const { return capturer_.load(std::memory_order_acquire) == std::this_thread::get_id(); }
  void rethrow_failure() const;
  void push(Command&& command);
  void open_event(const std::shared_ptr<EventState>& event, std::uint64_t ticket);
  void push_record(const std::shared_ptr<EventState>& event);

  std::shared_ptr<Core> core_;
  Worker* worker_;
  StreamState state_;
  std::shared_ptr<EventState> drained_ = std::make_shared<EventState>();
  std::atomic<std::thread::id> capturer_{};
  std::vector<GraphCall> captured_;  ///< Touched by the capturing thread only.
};

}  // namespace renai::host
