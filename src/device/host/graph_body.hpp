#pragma once
// GraphBody: the prepared calls of a recorded graph, and how a worker runs commands.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "renai/device/device.hpp"
#include "worker.hpp"

namespace renai::host {

/// Failure of a stream's work. Once failed, later work is skipped and later events complete as failed.
class StreamState {
 public:
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  std::exception_ptr failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  void fail(std::exception_ptr failure) noexcept {
    const std::lock_guard lock(mutex_);
    if (failure_ == nullptr) failure_ = std::move(failure);
    failed_.store(true, std::memory_order_release);
  }

 private:
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::exception_ptr failure_;
};

/// One recorded call.
struct GraphCall {
  CommandKind kind = CommandKind::work;  ///< Never `graph`: launches inside a capture are flattened.
  std::function<void()> work{};
  std::shared_ptr<EventState> event{};
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::int64_t size_bytes = 0;
};

/// The calls of a graph. Tickets of external waits are taken at launch, so a record made later by the host does not
/// delay a launch made earlier; they are kept for as many launches as can be in flight.
class GraphBody {
 public:
  GraphBody(std::vector<GraphCall> calls, int workers);

  const std::vector<GraphCall>& calls() const noexcept { return calls_; }
  /// Host side of a launch: takes the tickets of all external waits; returns the launch number.
  std::uint64_t begin_launch();
  /// Worker side: runs all calls in order on behalf of `stream`.
  void run(StreamState& stream, std::uint64_t ticket, std::uint64_t launch);

 private:
  std::vector<GraphCall> calls_;
  std::size_t waits_ = 0, launches_in_flight_ = 0;
  std::vector<std::uint64_t> wait_tickets_;  ///< [launch % launches_in_flight_][wait]
  std::atomic<std::uint64_t> launches_{0};
};

class HostGraph final : public RecordedGraph {
 public:
  explicit HostGraph(std::shared_ptr<GraphBody> body) : body_(std::move(body)) {}
  const std::shared_ptr<GraphBody>& body() const noexcept { return body_; }

 private:
  std::shared_ptr<GraphBody> body_;
};

/// Runs one command on the worker's thread. Never throws: a failure goes to the command's stream.
void execute(Command& command) noexcept;

}  // namespace renai::host
