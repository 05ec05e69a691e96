#include "renai/train/fault.hpp"

#include <unistd.h>

#include <charconv>
#include <csignal>

#include "renai/base/error.hpp"

namespace renai {

FaultPlan parse_fault(const std::string& text) {
  FaultPlan plan;
  if (text.empty()) return plan;
  const auto fail = [&text](const char* why) {
    return UserError("--inject-fault " + text, why,
                     "write flip@STEP:RANK, overflow@STEP:RANK, stall@STEP:RANK, stall@capture:RANK or exit@STEP:RANK");
  };
  const std::size_t at = text.find('@');
  const std::size_t colon = text.find(':', at == std::string::npos ? 0 : at);
  if (at == std::string::npos || colon == std::string::npos) throw fail("it is not KIND@STEP:RANK");
  const std::string kind = text.substr(0, at);
  const std::string step = text.substr(at + 1, colon - at - 1);
  const std::string rank = text.substr(colon + 1);
  if (kind == "flip") plan.kind = FaultKind::flip_bit;
  if (kind == "overflow") plan.kind = FaultKind::overflow;
  if (kind == "stall") plan.kind = FaultKind::stall;
  if (kind == "exit") plan.kind = FaultKind::exit;
  if (plan.kind == FaultKind::none) throw fail("unknown kind of fault");
  const auto read = [&](const std::string& word, auto& value) {
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc{} || end != word.data() + word.size() || value < 0) throw fail("step and rank are numbers");
  };
  if (step != "capture") read(step, plan.step);
  read(rank, plan.rank);
  if (step == "capture" && (plan.kind == FaultKind::flip_bit || plan.kind == FaultKind::overflow)) {
    throw fail("a flip and an overflow need a step");
  }
  return plan;
}

void run_fault(const FaultPlan& plan) {
  if (plan.kind == FaultKind::stall) ::raise(SIGSTOP);
  if (plan.kind == FaultKind::exit) ::_exit(1);
}

}  // namespace renai
