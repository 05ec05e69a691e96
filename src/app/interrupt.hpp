#pragma once
// SignalWatch: SIGINT and SIGTERM as a number to look at, so that a run can end in order.

#include <signal.h>

#include <array>
#include <atomic>

namespace renai {

/// While it lives, the first SIGINT or SIGTERM only sets `signal()`. The second of a kind ends the process as ever.
/// Effects: for the whole process; one at a time.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  /// Number of the last signal; 0: none yet.
  const std::atomic<int>& signal() const;

 private:
  static constexpr std::array<int, 2> kSignals{SIGINT, SIGTERM};
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace renai
