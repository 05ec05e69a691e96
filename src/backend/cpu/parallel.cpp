#include "parallel.hpp"

#include <atomic>
#include <string>

#include "renai/base/error.hpp"
#include "renai/base/thread.hpp"

namespace renai::cpu {
namespace {

/// The OpenMP runtime ends the process where the system gives it no thread; this says so first.
void require_threads(int threads) {
  std::atomic<bool> over{false};
  ThreadGroup group([&over] {
    over = true;
    over.notify_all();
  });
  for (int t = 1; t < threads; ++t)
    group.start("thread " + std::to_string(t) + " of the cpu backend", "--threads", [&over] { over.wait(false); });
}

}  // namespace

void require_team(int threads) {
  thread_local int proven = 0;
  if (proven == threads) return;
  require_threads(threads);
  omp_set_dynamic(0);
  omp_set_num_threads(threads);
  int members = 0;
#pragma omp parallel num_threads(threads)
  {
#pragma omp single
    members = omp_get_num_threads();
  }
  if (members != threads) {
    throw BackendError("starting " + std::to_string(threads) + " threads of the cpu backend",
                       "the OpenMP runtime gave " + std::to_string(members),
                       "raise or unset OMP_THREAD_LIMIT, or ask for fewer threads");
  }
  proven = threads;
}

void enqueue(HostStream& stream, std::function<void()> call, int threads) {
  stream.enqueue([call = std::move(call), threads] {
    require_team(threads);
    call();
  });
}

}  // namespace renai::cpu
