#pragma once
// StageMeter: what a stage of the data path takes while threads work at it.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "renai/data/data_bench.hpp"

namespace renai {

/// The option that says how many threads are measured.
constexpr const char* kBenchThreadsOption = "--threads";

/// What the process uses from its making on.
class StageMeter {
 public:
  StageMeter();
  double seconds() const;
  /// Of a stage that handled so many images and bytes since then.
  StageRate rate(const std::string& name, std::int64_t images, std::int64_t bytes, int threads) const;

 private:
  std::int64_t disk_bytes_, page_faults_;
  double cpu_seconds_;
  std::chrono::steady_clock::time_point start_;
};

/// Bytes that one call of a stage's work handled.
using StageWork = std::function<std::int64_t(std::int64_t position)>;

/// `config.threads` threads take positions one after the other until the time is over or the samples are done. Each
/// makes what it works with itself, so that no two write to the same cache line, and none begins before all are ready.
/// Errors: those of the work; ResourceError where a thread cannot be started.
StageRate measure_stage(const std::string& name, const DataBenchConfig& config,
                        const std::function<StageWork(int thread)>& make_work);

}  // namespace renai
