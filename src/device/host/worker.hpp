#pragma once
// Worker: one thread that runs the commands of one or more streams in launch order.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "event_state.hpp"

namespace renai::host {

class GraphBody;
class StreamState;

enum class CommandKind : std::uint8_t { work, graph, record, wait, copy, zero };

/// One entry of a worker's ring. Holds shared references, so events and graphs may go while they are in flight.
struct Command {
  CommandKind kind = CommandKind::work;
  StreamState* stream = nullptr;  ///< Outlives the command: a stream drains before it goes.
  std::function<void()> work{};
  std::shared_ptr<GraphBody> graph{};
  std::shared_ptr<EventState> event{};
  std::uint64_t ticket = 0;  ///< record, graph: the ticket to complete; wait: the ticket to reach.
  std::uint64_t launch = 0;  ///< graph: number of the launch, selects its wait tickets.
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::int64_t size_bytes = 0;
};

/// Commands that a worker's ring holds; a full ring makes the pushing thread wait.
inline constexpr std::size_t kRingCapacity = 1024;

class Worker {
 public:
  /// Effects: starts the thread. A push that has to wait for room counts as a host synchronization.
  Worker(int index, std::shared_ptr<Counters> counters);
  ~Worker();  ///< Runs what is in the ring, then joins.
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  int index() const noexcept { return index_; }
  /// Appends a command. Effects: no allocation; blocks while the ring is full.
  void push(Command&& command);

 private:
  void loop();
  bool take(Command& command);

  const int index_;
  std::shared_ptr<Counters> counters_;
  std::mutex mutex_;
  std::condition_variable filled_, drained_;
  std::vector<Command> ring_;
  std::size_t first_ = 0;
  std::atomic<std::size_t> count_{0};  ///< Changed under the mutex; read without it while spinning.
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace renai::host
