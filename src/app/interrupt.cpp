#include "interrupt.hpp"

namespace renai {
namespace {

/// A handler can reach nothing else.
std::atomic<int> last_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void note_signal(int number) { last_signal.store(number); }

}  // namespace

SignalWatch::SignalWatch() {
  last_signal.store(0);
  struct sigaction action {};
  action.sa_handler = &note_signal;
  // SA_RESTART: reads and writes of files go on as if nothing had come.
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    const bool always = kSignals[i] == SIGINT || kSignals[i] == SIGTERM;
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (always || before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

SignalWatch::~SignalWatch() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

const std::atomic<int>& SignalWatch::signal() const { return last_signal; }

}  // namespace renai
