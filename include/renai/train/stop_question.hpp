#pragma once
// StopQuestion: how ranks agree on the step before which a run ends early.

#include <cstdint>

#include "renai/comm/control_group.hpp"

namespace renai {

/// What follows from how long a step takes, so that a run ends within about a second of a signal where its steps allow
/// that: launchers that are told to end kill their ranks soon after.
struct StopPace {
  int lag = 0;    ///< Steps from a question to the look at its answer and the next question; 0: both before each step.
  int ahead = 1;  ///< Fewer steps than these are launched and not finished when the next one is launched.
  bool operator==(const StopPace&) const = default;
};
/// Determinism: a pure function, so that ranks that agree on the time of a step agree on the pace.
StopPace stop_pace(std::int64_t step_ms);

/// Ranks ask each other for signals and for the time that steps take on the slowest of them. Where a step is short they
/// look at the answer some steps after the question: a rank is then at a step that began only when all ranks had
/// launched the one after the question, so the answer is there and nobody waits for another's work. Where a step is
/// long the moment that the ranks wait for each other does not count.
class StopQuestion {
 public:
  explicit StopQuestion(ControlGroup& control) : control_(&control) {}

  /// Number of the signal for which all ranks end here; 0: the run goes on. Every rank calls it before each step, and
  /// before each batch of a validation, with the number of its own signal or 0. Errors: PeerError.
  int ask(int own_signal);
  /// This rank's steps took `seconds`; `finished` of them ended in that time.
  void took(double seconds, std::int64_t finished);
  /// Ends the question that is open and returns what ask() would. Every rank calls it where it stops asking.
  int close();
  int ahead() const { return pace_.ahead; }

 private:
  void look();

  ControlGroup* control_;
  StopPace pace_;
  bool open_ = false;
  std::int64_t call_ = 0, look_at_ = 0;
  int signal_ = 0;
  double step_ms_ = -1, seconds_ = 0;  ///< Negative: no step has ended yet.
  std::int64_t finished_ = 0;
};

}  // namespace renai
