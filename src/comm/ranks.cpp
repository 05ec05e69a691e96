#include "renai/comm/ranks.hpp"

#include <algorithm>
#include <cstddef>

namespace renai {

std::string name_ranks(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text;
}

RankSplit split_ranks(std::span<const std::string> texts) {
  RankSplit split;
  std::ptrdiff_t largest = 0;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const auto count = std::count(texts.begin(), texts.end(), texts[rank]);
    if (count > largest) {
      largest = count;
      split.reference = static_cast<int>(rank);
    }
  }
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank] != texts[static_cast<std::size_t>(split.reference)]) split.odd.push_back(static_cast<int>(rank));
  }
  return split;
}

}  // namespace renai
