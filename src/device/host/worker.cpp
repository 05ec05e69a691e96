#include "worker.hpp"

#include "graph_body.hpp"
#include "renai/base/thread.hpp"

namespace renai::host {

Worker::Worker(int index, std::shared_ptr<Counters> counters)
    : index_(index),
      counters_(std::move(counters)),
      ring_(kRingCapacity),
      thread_(start_thread("a thread of the host device", "", [this] { loop(); })) {}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  filled_.notify_one();
  thread_.join();
}

void Worker::push(Command&& command) {
  {
    std::unique_lock lock(mutex_);
    if (count_.load(std::memory_order_relaxed) == kRingCapacity) {
      counters_->host_synchronizations.fetch_add(1, std::memory_order_relaxed);
      drained_.wait(lock, [this] { return count_.load(std::memory_order_relaxed) < kRingCapacity; });
    }
    const std::size_t count = count_.load(std::memory_order_relaxed);
    ring_[(first_ + count) % kRingCapacity] = std::move(command);
    count_.store(count + 1, std::memory_order_release);
  }
  filled_.notify_one();
}

bool Worker::take(Command& command) {
  for (int i = 0; i < kSpinIterations && count_.load(std::memory_order_acquire) == 0; ++i) spin_pause();
  bool was_full = false;
  {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [this] { return count_.load(std::memory_order_relaxed) > 0 || stop_; });
    const std::size_t count = count_.load(std::memory_order_relaxed);
    if (count == 0) return false;
    command = std::move(ring_[first_]);
    first_ = (first_ + 1) % kRingCapacity;
    was_full = count == kRingCapacity;
    count_.store(count - 1, std::memory_order_release);
  }
  if (was_full) drained_.notify_all();
  return true;
}

void Worker::loop() {
  Command command;
  while (take(command)) {
    execute(command);
    // Releases what the command refers to before the next wait, so an idle worker keeps nothing alive.
    command.work = nullptr;
    command.graph.reset();
    command.event.reset();
  }
}

}  // namespace renai::host
