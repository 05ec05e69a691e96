#pragma once
// Fault drills: a fault asked for by --inject-fault, so that an operator can see how a run ends.

#include <cstdint>
#include <string>

namespace renai {

/// A bit of a weight changed, gradients that are not finite, the process stopped, or ended.
enum class FaultKind { none, flip_bit, overflow, stall, exit };

/// What goes wrong, before which step and on which rank.
struct FaultPlan {
  FaultKind kind = FaultKind::none;
  std::int64_t step = -1;  ///< -1: before capture.
  int rank = -1;
  bool due(std::int64_t at_step, int at_rank) const {
    return kind != FaultKind::none && step == at_step && rank == at_rank;
  }
};

/// "flip@30:1", "overflow@30:1", "stall@20:0", "stall@capture:1", "exit@20:1"; "" for none. Errors: UserError.
FaultPlan parse_fault(const std::string& text);

/// Stops (SIGSTOP) or ends this process; a flip and an overflow are the caller's work.
void run_fault(const FaultPlan& plan);

}  // namespace renai
