#include "loops.hpp"

namespace renai::cpu {

const Loops& machine_loops() {
#if defined(__x86_64__)
  static const Loops& loops = []() -> const Loops& {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
      return loops_avx512();
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return loops_avx2();
    return loops_baseline();
  }();
  return loops;
#else
  return loops_baseline();
#endif
}

}  // namespace renai::cpu
