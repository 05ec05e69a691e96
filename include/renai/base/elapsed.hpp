#pragma once
// Time that passed.

#include <chrono>

namespace renai {

/// Units: seconds since `start`, on the clock that never goes back.
inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace renai
