#pragma once
// Declarations of one instruction set's loops, for the file that gathers them in a table.

#include "loops.hpp"

namespace renai::cpu::RENAI_CPU_ISA {

void moments(const float* x, Index rows, Index c, float* mean, float* m2);
void affine(const float* x, const float* other, float* y, Index rows, Index c, Affine affine, bool relu);
void affine_relu_tiles(const float* x, float* y, Index row, Index rows, Tiles tiles, Affine affine);
void grad_sums(const float* x, const float* dy, Index rows, Index c, Affine affine, bool relu, float* sum_g,
               float* sum_gx);
void affine_grad(const float* x, const float* dy, float* dx, Index rows, Index c, Affine affine, AffineGrad grad,
                 bool relu);
void grad_sums_tiles(const float* x, const float* dy, Index row, Index rows, Tiles tiles, Affine affine, float* sum_g,
                     float* sum_gx);
void affine_grad_tiles(const float* x, const float* dy, float* dx, Index image, Index images, Tiles tiles,
                       Affine affine, AffineGrad grad);
void column_sums(const float* x, Index rows, Index c, float* out);
void relu(const float* x, float* y, Index elems);
void relu_grad(const float* y, const float* dy, float* dx, Index elems);
void add(const float* a, const float* b, float* y, Index elems);
void scale(const float* x, float factor, float* y, Index elems);
void max_pool(const float* x, float* y, uint8_t* index, Index row, Index rows, Pool pool);
void max_pool_grad(const uint8_t* index, const float* x, const float* dy, float* dx, Pool pool);
void avg_pool(const float* x, float* y, Index row, Index rows, Pool pool);
void avg_pool_grad(const float* dy, float* dx, Pool pool);
void normalize_row(const uint8_t* pixels, float* x, Index w, Index c, const float* mean, const float* inv_std,
                   bool flip);

}  // namespace renai::cpu::RENAI_CPU_ISA
