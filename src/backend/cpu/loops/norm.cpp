// Batch norm: moments, the affine map with relu, sum and max pool behind it, and its gradient.

#include "sets.hpp"
#include "vec.hpp"

namespace renai::cpu::RENAI_CPU_ISA {
namespace {

template <int kStrip, int kUnroll, bool kWhole>
inline __attribute__((always_inline)) void moments_strip(const float* x, Index rows, Index c, float* mean, float* m2,
                                                         Index count) {
  Vec sum[kUnroll][kStrip]{};
  Index r = 0;
  for (; r + kUnroll <= rows; r += kUnroll) {
    for (int u = 0; u < kUnroll; ++u) {
      for (int s = 0; s < kStrip; ++s) sum[u][s] += fetch<kWhole>(x + (r + u) * c + s * kLanes, count);
    }
  }
  for (; r < rows; ++r) {
    for (int s = 0; s < kStrip; ++s) sum[0][s] += fetch<kWhole>(x + r * c + s * kLanes, count);
  }
  const float scale = 1.0f / static_cast<float>(rows);
  Vec center[kStrip], square[kUnroll][kStrip]{};
  for (int s = 0; s < kStrip; ++s) {
    Vec total = sum[0][s];
    for (int u = 1; u < kUnroll; ++u) total += sum[u][s];
    center[s] = total * scale;
    put<kWhole>(mean + s * kLanes, center[s], count);
  }
  for (r = 0; r + kUnroll <= rows; r += kUnroll) {
    for (int u = 0; u < kUnroll; ++u) {
      for (int s = 0; s < kStrip; ++s) {
        const Vec d = fetch<kWhole>(x + (r + u) * c + s * kLanes, count) - center[s];
        square[u][s] += d * d;
      }
    }
  }
  for (; r < rows; ++r) {
    for (int s = 0; s < kStrip; ++s) {
      const Vec d = fetch<kWhole>(x + r * c + s * kLanes, count) - center[s];
      square[0][s] += d * d;
    }
  }
  for (int s = 0; s < kStrip; ++s) {
    Vec total = square[0][s];
    for (int u = 1; u < kUnroll; ++u) total += square[u][s];
    put<kWhole>(m2 + s * kLanes, total, count);
  }
}

struct Sums {
  Vec g, gx;
};

template <bool kWhole>
inline __attribute__((always_inline)) Vec fetch_z(Vec x, const Affine& affine, Index ch, Index count) {
  return (x - fetch<kWhole>(affine.mean + ch, count)) * fetch<kWhole>(affine.gain + ch, count) +
         fetch<kWhole>(affine.bias + ch, count);
}

template <int kStrip, bool kWhole, bool kRelu>
inline __attribute__((always_inline)) void grad_sums_strip(const float* x, const float* dy, Index rows, Index c,
                                                           const Affine& affine, Index ch, float* sum_g, float* sum_gx,
                                                           Index count) {
  Vec mean[kStrip], gain[kStrip], bias[kStrip]{}, g_sum[2][kStrip]{}, gx_sum[2][kStrip]{};
  for (int s = 0; s < kStrip; ++s) {
    mean[s] = fetch<kWhole>(affine.mean + ch + s * kLanes, count);
    gain[s] = fetch<kWhole>(affine.gain + ch + s * kLanes, count);
    if constexpr (kRelu) bias[s] = fetch<kWhole>(affine.bias + ch + s * kLanes, count);
  }
  const auto step = [&](Index r, int u) __attribute__((always_inline)) {
    for (int s = 0; s < kStrip; ++s) {
      const Vec d = fetch<kWhole>(x + r * c + ch + s * kLanes, count) - mean[s];
      Vec g = fetch<kWhole>(dy + r * c + ch + s * kLanes, count);
      if constexpr (kRelu) g = d * gain[s] + bias[s] <= 0.0f ? Vec{} : g;
      g_sum[u][s] += g;
      gx_sum[u][s] += g * d;
    }
  };
  Index r = 0;
  for (; r + 2 <= rows; r += 2) {
    step(r, 0);
    step(r + 1, 1);
  }
  if (r < rows) step(r, 0);
  for (int s = 0; s < kStrip; ++s) {
    put<kWhole>(sum_g + ch + s * kLanes, g_sum[0][s] + g_sum[1][s], count);
    put<kWhole>(sum_gx + ch + s * kLanes, gx_sum[0][s] + gx_sum[1][s], count);
  }
}

template <bool kRelu>
void grad_sums_all(const float* x, const float* dy, Index rows, Index c, const Affine& affine, float* sum_g,
                   float* sum_gx) {
  Index ch = 0;
  for (; ch + 2 * kLanes <= c; ch += 2 * kLanes) {
    grad_sums_strip<2, true, kRelu>(x, dy, rows, c, affine, ch, sum_g, sum_gx, kLanes);
  }
  for (; ch + kLanes <= c; ch += kLanes) {
    grad_sums_strip<1, true, kRelu>(x, dy, rows, c, affine, ch, sum_g, sum_gx, kLanes);
  }
  if (ch < c) grad_sums_strip<1, false, kRelu>(x, dy, rows, c, affine, ch, sum_g, sum_gx, c - ch);
}

template <bool kValue>
struct Whole {
  static constexpr bool value = kValue;
};

/// Calls body(channel, count, whole) for each vector of channels.
template <typename Body>
inline __attribute__((always_inline)) void for_channels(Index c, const Body& body) {
  Index ch = 0;
  for (; ch + kLanes <= c; ch += kLanes) body(ch, kLanes, Whole<true>{});
  if (ch < c) body(ch, c - ch, Whole<false>{});
}

/// The maximum of z over a window, the x where it is, and its position; the first one wins.
template <bool kWhole>
inline __attribute__((always_inline)) void window_max(const float* x, const Tiles& tiles, const Affine& affine,
                                                      Index ch, Index count, Vec& best, Vec& best_x, Mask& position) {
  const Vec mean = fetch<kWhole>(affine.mean + ch, count), gain = fetch<kWhole>(affine.gain + ch, count),
            bias = fetch<kWhole>(affine.bias + ch, count);
  int32_t at = 0;
  for (Index r = 0; r < tiles.kh; ++r) {
    for (Index s = 0; s < tiles.kw; ++s, ++at) {
      const Vec d = fetch<kWhole>(x + (r * tiles.w + s) * tiles.c + ch, count) - mean;
      const Vec z = d * gain + bias;
      if (at == 0) {
        best = z;
        best_x = d;
        position = Mask{};
        continue;
      }
      // NaN wins, so that a non-finite activation is never hidden.
      const Mask take = (z > best) | (z != z);  // NOLINT(misc-redundant-expression)
      best = take ? z : best;
      best_x = take ? d : best_x;
      position = take ? Mask{} + at : position;
    }
  }
}

}  // namespace

void moments(const float* x, Index rows, Index c, float* mean, float* m2) {
  Index ch = 0;
  for (; ch + 4 * kLanes <= c; ch += 4 * kLanes) {
    moments_strip<4, 1, true>(x + ch, rows, c, mean + ch, m2 + ch, kLanes);
  }
  for (; ch + kLanes <= c; ch += kLanes) moments_strip<1, 4, true>(x + ch, rows, c, mean + ch, m2 + ch, kLanes);
  if (ch < c) moments_strip<1, 4, false>(x + ch, rows, c, mean + ch, m2 + ch, c - ch);
}

void affine(const float* x, const float* other, float* y, Index rows, Index c, Affine affine, bool relu) {
  for (Index r = 0; r < rows; ++r) {
    const float* from = x + r * c;
    for_channels(
        c, [&](Index ch, Index count, auto whole) __attribute__((always_inline)) {
          constexpr bool kWhole = decltype(whole)::value;
          Vec z = fetch_z<kWhole>(fetch<kWhole>(from + ch, count), affine, ch, count);
          if (relu) z = relu_of(z);
          if (other != nullptr) z += fetch<kWhole>(other + r * c + ch, count);
          put<kWhole>(y + r * c + ch, z, count);
        });
  }
}

void affine_relu_tiles(const float* x, float* y, Index row, Index rows, Tiles tiles, Affine affine) {
  for (Index i = row; i < row + rows; ++i) {
    const float* from = x + ((i / tiles.oh) * tiles.h + (i % tiles.oh) * tiles.kh) * tiles.w * tiles.c;
    for (Index q = 0; q < tiles.ow; ++q, from += tiles.kw * tiles.c) {
      float* to = y + (i * tiles.ow + q) * tiles.c;
      for_channels(
          tiles.c, [&](Index ch, Index count, auto whole) __attribute__((always_inline)) {
            constexpr bool kWhole = decltype(whole)::value;
            Vec best{}, best_x{};
            Mask position{};
            window_max<kWhole>(from, tiles, affine, ch, count, best, best_x, position);
            put<kWhole>(to + ch, relu_of(best), count);
          });
    }
  }
}

void grad_sums(const float* x, const float* dy, Index rows, Index c, Affine affine, bool relu, float* sum_g,
               float* sum_gx) {
  if (relu) return grad_sums_all<true>(x, dy, rows, c, affine, sum_g, sum_gx);
  grad_sums_all<false>(x, dy, rows, c, affine, sum_g, sum_gx);
}

void affine_grad(const float* x, const float* dy, float* dx, Index rows, Index c, Affine affine, AffineGrad grad,
                 bool relu) {
  for (Index r = 0; r < rows; ++r) {
    for_channels(
        c, [&](Index ch, Index count, auto whole) __attribute__((always_inline)) {
          constexpr bool kWhole = decltype(whole)::value;
          const Vec d = fetch<kWhole>(x + r * c + ch, count) - fetch<kWhole>(grad.mean + ch, count);
          const Vec gain = fetch<kWhole>(grad.gain + ch, count);
          Vec g = fetch<kWhole>(dy + r * c + ch, count);
          if (relu) g = d * gain + fetch<kWhole>(affine.bias + ch, count) <= 0.0f ? Vec{} : g;
          put<kWhole>(dx + r * c + ch,
                      g * gain + (d * fetch<kWhole>(grad.slope + ch, count) + fetch<kWhole>(grad.offset + ch, count)),
                      count);
        });
  }
}

void grad_sums_tiles(const float* x, const float* dy, Index row, Index rows, Tiles tiles, Affine affine, float* sum_g,
                     float* sum_gx) {
  for_channels(
      tiles.c, [&](Index ch, Index count, auto whole) __attribute__((always_inline)) {
        constexpr bool kWhole = decltype(whole)::value;
        Vec total_g{}, total_gx{};
        for (Index i = row; i < row + rows; ++i) {
          const float* from = x + ((i / tiles.oh) * tiles.h + (i % tiles.oh) * tiles.kh) * tiles.w * tiles.c;
          for (Index q = 0; q < tiles.ow; ++q, from += tiles.kw * tiles.c) {
            Vec best{}, best_x{};
            Mask position{};
            window_max<kWhole>(from, tiles, affine, ch, count, best, best_x, position);
            const Vec g = best <= 0.0f ? Vec{} : fetch<kWhole>(dy + (i * tiles.ow + q) * tiles.c + ch, count);
            total_g += g;
            total_gx += g * best_x;
          }
        }
        put<kWhole>(sum_g + ch, total_g, count);
        put<kWhole>(sum_gx + ch, total_gx, count);
      });
}

void affine_grad_tiles(const float* x, const float* dy, float* dx, Index image, Index images, Tiles tiles,
                       Affine affine, AffineGrad grad) {
  const Index row_elems = tiles.w * tiles.c;
  const auto outside = [&](Index at) __attribute__((always_inline)) {
    for_channels(
        tiles.c, [&](Index ch, Index count, auto whole) __attribute__((always_inline)) {
          constexpr bool kWhole = decltype(whole)::value;
          const Vec d = fetch<kWhole>(x + at + ch, count) - fetch<kWhole>(grad.mean + ch, count);
          put<kWhole>(dx + at + ch, d * fetch<kWhole>(grad.slope + ch, count) + fetch<kWhole>(grad.offset + ch, count),
                      count);
        });
  };
  for (Index n = image; n < image + images; ++n) {
    const Index image_at = n * tiles.h * row_elems;
    for (Index p = 0; p < tiles.oh; ++p) {
      for (Index q = 0; q < tiles.ow; ++q) {
        const Index at = image_at + p * tiles.kh * row_elems + q * tiles.kw * tiles.c;
        const float* dy_at = dy + ((n * tiles.oh + p) * tiles.ow + q) * tiles.c;
        for_channels(
            tiles.c, [&](Index ch, Index count, auto whole) __attribute__((always_inline)) {
              constexpr bool kWhole = decltype(whole)::value;
              Vec best{}, best_x{};
              Mask position{};
              window_max<kWhole>(x + at, tiles, affine, ch, count, best, best_x, position);
              const Vec g =
                  best <= 0.0f ? Vec{} : fetch<kWhole>(dy_at + ch, count) * fetch<kWhole>(grad.gain + ch, count);
              const Vec mean = fetch<kWhole>(grad.mean + ch, count), slope = fetch<kWhole>(grad.slope + ch, count),
                        offset = fetch<kWhole>(grad.offset + ch, count);
              int32_t k = 0;
              for (Index r = 0; r < tiles.kh; ++r) {
                for (Index s = 0; s < tiles.kw; ++s, ++k) {
                  const Index pixel = at + r * row_elems + s * tiles.c + ch;
                  const Vec here = position == Mask{} + k ? g : Vec{};
                  put<kWhole>(dx + pixel, here + ((fetch<kWhole>(x + pixel, count) - mean) * slope + offset), count);
                }
              }
            });
      }
      for (Index r = 0; r < tiles.kh; ++r) {
        for (Index w = tiles.ow * tiles.kw; w < tiles.w; ++w) {
          outside(image_at + (p * tiles.kh + r) * row_elems + w * tiles.c);
        }
      }
    }
    for (Index h = tiles.oh * tiles.kh; h < tiles.h; ++h) {
      for (Index w = 0; w < tiles.w; ++w) outside(image_at + h * row_elems + w * tiles.c);
    }
  }
}

void column_sums(const float* x, Index rows, Index c, float* out) {
  for_channels(
      c, [&](Index ch, Index count, auto whole) __attribute__((always_inline)) {
        constexpr bool kWhole = decltype(whole)::value;
        Vec sum[4]{};
        Index r = 0;
        for (; r + 4 <= rows; r += 4) {
          for (int u = 0; u < 4; ++u) sum[u] += fetch<kWhole>(x + (r + u) * c + ch, count);
        }
        for (; r < rows; ++r) sum[0] += fetch<kWhole>(x + r * c + ch, count);
        put<kWhole>(out + ch, (sum[0] + sum[1]) + (sum[2] + sum[3]), count);
      });
}

}  // namespace renai::cpu::RENAI_CPU_ISA
