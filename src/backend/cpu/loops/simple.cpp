// Element-wise loops, pools, input normalisation, and the table of this instruction set.

#include "sets.hpp"
#include "vec.hpp"

namespace renai::cpu::RENAI_CPU_ISA {

void relu(const float* x, float* y, Index elems) {
  for (Index i = 0; i < elems; ++i) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}
void relu_grad(const float* y, const float* dy, float* dx, Index elems) {
  for (Index i = 0; i < elems; ++i) dx[i] = y[i] <= 0.0f ? 0.0f : dy[i];
}
void add(const float* a, const float* b, float* y, Index elems) {
  for (Index i = 0; i < elems; ++i) y[i] = a[i] + b[i];
}
void scale(const float* x, float factor, float* y, Index elems) {
  for (Index i = 0; i < elems; ++i) y[i] = x[i] * factor;
}

namespace {

/// Calls body(tap, offset of the pixel) for the window's taps inside the image, in row order.
template <typename Body>
inline __attribute__((always_inline)) void for_taps(const Pool& pool, Index p, Index q, const Body& body) {
  for (Index r = 0; r < pool.kh; ++r) {
    const Index h = p * pool.sh - pool.ph + r * pool.dh;
    if (h < 0 || h >= pool.h) continue;
    for (Index s = 0; s < pool.kw; ++s) {
      const Index w = q * pool.sw - pool.pw + s * pool.dw;
      if (w >= 0 && w < pool.w) body(r * pool.kw + s, (h * pool.w + w) * pool.c);
    }
  }
}

/// Divisor of an average: with count_include_pad the taps inside the padded image, else those inside the image.
inline float average_factor(const Pool& pool, Index p, Index q) {
  Index taps = 0;
  for (Index r = 0; r < pool.kh; ++r) {
    const Index h = p * pool.sh - pool.ph + r * pool.dh;
    for (Index s = 0; s < pool.kw; ++s) {
      const Index w = q * pool.sw - pool.pw + s * pool.dw;
      const bool inside = h >= 0 && h < pool.h && w >= 0 && w < pool.w;
      const bool padded = h < pool.h + pool.ph && w < pool.w + pool.pw;
      taps += (pool.count_include_pad ? padded : inside) ? 1 : 0;
    }
  }
  return taps > 0 ? 1.0f / static_cast<float>(taps) : 0.0f;
}

}  // namespace

void max_pool(const float* x, float* y, uint8_t* index, Index row, Index rows, Pool pool) {
  for (Index p = row; p < row + rows; ++p) {
    for (Index q = 0; q < pool.ow; ++q) {
      float* to = y + (p * pool.ow + q) * pool.c;
      uint8_t* at = index == nullptr ? nullptr : index + (p * pool.ow + q) * pool.c;
      bool first = true;
      for_taps(
          pool, p, q, [&](Index tap, Index pixel) __attribute__((always_inline)) {
            const float* from = x + pixel;
            const auto position = static_cast<uint8_t>(tap);
            if (first) {
              for (Index ch = 0; ch < pool.c; ++ch) to[ch] = from[ch];
              if (at != nullptr) {
                for (Index ch = 0; ch < pool.c; ++ch) at[ch] = position;
              }
              first = false;
              return;
            }
            if (at != nullptr) {
              for (Index ch = 0; ch < pool.c; ++ch)
                at[ch] = ((from[ch] > to[ch]) | (from[ch] != from[ch])) ? position : at[ch];
            }
            for (Index ch = 0; ch < pool.c; ++ch)
              to[ch] = ((from[ch] > to[ch]) | (from[ch] != from[ch])) ? from[ch] : to[ch];
          });
    }
  }
}

void max_pool_grad(const uint8_t* index, const float* x, const float* dy, float* dx, Pool pool) {
  for (Index i = 0; i < pool.h * pool.w * pool.c; ++i) dx[i] = 0.0f;
  for (Index p = 0; p < pool.oh; ++p) {
    for (Index q = 0; q < pool.ow; ++q) {
      const Index at = (p * pool.ow + q) * pool.c;
      if (index != nullptr) {
        for_taps(
            pool, p, q, [&](Index tap, Index pixel) __attribute__((always_inline)) {
              const auto position = static_cast<uint8_t>(tap);
              for (Index ch = 0; ch < pool.c; ++ch) dx[pixel + ch] += index[at + ch] == position ? dy[at + ch] : 0.0f;
            });
        continue;
      }
      for (Index ch = 0; ch < pool.c; ++ch) {
        Index best = -1;
        for_taps(
            pool, p, q, [&](Index, Index pixel) __attribute__((always_inline)) {
              const float value = x[pixel + ch];
              if (best < 0 || value > x[best + ch] || value != value) best = pixel;
            });
        if (best >= 0) dx[best + ch] += dy[at + ch];
      }
    }
  }
}

void avg_pool(const float* x, float* y, Index row, Index rows, Pool pool) {
  for (Index p = row; p < row + rows; ++p) {
    for (Index q = 0; q < pool.ow; ++q) {
      float* to = y + (p * pool.ow + q) * pool.c;
      for (Index ch = 0; ch < pool.c; ++ch) to[ch] = 0.0f;
      for_taps(
          pool, p, q, [&](Index, Index pixel) __attribute__((always_inline)) {
            for (Index ch = 0; ch < pool.c; ++ch) to[ch] += x[pixel + ch];
          });
      const float factor = average_factor(pool, p, q);
      for (Index ch = 0; ch < pool.c; ++ch) to[ch] *= factor;
    }
  }
}

void avg_pool_grad(const float* dy, float* dx, Pool pool) {
  for (Index i = 0; i < pool.h * pool.w * pool.c; ++i) dx[i] = 0.0f;
  for (Index p = 0; p < pool.oh; ++p) {
    for (Index q = 0; q < pool.ow; ++q) {
      const float factor = average_factor(pool, p, q);
      const float* from = dy + (p * pool.ow + q) * pool.c;
      for_taps(
          pool, p, q, [&](Index, Index pixel) __attribute__((always_inline)) {
            for (Index ch = 0; ch < pool.c; ++ch) dx[pixel + ch] += from[ch] * factor;
          });
    }
  }
}

void normalize_row(const uint8_t* pixels, float* x, Index w, Index c, const float* mean, const float* inv_std,
                   bool flip) {
  if (c == 1) {
    const float m = mean[0], s = inv_std[0];
    if (flip) {
      for (Index i = 0; i < w; ++i) x[i] = (static_cast<float>(pixels[w - 1 - i]) - m) * s;
    } else {
      for (Index i = 0; i < w; ++i) x[i] = (static_cast<float>(pixels[i]) - m) * s;
    }
    return;
  }
  for (Index i = 0; i < w; ++i) {
    const uint8_t* from = pixels + (flip ? w - 1 - i : i) * c;
    for (Index ch = 0; ch < c; ++ch) x[i * c + ch] = (static_cast<float>(from[ch]) - mean[ch]) * inv_std[ch];
  }
}

}  // namespace renai::cpu::RENAI_CPU_ISA

#define RENAI_CPU_STRING_OF(text) #text
#define RENAI_CPU_STRING(text) RENAI_CPU_STRING_OF(text)
#define RENAI_CPU_JOIN_OF(a, b) a##b
#define RENAI_CPU_JOIN(a, b) RENAI_CPU_JOIN_OF(a, b)

namespace renai::cpu {

const Loops& RENAI_CPU_JOIN(loops_, RENAI_CPU_ISA)() {
  using namespace RENAI_CPU_ISA;
  static constexpr Loops kLoops{RENAI_CPU_STRING(RENAI_CPU_ISA),
                                moments,
                                affine,
                                affine_relu_tiles,
                                grad_sums,
                                affine_grad,
                                grad_sums_tiles,
                                affine_grad_tiles,
                                column_sums,
                                relu,
                                relu_grad,
                                add,
                                scale,
                                max_pool,
                                max_pool_grad,
                                avg_pool,
                                avg_pool_grad,
                                normalize_row};
  return kLoops;
}

}  // namespace renai::cpu
