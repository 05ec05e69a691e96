#pragma once
// What an Event of the host leaf is made of: tickets under a mutex, shared by events, commands and recorded graphs.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>

#include "renai/device/device.hpp"

namespace renai::host {

/// Counters of one device; shared with its events, which may outlive it.
struct Counters {
  std::atomic<std::int64_t> allocations{0}, allocated_bytes{0}, pinned_allocations{0}, host_synchronizations{0},
      launches{0};
};

/// Tickets come from one sequence per device, so that a launch gives one ticket to all events inside a graph.
/// `recorded` is the ticket of the latest record call, `completed` that of the latest record passed by a worker.
class EventState {
 public:
  std::uint64_t recorded() const noexcept { return recorded_.load(std::memory_order_acquire); }
  bool reached(std::uint64_t ticket) const noexcept { return completed_.load(std::memory_order_acquire) >= ticket; }
  /// Index of the worker of the latest record; -1 for none.
  int worker() const noexcept { return worker_.load(std::memory_order_relaxed); }
  /// The host has called record: the event is open until a worker passes `ticket`.
  void open(std::uint64_t ticket, int worker) noexcept {
    worker_.store(worker, std::memory_order_relaxed);
    recorded_.store(ticket, std::memory_order_release);
  }
  /// A worker has passed the record; `failure` is null unless the work before it failed.
  void complete(std::uint64_t ticket, std::exception_ptr failure) noexcept;
  /// Blocks until `ticket` is reached: a short spin, then sleep.
  void await(std::uint64_t ticket) const;
  /// As await, for `limit` at most. Returns whether the ticket was reached.
  bool await_for(std::uint64_t ticket, std::chrono::milliseconds limit) const;
  std::exception_ptr failure() const;
  /// When the latest ticket was completed.
  std::chrono::steady_clock::time_point completed_at() const;

 private:
  bool spin(std::uint64_t ticket) const noexcept;

  std::atomic<std::uint64_t> recorded_{0}, completed_{0};
  std::atomic<int> worker_{-1};
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::exception_ptr failure_;
  std::chrono::steady_clock::time_point completed_at_;
};

/// Waits a moment without giving up the core; tells the core that this is a spin loop.
inline void spin_pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/// Iterations of every short spin: about two microseconds, so that an oversubscribed machine loses nothing.
inline constexpr int kSpinIterations = 64;

class HostEvent final : public Event {
 public:
  explicit HostEvent(std::shared_ptr<Counters> counters)
      : state_(std::make_shared<EventState>()), counters_(std::move(counters)) {}
  bool ready() const override;
  bool wait_host(std::chrono::milliseconds limit) const override;
  bool wait_background(std::chrono::milliseconds limit) const override;
  double microseconds_since(const Event& earlier) const override;
  const std::shared_ptr<EventState>& state() const noexcept { return state_; }

 private:
  std::shared_ptr<EventState> state_;
  std::shared_ptr<Counters> counters_;
};

}  // namespace renai::host
