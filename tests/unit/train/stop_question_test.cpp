// How ranks agree on the end of an interrupted run: at the same step, soon, and without waiting where steps are short.
#include "renai/train/stop_question.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "renai/train/task.hpp"

namespace renai {
namespace {

/// Rank 0 of two; the test says what the other one answers. Counts the questions.
class Pair final : public ControlGroup {
 public:
  explicit Pair(int ranks = 2) : ranks_(ranks) {}
  int rank() const override { return 0; }
  int world_size() const override { return ranks_; }
  std::vector<std::string> all_gather(std::string_view message, std::string_view) override {
    return {std::string(message), std::string(message)};
  }
  void report_failure(const Error&) noexcept override {}
  void poll() override {}
  void start_maximum(int value) override {
    EXPECT_FALSE(open);
    open = true;
    ++questions;
    value_ = value;
  }
  int finish_maximum(std::string_view) override {
    EXPECT_TRUE(open);
    open = false;
    return std::max(value_, other);
  }
  std::chrono::milliseconds deadline() const override { return std::chrono::milliseconds{1}; }

  bool open = false;
  int questions = 0, other = 0;

 private:
  int ranks_, value_ = 0;
};

/// Makes steps of a length until the question says stop; the signal comes before step `signal_at`. Returns the step
/// that was not made.
std::int64_t steps_made(StopQuestion& question, double step_seconds, std::int64_t signal_at) {
  for (std::int64_t step = 0;; ++step) {
    if (question.ask(step >= signal_at ? 15 : 0) != 0) return step;
    question.took(step_seconds, 1);
  }
}

TEST(StopPace, EndsWithinASecondWhereStepsAllow) {
  EXPECT_EQ(stop_pace(0), (StopPace{StepSchedule::kStepsInFlight, StepSchedule::kStepsInFlight - 1}));
  EXPECT_EQ(stop_pace(5), stop_pace(0)) << "short steps";
  for (std::int64_t ms = 0; ms < 2000; ++ms) {
    const StopPace pace = stop_pace(ms);
    // The step that runs, two lags, and the steps that are launched when the answer is there.
    const std::int64_t steps = pace.lag == 0 ? pace.ahead : 2 * pace.lag + pace.ahead - 1;
    EXPECT_LE(steps * ms, std::max<std::int64_t>(ms, 700)) << ms;
    EXPECT_GE(pace.ahead, 1);
    EXPECT_GE(pace.lag, 0);
  }
  EXPECT_EQ(stop_pace(250), (StopPace{0, 1})) << "at the next step";
}

TEST(StopQuestion, ALongStepEndsTheRunAtOnce) {
  Pair pair;
  StopQuestion question(pair);
  EXPECT_EQ(steps_made(question, 0.5, 20), 20);
}

TEST(StopQuestion, ShortStepsAskSeldom) {
  Pair pair;
  StopQuestion question(pair);
  const std::int64_t made = steps_made(question, 0.001, 160);
  EXPECT_GT(made, 160);
  EXPECT_LE(made, 160 + 2 * StepSchedule::kStepsInFlight);
  EXPECT_LE(pair.questions, 16);
  EXPECT_FALSE(pair.open);
}

TEST(StopQuestion, TheSlowestRankSetsThePace) {
  Pair pair;
  StopQuestion question(pair);
  pair.other = 400;  // Milliseconds.
  EXPECT_EQ(steps_made(question, 0.001, 100), 100);
  EXPECT_EQ(question.ahead(), 1);
}

TEST(StopQuestion, TheSignalOfAnotherRankCounts) {
  Pair pair;
  StopQuestion question(pair);
  EXPECT_EQ(question.ask(0), 0);
  pair.other = (1 << 24) + 2;
  EXPECT_EQ(question.ask(0), 2);
  EXPECT_EQ(question.ask(0), 2) << "and is not asked for again";
  EXPECT_EQ(pair.questions, 2);
}

TEST(StopQuestion, StepsThatBecomeLongAreNoticedBeforeOneEnds) {
  Pair pair;
  StopQuestion question(pair);
  for (std::int64_t step = 0; step < 40; ++step) {
    EXPECT_EQ(question.ask(0), 0);
    question.took(0.001, 1);
  }
  EXPECT_EQ(question.ahead(), StepSchedule::kStepsInFlight - 1);
  for (std::int64_t step = 40; step < 80; ++step) {
    EXPECT_EQ(question.ask(0), 0);
    question.took(0.5, 0);
  }
  EXPECT_EQ(question.ahead(), 1);
}

TEST(StopQuestion, ARankAloneEndsAtTheNextStep) {
  Pair alone(1);
  StopQuestion question(alone);
  EXPECT_EQ(steps_made(question, 0.001, 100), 100);
}

TEST(StopQuestion, NoQuestionStaysOpen) {
  Pair pair;
  StopQuestion question(pair);
  for (std::int64_t step = 0; step < 24; ++step) {
    question.ask(0);
    question.took(0.001, 1);
  }
  ASSERT_TRUE(pair.open);
  question.close();
  EXPECT_FALSE(pair.open);
  question.close();
}

}  // namespace
}  // namespace renai
