#include "renai/graph/happens_before.hpp"

#include <map>

#include "renai/base/check.hpp"

namespace renai {

HappensBefore::HappensBefore(std::span<const Node> nodes)
    : size_(static_cast<std::int32_t>(nodes.size())),
      words_((nodes.size() + 63) / 64),
      reached_(nodes.size() * words_, 0) {
  std::map<int, std::int32_t> last_of_branch;
  for (std::int32_t i = 0; i < size_; ++i) {
    const Node& node = nodes[static_cast<std::size_t>(i)];
    const auto follow = [&](std::int32_t earlier) {
      RENAI_CHECK(earlier >= 0 && earlier < i, "node '" + node.name() + "' waits for a node that is not earlier");
      const auto from = static_cast<std::size_t>(earlier), to = static_cast<std::size_t>(i);
      for (std::size_t word = 0; word < words_; ++word) reached_[to * words_ + word] |= reached_[from * words_ + word];
      reached_[to * words_ + from / 64] |= std::uint64_t{1} << (from % 64);
    };
    if (const auto last = last_of_branch.find(node.branch); last != last_of_branch.end()) follow(last->second);
    for (const std::int32_t wait : node.waits) follow(wait);
    last_of_branch[node.branch] = i;
  }
}

}  // namespace renai
