#pragma once
// Trace: one JSON line a step with loss bits and digests, and the comparison of two traces.

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "renai/io/line_file.hpp"
#include "renai/train/audit.hpp"

namespace renai {

/// What a trace holds of a step.
struct TraceStep {
  std::int64_t step = 0, epoch = 0;
  float loss = 0;
  StateDigest digest;
  std::vector<std::int64_t> sample_ids;  ///< Of the whole global batch, shard after shard.
};

/// Written by rank 0. The header holds what identity depends on.
class TraceWriter {
 public:
  /// A run that continues at `first_step` > 0 keeps the lines of the steps before it from an earlier trace in the same
  /// file, and those of the validation there unless it `validates_first`. A last line that was not ended is dropped.
  /// Errors: ResourceError naming the file; DataError when the file that would be continued is no trace.
  TraceWriter(const std::filesystem::path& path, const std::vector<std::pair<std::string, std::string>>& header,
              std::int64_t first_step = 0, bool validates_first = false);
  /// While a disk takes nothing, lines wait in memory. Errors of each: ResourceError when too many wait.
  void write(const TraceStep& step);
  void write_validation(std::int64_t step, double loss, double top1_hits, double images, bool ema = false);
  /// Errors: ResourceError when lines still wait.
  void flush() { file_.flush(); }

 private:
  LineFile file_;
};

/// What trace_diff() found.
struct TraceDifference {
  bool identical = false;
  std::string text;  ///< "identical over N steps", or the first step and region that differ, header differences first.
};
/// Errors: DataError naming the file and line that is not a trace.
TraceDifference trace_diff(const std::filesystem::path& a, const std::filesystem::path& b);

/// A trace may replace an earlier trace, an empty file or nothing. Errors: UserError where `path` is another file
/// (data, a model) or one of those that a run writes in `run_directory`.
void require_trace_place(const std::filesystem::path& path, const std::filesystem::path& run_directory);

}  // namespace renai
