#pragma once
// Sixteen floats as one value. One AVX-512 register, two AVX2 registers, or four SSE registers: lanes mean the same, so
// the order of a sum does not depend on the instruction set.

#include "loops.hpp"

namespace renai::cpu::RENAI_CPU_ISA {

inline constexpr Index kLanes = 16;
using Vec = float __attribute__((vector_size(64)));
using VecLoad = float __attribute__((vector_size(64), aligned(4), may_alias));
using Mask = int32_t __attribute__((vector_size(64)));

static inline __attribute__((always_inline)) Vec load(const float* at) { return *reinterpret_cast<const VecLoad*>(at); }
static inline __attribute__((always_inline)) void store(float* at, Vec value) {
  *reinterpret_cast<VecLoad*>(at) = value;
}
/// The first `count` lanes; the rest are zero.
static inline __attribute__((always_inline)) Vec load(const float* at, Index count) {
  Vec value{};
  for (Index i = 0; i < count; ++i) value[i] = at[i];
  return value;
}
static inline __attribute__((always_inline)) void store(float* at, Vec value, Index count) {
  for (Index i = 0; i < count; ++i) at[i] = value[i];
}
/// A whole vector when `kWhole`, else the first `count` lanes.
template <bool kWhole>
static inline __attribute__((always_inline)) Vec fetch(const float* at, Index count) {
  if constexpr (kWhole) return load(at);
  return load(at, count);
}
template <bool kWhole>
static inline __attribute__((always_inline)) void put(float* at, Vec value, Index count) {
  if constexpr (kWhole) return store(at, value);
  store(at, value, count);
}
/// max(z, 0) that keeps NaN.
static inline __attribute__((always_inline)) Vec relu_of(Vec z) { return z < 0.0f ? Vec{} : z; }

}  // namespace renai::cpu::RENAI_CPU_ISA
