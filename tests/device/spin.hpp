#pragma once
// A kernel that takes a known time, so that tests can see what waits for what.

namespace renai::testing {

/// Launches into `stream` (a cudaStream_t): spins for `us` microseconds, then adds one to `*counter`; null: only spins.
void spin_then_count(void* stream, double us, int* counter);

}  // namespace renai::testing
