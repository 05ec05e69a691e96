#pragma once
// Loops: the vectorised inner loops, compiled once for each instruction set from the same source (loops/*.cpp).
//
// These files include nothing that defines inline functions: the linker may keep the copy of such a function that was
// compiled for the widest instruction set and call it on a machine without it.

#include <stdint.h>

namespace renai::cpu {

/// Channels-last matrix [rows, c]; `c` is contiguous.
using Index = int64_t;

/// Per-channel factors of a batch norm: z = (x - mean) * gain + bias.
struct Affine {
  const float* mean;
  const float* gain;
  const float* bias;
};

/// Per-channel factors of its gradient: dx = gain * g + slope * (x - mean) + offset.
struct AffineGrad {
  const float* mean;
  const float* gain;
  const float* slope;
  const float* offset;
};

/// A pool with stride == kernel, no padding and whole windows only, of x [.., h, w, c] to y [.., oh, ow, c].
struct Tiles {
  Index h, w, c, oh, ow, kh, kw;
};

/// A pool of any kind, of one image. `divisor_padded`: the average counts padding inside the padded image.
struct Pool {
  Index h, w, c, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw;
  bool count_include_pad;
};

struct Loops {
  const char* isa;
  /// Mean and sum of squared deviations of each channel over a block of rows.
  void (*moments)(const float* x, Index rows, Index c, float* mean, float* m2);
  /// y = z, or relu(z) if `relu`, plus `other` if not null.
  void (*affine)(const float* x, const float* other, float* y, Index rows, Index c, Affine affine, bool relu);
  /// y = max over the window of relu(z), for `rows` rows of output pixels from `row` on (rows run over images).
  void (*affine_relu_tiles)(const float* x, float* y, Index row, Index rows, Tiles tiles, Affine affine);
  /// Sums over a block of rows of g and g * (x - mean), where g = dy, or 0 where relu'(z) = 0 if `relu`.
  void (*grad_sums)(const float* x, const float* dy, Index rows, Index c, Affine affine, bool relu, float* sum_g,
                    float* sum_gx);
  void (*affine_grad)(const float* x, const float* dy, float* dx, Index rows, Index c, Affine affine, AffineGrad grad,
                      bool relu);
  /// The same two through max pool and relu: dy belongs to the pooled tensor.
  void (*grad_sums_tiles)(const float* x, const float* dy, Index row, Index rows, Tiles tiles, Affine affine,
                          float* sum_g, float* sum_gx);
  void (*affine_grad_tiles)(const float* x, const float* dy, float* dx, Index image, Index images, Tiles tiles,
                            Affine affine, AffineGrad grad);
  /// out[ch] += sum over rows; `out` is overwritten.
  void (*column_sums)(const float* x, Index rows, Index c, float* out);
  void (*relu)(const float* x, float* y, Index elems);
  void (*relu_grad)(const float* y, const float* dy, float* dx, Index elems);
  void (*add)(const float* a, const float* b, float* y, Index elems);
  void (*scale)(const float* x, float factor, float* y, Index elems);
  /// Pools of one image, output rows [row, row + rows). `index` (may be null): window position of the maximum.
  void (*max_pool)(const float* x, float* y, uint8_t* index, Index row, Index rows, Pool pool);
  /// Gradients of one image: dx is overwritten. The position of the maximum comes from `index`, or is found again in x.
  void (*max_pool_grad)(const uint8_t* index, const float* x, const float* dy, float* dx, Pool pool);
  void (*avg_pool)(const float* x, float* y, Index row, Index rows, Pool pool);
  void (*avg_pool_grad)(const float* dy, float* dx, Pool pool);
  /// x[i * c + ch] = (pixel - mean[ch]) / std[ch], from one row of pixels; `flip` reads them from right to left.
  void (*normalize_row)(const uint8_t* pixels, float* x, Index w, Index c, const float* mean, const float* inv_std,
                        bool flip);
};

const Loops& loops_baseline();
const Loops& loops_avx2();
const Loops& loops_avx512();

/// The widest set that this machine runs.
const Loops& machine_loops();

}  // namespace renai::cpu
