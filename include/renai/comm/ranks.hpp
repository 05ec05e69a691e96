#pragma once
// Ranks in messages, and which of them differ from the rest.

#include <span>
#include <string>
#include <vector>

namespace renai {

/// "rank 3", "ranks 1, 2".
std::string name_ranks(std::span<const int> ranks);

/// Ranks apart from the largest group of equal texts; the group of the lowest rank wins a tie.
struct RankSplit {
  int reference = 0;     ///< Lowest rank of the largest group.
  std::vector<int> odd;  ///< All ranks outside it, ascending.
};
/// `texts`: by rank, at least one.
RankSplit split_ranks(std::span<const std::string> texts);

}  // namespace renai
