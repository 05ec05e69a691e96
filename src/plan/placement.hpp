#pragma once
// Placement: offsets for storages so that no two that conflict share bytes, in as few bytes as greedy rules find.

#include <cstdint>
#include <vector>

#include "storages.hpp"

namespace renai::plan_detail {

struct Placement {
  std::vector<std::int64_t> offsets;  ///< By storage, from 0.
  std::int64_t size_bytes = 0;        ///< Peak; never above the sum of all sizes.
};

/// One after the other.
Placement place_in_sequence(const std::vector<Storage>& storages);

/// Best fit under several orders (size, first use, last use, size times life); the smallest peak wins, the first of
/// equals. Determinism: a pure function of its arguments.
Placement place_by_lifetime(const std::vector<Storage>& storages, const Conflicts& conflicts);

}  // namespace renai::plan_detail
