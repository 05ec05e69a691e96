#pragma once
// What tests over several ranks share.

#include <mpi.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <vector>

#include "renai/base/elapsed.hpp"

namespace renai::testing {

using Clock = std::chrono::steady_clock;
using renai::seconds_since;

/// The test's own rendezvous, outside of what is tested.
inline void meet() { MPI_Barrier(MPI_COMM_WORLD); }

/// A value of rank `rank` at position `i`: magnitudes from 2^-12 to 2^12 and both signs, so any other order of adding
/// gives other bits somewhere.
inline float order_sensitive(int rank, std::int64_t i, std::uint64_t salt = 0) {
  std::uint64_t x =
      (static_cast<std::uint64_t>(i) * 1024 + static_cast<std::uint64_t>(rank) + (salt << 40)) + 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  x ^= x >> 31;
  const float mantissa = 1.0f + static_cast<float>(x & 0x7FFFFF) * 0x1.0p-23f;
  const int exponent = static_cast<int>(x >> 32 & 31) - 12;
  const float magnitude = std::ldexp(mantissa, exponent > 12 ? exponent - 13 : exponent);
  return (x >> 63) != 0 ? -magnitude : magnitude;
}

inline std::vector<float> vector_of(int rank, std::int64_t elems, std::uint64_t salt = 0) {
  std::vector<float> values(static_cast<std::size_t>(elems));
  for (std::int64_t i = 0; i < elems; ++i) values[static_cast<std::size_t>(i)] = order_sensitive(rank, i, salt);
  return values;
}

/// The definition: one balanced tree over ranks [first, first + count), written as the recursion.
inline float serial_tree(int first, int count, std::int64_t i, std::uint64_t salt = 0) {
  if (count == 1) return order_sensitive(first, i, salt);
  return serial_tree(first, count / 2, i, salt) + serial_tree(first + count / 2, count / 2, i, salt);
}

inline std::vector<float> serial_tree_vector(int ranks, std::int64_t elems, std::uint64_t salt = 0) {
  std::vector<float> values(static_cast<std::size_t>(elems));
  for (std::int64_t i = 0; i < elems; ++i) values[static_cast<std::size_t>(i)] = serial_tree(0, ranks, i, salt);
  return values;
}

}  // namespace renai::testing
