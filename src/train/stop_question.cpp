#include "renai/train/stop_question.hpp"

#include <algorithm>

#include "renai/train/task.hpp"

namespace renai {
namespace {

/// A question and the look at its answer are no further apart than this; a pipeline as full as this is full enough.
constexpr std::int64_t kLagMs = 150, kAheadMs = 400;
/// The largest of all ranks' values answers both: signals lie above all times of steps.
constexpr int kFirstSignal = 1 << 24;

}  // namespace

StopPace stop_pace(std::int64_t step_ms) {
  constexpr std::int64_t kMost = StepSchedule::kStepsInFlight;
  const std::int64_t ms = std::max<std::int64_t>(step_ms, 1);
  return {static_cast<int>(std::min(kLagMs / ms, kMost)),
          static_cast<int>(std::clamp<std::int64_t>(kAheadMs / ms, 1, kMost - 1))};
}

int StopQuestion::ask(int own_signal) {
  if (signal_ != 0) return signal_;
  ++call_;
  if (open_ && call_ == look_at_) look();
  if (open_ || signal_ != 0) return signal_;
  // What takes longer than steps did is known before one of them ends.
  const double unfinished_ms = finished_ == 0 ? seconds_ * 1e3 : 0.0;
  const double ms = finished_ > 0 ? seconds_ * 1e3 / static_cast<double>(finished_) : std::max(step_ms_, unfinished_ms);
  if (finished_ > 0) {
    step_ms_ = ms;
    seconds_ = 0;
    finished_ = 0;
  }
  const bool known = step_ms_ >= 0;
  const int value = known ? static_cast<int>(std::min<double>(ms, kFirstSignal - 1)) : kFirstSignal - 1;
  control_->start_maximum(own_signal != 0 ? kFirstSignal + own_signal : value);
  open_ = true;
  // One rank alone has nobody to wait for.
  const int lag = control_->world_size() == 1 ? 0 : pace_.lag;
  look_at_ = call_ + lag;
  if (lag == 0) look();
  return signal_;
}

void StopQuestion::look() {
  const int most = control_->finish_maximum("asking between steps whether the run goes on");
  open_ = false;
  if (most >= kFirstSignal) {
    signal_ = most - kFirstSignal;
  } else {
    pace_ = stop_pace(most);
  }
}

void StopQuestion::took(double seconds, std::int64_t finished) {
  seconds_ += seconds;
  finished_ += finished;
}

int StopQuestion::close() {
  if (open_) look();
  return signal_;
}

}  // namespace renai
