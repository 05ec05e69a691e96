#pragma once
// Work that several threads do and one takes in order, with a bound on what waits between them.

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "renai/base/thread.hpp"

namespace renai {

/// Of ordered work: how far the makers may run ahead of the taker.
struct OrderedLimits {
  int threads = 1;
  std::int64_t items = 64;                           ///< At most so many made or in the making, not yet taken.
  std::int64_t held_bytes = std::int64_t{64} << 20;  ///< No item is begun while so much waits, but the next to take.
};

/// Makes items 0 ... count - 1 on threads and hands them to `take` in order, on the calling thread.
/// `make(i, thread)` returns an Item with `held_bytes()`. Errors: the exception of the first item that has one,
/// whichever thread was faster, or that of `take`; ResourceError where a thread cannot be started.
template <typename Item>
class OrderedWork {
 public:
  using Make = std::function<Item(std::int64_t, int)>;
  using Take = std::function<void(std::int64_t, Item&&)>;

  OrderedWork(std::int64_t count, const OrderedLimits& limits, Make make)
      : count_(count), limits_(limits), make_(std::move(make)), places_(static_cast<std::size_t>(limits.items)) {}

  void run(const Take& take) {
    const auto threads = static_cast<int>(std::min<std::int64_t>(limits_.threads, count_));
    for (int t = 0; t < threads; ++t)
      threads_.start("decoding thread " + std::to_string(t), "--threads", [this, t] { work(t); });
    for (std::int64_t i = 0; i < count_; ++i) {
      Item item = wait_for(i);
      take(i, std::move(item));
    }
    threads_.end();
  }

 private:
  struct Place {
    std::optional<Item> item;
    std::exception_ptr failure;
  };
  Place& place(std::int64_t i) { return places_[static_cast<std::size_t>(i % limits_.items)]; }

  bool may_begin() const {
    return begun_ < taken_ + limits_.items && (begun_ == taken_ || held_bytes_ < limits_.held_bytes);
  }

  void work(int thread) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      room_.wait(lock, [this] { return stopping_ || begun_ == count_ || may_begin(); });
      if (stopping_ || begun_ == count_) return;
      const std::int64_t i = begun_++;
      lock.unlock();
      Place made;
      try {
        made.item.emplace(make_(i, thread));
      } catch (...) {
        made.failure = std::current_exception();
      }
      lock.lock();
      if (made.item) held_bytes_ += made.item->held_bytes();
      place(i) = std::move(made);
      if (i == taken_) ready_.notify_one();
    }
  }

  Item wait_for(std::int64_t i) {
    std::unique_lock<std::mutex> lock(mutex_);
    Place& at = place(i);
    ready_.wait(lock, [&at] { return at.item || at.failure; });
    if (at.failure) std::rethrow_exception(at.failure);
    Item item = std::move(*at.item);
    at.item.reset();
    held_bytes_ -= item.held_bytes();
    ++taken_;
    room_.notify_all();
    return item;
  }

  void stop() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    room_.notify_all();
  }

  const std::int64_t count_;
  const OrderedLimits limits_;
  const Make make_;
  std::mutex mutex_;
  std::condition_variable room_, ready_;
  std::vector<Place> places_;
  std::int64_t begun_ = 0, taken_ = 0, held_bytes_ = 0;
  bool stopping_ = false;
  ThreadGroup threads_{[this] { stop(); }};
};

}  // namespace renai
