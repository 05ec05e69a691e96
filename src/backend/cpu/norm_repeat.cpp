#include "norm_repeat.hpp"

#include "parallel.hpp"

namespace renai::cpu {

NormRepeat::NormRepeat(const NormRelu& pattern, const Site& site, WorkspaceLayout& layout)
    : pooled_(pattern.pool.has_value()), eps_(pattern.eps), threads_(site.threads()) {
  const Shape& x = site.shape(pattern.x);
  images_ = x.n();
  c_ = x.c();
  rows_ = x.elems() / c_;
  if (pooled_) tiles_ = tiles_of(x, *pattern.pool);
  const std::int64_t y_elems = pooled_ ? images_ * tiles_.oh * tiles_.ow * c_ : x.elems();
  constexpr auto kElemBytes = static_cast<std::int64_t>(sizeof(float));
  y_ = layout.add(y_elems * kElemBytes);
  gain_ = layout.add(c_ * kElemBytes);
}

Call NormRepeat::bind(const Operands& at, std::size_t first) const {
  auto* y = reinterpret_cast<float*>(at.workspace + y_);
  auto* gain = reinterpret_cast<float*>(at.workspace + gain_);
  const float *x = at.in(first), *scale = at.in(first + 1), *var_biased = at.in(first + 4);
  const Affine affine{at.in(first + 3), gain, at.in(first + 2)};
  return [=, self = *this] {
    const std::int64_t c = self.c_;
    for (std::int64_t ch = 0; ch < c; ++ch) gain[ch] = norm_gain(scale[ch], var_biased[ch], self.eps_);
    const Loops& loops = machine_loops();
    const std::int64_t shares = self.pooled_ ? self.images_ * self.tiles_.oh : self.rows_;
    parallel_ranges(self.threads_, shares, [&](std::int64_t begin, std::int64_t end) {
      if (self.pooled_) {
        loops.affine_relu_tiles(x, y, begin, end - begin, self.tiles_, affine);
      } else {
        loops.affine(x + begin * c, nullptr, y + begin * c, end - begin, c, affine, true);
      }
    });
  };
}

}  // namespace renai::cpu
