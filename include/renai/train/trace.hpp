#pragma once
// Trace: one JSON line a step with loss bits and digests, and the comparison of two traces.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "renai/train/audit.hpp"

namespace renai {

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
  /// file. Errors: ResourceError naming the file; DataError when the file that would be continued is no trace.
  TraceWriter(const std::filesystem::path& path, const std::vector<std::pair<std::string, std::string>>& header,
              std::int64_t first_step = 0);
  void write(const TraceStep& step);
  void write_validation(std::int64_t step, double loss, double top1_hits, double images, bool ema = false);

 private:
  std::filesystem::path path_;
  std::ofstream file_;
  void put(const std::string& line);
};

struct TraceDifference {
  bool identical = false;
  std::string text;  ///< "identical over N steps", or the first step and region that differ, header differences first.
};
/// Errors: DataError naming the file and line that is not a trace.
TraceDifference trace_diff(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace renai
