#pragma once
// Parallel regions with a constant number of threads.

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <functional>

#include "renai/device/host.hpp"

namespace renai::cpu {

/// Makes the calling thread's parallel regions (own ones and oneDNN's) have `threads` members, for its lifetime.
class ThreadCountGuard {
 public:
  explicit ThreadCountGuard(int threads) : threads_(omp_get_max_threads()), dynamic_(omp_get_dynamic()) {
    omp_set_dynamic(0);
    omp_set_num_threads(threads);
  }
  ~ThreadCountGuard() {
    omp_set_num_threads(threads_);
    omp_set_dynamic(dynamic_);
  }
  ThreadCountGuard(const ThreadCountGuard&) = delete;
  ThreadCountGuard& operator=(const ThreadCountGuard&) = delete;

 private:
  int threads_, dynamic_;
};

/// Sets the calling thread's team size for good and proves it once. Cheap afterwards.
/// Errors: BackendError when the OpenMP runtime gives another number of threads.
void require_team(int threads);

/// Enqueues a call that the team runs.
void enqueue(HostStream& stream, std::function<void()> call, int threads);

/// body(begin, end) for the members' consecutive shares of [0, count). Static: a function of `count` and `threads`
/// only.
template <typename Body>
void parallel_ranges(int threads, std::int64_t count, const Body& body) {
  if (threads == 1 || count <= 1) {
    if (count > 0) body(std::int64_t{0}, count);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    const std::int64_t members = omp_get_num_threads(), member = omp_get_thread_num();
    const std::int64_t begin = count * member / members, end = count * (member + 1) / members;
    if (begin < end) body(begin, end);
  }
}

/// Elements from which a second thread pays for its start.
inline constexpr std::int64_t kParallelElems = 16384;

/// parallel_ranges over elements, serial below kParallelElems; shares begin at multiples of 64 elements.
template <typename Body>
void parallel_elems(int threads, std::int64_t elems, const Body& body) {
  constexpr std::int64_t kGrain = 64;
  const std::int64_t grains = (elems + kGrain - 1) / kGrain;
  parallel_ranges(elems < kParallelElems ? 1 : threads, grains,
                  [&](std::int64_t begin, std::int64_t end) { body(begin * kGrain, std::min(end * kGrain, elems)); });
}

}  // namespace renai::cpu
