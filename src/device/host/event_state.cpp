#include "event_state.hpp"

#include "renai/base/error.hpp"

namespace renai::host {

void EventState::complete(std::uint64_t ticket, std::exception_ptr failure) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (ticket <= completed_.load(std::memory_order_relaxed)) return;
    failure_ = std::move(failure);
    completed_at_ = std::chrono::steady_clock::now();
    completed_.store(ticket, std::memory_order_release);
  }
  changed_.notify_all();
}

bool EventState::spin(std::uint64_t ticket) const noexcept {
  for (int i = 0; i < kSpinIterations; ++i) {
    if (reached(ticket)) return true;
    spin_pause();
  }
  return reached(ticket);
}

void EventState::await(std::uint64_t ticket) const {
  if (spin(ticket)) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return reached(ticket); });
}

bool EventState::await_for(std::uint64_t ticket, std::chrono::milliseconds limit) const {
  if (spin(ticket)) return true;
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [&] { return reached(ticket); });
}

std::exception_ptr EventState::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::chrono::steady_clock::time_point EventState::completed_at() const {
  const std::lock_guard lock(mutex_);
  return completed_at_;
}

double HostEvent::microseconds_since(const Event& earlier) const {
  const auto* other = dynamic_cast<const HostEvent*>(&earlier);
  if (other == nullptr) throw InternalError("time between events", "the earlier event is of another device");
  return std::chrono::duration<double, std::micro>(state_->completed_at() - other->state_->completed_at()).count();
}

bool HostEvent::ready() const {
  if (!state_->reached(state_->recorded())) return false;
  if (const auto failure = state_->failure()) std::rethrow_exception(failure);
  return true;
}

bool HostEvent::wait_host(std::chrono::milliseconds limit) const {
  if (!state_->reached(state_->recorded())) counters_->host_synchronizations.fetch_add(1, std::memory_order_relaxed);
  return wait_background(limit);
}

bool HostEvent::wait_background(std::chrono::milliseconds limit) const {
  const std::uint64_t ticket = state_->recorded();
  if (!state_->reached(ticket) && !state_->await_for(ticket, limit)) return false;
  if (const auto failure = state_->failure()) std::rethrow_exception(failure);
  return true;
}

}  // namespace renai::host
