// Fault drills: the words of --inject-fault.
#include "renai/train/fault.hpp"

#include <gtest/gtest.h>

#include "data_files.hpp"

namespace renai {
namespace {

struct Good {
  const char* text;
  FaultKind kind;
  std::int64_t step;
  int rank;
};

TEST(Fault, ReadsEveryKind) {
  for (const Good& good : {Good{"", FaultKind::none, -1, -1}, Good{"flip@30:1", FaultKind::flip_bit, 30, 1},
                           Good{"overflow@5:2", FaultKind::overflow, 5, 2}, Good{"stall@20:0", FaultKind::stall, 20, 0},
                           Good{"exit@0:7", FaultKind::exit, 0, 7}, Good{"stall@capture:1", FaultKind::stall, -1, 1},
                           Good{"exit@capture:0", FaultKind::exit, -1, 0}}) {
    const FaultPlan plan = parse_fault(good.text);
    EXPECT_EQ(plan.kind, good.kind) << good.text;
    EXPECT_EQ(plan.step, good.step) << good.text;
    EXPECT_EQ(plan.rank, good.rank) << good.text;
  }
}

TEST(Fault, RefusesEverythingElseWithTheForms) {
  for (const char* bad : {"flip", "flip@30", "flip:1", "flip@:1", "flip@30:", "@30:1", "burn@30:1", "Flip@30:1",
                          "flip@-1:0", "flip@3:-1", "flip@3x:1", "flip@3:1x", "flip@ 3:1", "flip@1.5:0", "flip@3:1:2",
                          "flip@capture:0", "overflow@capture:0", "stall@capture:x", "flip@99999999999999999999:0"}) {
    const std::string message = testing::message_of<UserError>([&] { parse_fault(bad); });
    EXPECT_NE(message.find("--inject-fault " + std::string(bad)), std::string::npos) << message;
    EXPECT_NE(message.find("flip@STEP:RANK, overflow@STEP:RANK, stall@STEP:RANK"), std::string::npos) << message;
  }
}

TEST(Fault, IsDueAtItsStepAndRankOnly) {
  const FaultPlan plan = parse_fault("flip@30:1");
  EXPECT_TRUE(plan.due(30, 1));
  EXPECT_FALSE(plan.due(29, 1));
  EXPECT_FALSE(plan.due(30, 0));
  EXPECT_TRUE(parse_fault("stall@capture:0").due(-1, 0));
  EXPECT_FALSE(parse_fault("stall@capture:0").due(0, 0));
  EXPECT_FALSE(FaultPlan{}.due(-1, -1));
}

TEST(Fault, ExitEndsTheProcessAndNoneDoesNothing) {
  run_fault(FaultPlan{});
  EXPECT_EXIT(run_fault(parse_fault("exit@1:0")), ::testing::ExitedWithCode(1), "");
}

}  // namespace
}  // namespace renai
