#include <algorithm>

#include "renai/base/check.hpp"
#include "renai/comm/communicator.hpp"

namespace renai {
namespace {

/// Elements of one block: small enough that the partial sums of all levels stay in the first-level cache.
constexpr std::int64_t kBlockElems = 512;
/// Levels of the tree above quadruples that the scratch on the stack holds: 4 * 2^14 vectors.
constexpr int kMaxLevels = 14;

// Element-wise, so `out` may be one of the inputs.
void add_pairs(const float* a, const float* b, std::int64_t elems, float* out) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < elems; ++i) out[i] = a[i] + b[i];
}

void add_quadruples(const float* a, const float* b, const float* c, const float* d, std::int64_t elems, float* out) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < elems; ++i) out[i] = (a[i] + b[i]) + (c[i] + d[i]);
}

/// One block of more than four vectors: quadruples merge like a binary counter, which is the balanced tree.
void sum_block(const float* const* vectors, int count, std::int64_t first, std::int64_t elems, float* out) {
  float levels[kMaxLevels][kBlockElems];
  float carry[kBlockElems];
  for (int quadruple = 0; quadruple < count / 4; ++quadruple) {
    const float* const* v = vectors + std::ptrdiff_t{4} * quadruple;
    add_quadruples(v[0] + first, v[1] + first, v[2] + first, v[3] + first, elems, carry);
    int level = 0;
    for (; (quadruple >> level & 1) != 0; ++level) add_pairs(levels[level], carry, elems, carry);
    std::copy(carry, carry + elems, levels[level]);
  }
  std::copy(carry, carry + elems, out + first);
}

}  // namespace

void tree_sum(const float* const* vectors, int count, std::int64_t elems, float* out) {
  RENAI_CHECK(count >= 1 && (count & (count - 1)) == 0 && count < 4 << kMaxLevels,
              "tree_sum needs a power of two of vectors, not " + std::to_string(count));
  if (count == 1) {
    if (out != vectors[0]) std::copy(vectors[0], vectors[0] + elems, out);
  } else if (count == 2) {
    add_pairs(vectors[0], vectors[1], elems, out);
  } else if (count == 4) {
    add_quadruples(vectors[0], vectors[1], vectors[2], vectors[3], elems, out);
  } else {
    for (std::int64_t first = 0; first < elems; first += kBlockElems) {
      sum_block(vectors, count, first, std::min(kBlockElems, elems - first), out);
    }
  }
}

}  // namespace renai
