#include "placement.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

namespace renai::plan_detail {
namespace {

/// Places storages one by one in the smallest gap between conflicting neighbours that is large enough, else after the
/// last of them. An offset is 0 or the end of an earlier storage, so the peak never exceeds the sum of the sizes.
Placement best_fit(const std::vector<Storage>& storages, const Conflicts& conflicts,
                   const std::vector<std::size_t>& order) {
  Placement placement;
  placement.offsets.assign(storages.size(), 0);
  std::vector<std::size_t> placed;  // By rising offset.
  placed.reserve(storages.size());
  for (const std::size_t item : order) {
    const std::int64_t size = storages[item].size_bytes;
    std::int64_t end = 0, best = -1, best_gap = std::numeric_limits<std::int64_t>::max();
    for (const std::size_t other : placed) {
      if (!conflicts(item, other)) continue;
      const std::int64_t gap = placement.offsets[other] - end;
      if (gap >= size && gap < best_gap) {
        best = end;
        best_gap = gap;
      }
      end = std::max(end, placement.offsets[other] + storages[other].size_bytes);
    }
    const std::int64_t offset = best >= 0 ? best : end;
    placement.offsets[item] = offset;
    placement.size_bytes = std::max(placement.size_bytes, offset + size);
    const auto after = std::upper_bound(placed.begin(), placed.end(), offset, [&](std::int64_t at, std::size_t other) {
      return at < placement.offsets[other];
    });
    placed.insert(after, item);
  }
  return placement;
}

/// The storage's life in the first pass that has it, as entries [first, last].
std::pair<std::size_t, std::size_t> life(const Storage& storage) {
  if (!storage.always) {
    for (const std::vector<std::size_t>& accesses : storage.accesses) {
      if (!accesses.empty()) return {accesses.front(), accesses.back()};
    }
  }
  return {0, std::numeric_limits<std::int32_t>::max()};
}

double area(const Storage& storage) {
  const auto [first, last] = life(storage);
  return static_cast<double>(storage.size_bytes) * static_cast<double>(last - first + 1);
}

}  // namespace

Placement place_in_sequence(const std::vector<Storage>& storages) {
  Placement placement;
  for (const Storage& storage : storages) {
    placement.offsets.push_back(placement.size_bytes);
    placement.size_bytes += storage.size_bytes;
  }
  return placement;
}

Placement place_by_lifetime(const std::vector<Storage>& storages, const Conflicts& conflicts) {
  using Less = std::function<bool(const Storage&, const Storage&)>;
  const Less by_size = [](const Storage& a, const Storage& b) { return a.size_bytes > b.size_bytes; };
  const Less by_first = [&by_size](const Storage& a, const Storage& b) {
    return life(a).first != life(b).first ? life(a).first < life(b).first : by_size(a, b);
  };
  const Less by_last = [&by_size](const Storage& a, const Storage& b) {
    return life(a).second != life(b).second ? life(a).second > life(b).second : by_size(a, b);
  };
  const Less by_area = [](const Storage& a, const Storage& b) { return area(a) > area(b); };
  Placement best;
  bool found = false;
  for (const Less& less : {by_size, by_first, by_last, by_area}) {
    std::vector<std::size_t> order(storages.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return less(storages[a], storages[b]); });
    Placement placement = best_fit(storages, conflicts, order);
    if (found && placement.size_bytes >= best.size_bytes) continue;
    best = std::move(placement);
    found = true;
  }
  return best;
}

}  // namespace renai::plan_detail
