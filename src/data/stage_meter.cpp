#include "stage_meter.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <exception>
#include <fstream>
#include <latch>
#include <vector>

#include "renai/base/elapsed.hpp"
#include "renai/base/thread.hpp"

namespace renai {
namespace {

using Clock = std::chrono::steady_clock;

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// 0 where the system does not tell.
std::int64_t disk_bytes_read() {
  std::ifstream io("/proc/self/io");
  std::int64_t value = 0;
  for (std::string key; io >> key >> value;) {
    if (key == "read_bytes:") return value;
  }
  return 0;
}

std::int64_t page_faults() {
  rusage usage{};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_minflt + usage.ru_majflt : 0;
}

/// What one thread did, in a cache line of its own.
struct alignas(64) Tally {
  std::int64_t images = 0, bytes = 0;
  std::exception_ptr failure;
};

}  // namespace

StageMeter::StageMeter()
    : disk_bytes_(disk_bytes_read()), page_faults_(page_faults()), cpu_seconds_(cpu_seconds()), start_(Clock::now()) {}

double StageMeter::seconds() const { return seconds_since(start_); }

StageRate StageMeter::rate(const std::string& name, std::int64_t images, std::int64_t bytes, int threads) const {
  StageRate rate;
  rate.name = name;
  rate.images = images;
  rate.seconds = seconds();
  rate.images_per_second = static_cast<double>(images) / rate.seconds;
  rate.bytes_per_second = static_cast<double>(bytes) / rate.seconds;
  rate.busy = std::min(1.0, (cpu_seconds() - cpu_seconds_) / (rate.seconds * threads));
  rate.disk_bytes = disk_bytes_read() - disk_bytes_;
  rate.page_faults = page_faults() - page_faults_;
  return rate;
}

StageRate measure_stage(const std::string& name, const DataBenchConfig& config,
                        const std::function<StageWork(int thread)>& make_work) {
  std::vector<Tally> tallies(static_cast<std::size_t>(config.threads));
  std::atomic<std::int64_t> next{0};
  std::latch ready(config.threads);
  std::atomic<bool> go{false}, given_up{false};
  Clock::time_point end;  // Written before `go`.
  const auto run = [&](std::size_t t) {
    StageWork work;
    Tally tally;
    try {
      work = make_work(static_cast<int>(t));
    } catch (...) {
      tally.failure = std::current_exception();
    }
    ready.count_down();
    go.wait(false);
    try {
      while (!given_up && !tally.failure && (config.samples > 0 || Clock::now() < end)) {
        const std::int64_t position = next.fetch_add(1, std::memory_order_relaxed);
        if (config.samples > 0 && position >= config.samples) break;
        tally.bytes += work(position);
        ++tally.images;
      }
    } catch (...) {
      tally.failure = std::current_exception();
    }
    tallies[t] = tally;
  };
  const auto set_off = [&go] {
    go = true;
    go.notify_all();
  };
  ThreadGroup threads([&] {
    given_up = true;
    set_off();
  });
  for (std::size_t t = 0; t < tallies.size(); ++t)
    threads.start("thread " + std::to_string(t) + " of " + name, kBenchThreadsOption, [&run, t] { run(t); });
  ready.wait();
  const StageMeter meter;
  end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(config.seconds));
  set_off();
  threads.join();
  std::int64_t images = 0, bytes = 0;
  for (const Tally& tally : tallies) {
    if (tally.failure) std::rethrow_exception(tally.failure);
    images += tally.images;
    bytes += tally.bytes;
  }
  return meter.rate(name, images, bytes, config.threads);
}

}  // namespace renai
