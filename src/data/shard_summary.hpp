#pragma once
// What is known of a packed shard besides its samples, and the text that ranks and restarts exchange it as.

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace renai {

/// Sums are exact, so that statistics over shards do not depend on who summed what.
struct ShardSummary {
  std::string digest;
  std::int64_t samples = 0;
  std::vector<std::uint64_t> sample_digests, label_digests;  ///< Not part of the text.
  /// By channel, of values and their squares, over `units` (pixels, or images in fixed point).
  std::array<std::uint64_t, 4> sum{}, square_sum{};
  std::uint64_t units = 0;
  std::map<std::int32_t, std::int64_t> samples_by_class;
  std::int64_t encoded_here = 0;     ///< Images that were encoded as JPEG by the packer.
  std::vector<std::string> refused;  ///< "path<tab>reason" of input files that were left out.
};

std::string print_summary(const ShardSummary& summary);
/// Errors: DataError when the text is not whole.
ShardSummary parse_summary(const std::string& text);

}  // namespace renai
