#pragma once
// NormRepeat: relu(batch norm(x)) made once more in backward, so that it need not be kept from forward to there.

#include "implementation.hpp"
#include "norm_patterns.hpp"
#include "onednn.hpp"

namespace renai::cpu {

class NormRepeat {
 public:
  /// Books y and the factors in `layout`.
  NormRepeat(const NormRelu& pattern, const Site& site, WorkspaceLayout& layout);

  /// What the kernel reads: x scale bias mean var_biased.
  static std::vector<TensorId> inputs(const NormRelu& pattern) {
    return {pattern.x, pattern.scale, pattern.bias, pattern.mean, pattern.var_biased};
  }
  std::byte* y_at(const Operands& at) const { return at.workspace + y_; }
  /// Fills y from the operands' inputs, the first of which stands at `first`. Determinism: the bits of the forward
  /// pass.
  Call bind(const Operands& at, std::size_t first) const;

 private:
  bool pooled_;
  Tiles tiles_{};
  std::int64_t images_ = 0, rows_ = 0, c_ = 0, y_ = 0, gain_ = 0;
  float eps_;
  int threads_;
};

}  // namespace renai::cpu
