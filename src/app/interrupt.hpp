#pragma once
// SignalWatch: signals that ask for an end as a number to look at, so that a run can end in order.

#include <signal.h>

#include <array>
#include <atomic>

namespace renai {

/// While it lives, the first signal of a kind only sets `signal()`, the second ends the process as ever. Besides SIGINT
/// and SIGTERM these are what a lost terminal sends (SIGHUP) and batch systems near a limit (SIGXCPU, SIGUSR1,
/// SIGUSR2), each unless the process was started with it ignored, as by nohup. Effects: for the whole process; one at a
/// time.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  /// Number of the last signal; 0: none yet.
  const std::atomic<int>& signal() const;

 private:
  static constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP, SIGXCPU, SIGUSR1, SIGUSR2};
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace renai
