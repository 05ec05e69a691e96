#pragma once
// The additions of the fixed-tree reduction on a GPU.

#include <cstdint>

namespace renai::nccl {

/// The vectors of one part, by rank: rank `own`'s lies at `own_values`, the others' follow each other in rank order
/// from `others` on, `stride_elems` apart.
struct TreeOperands {
  float* own_values = nullptr;
  const float* others = nullptr;
  std::int64_t stride_elems = 0, elems = 0;
  int own = 0, count = 2;
};

/// own_values[i] becomes the sum over ranks as one balanced tree, the lower rank first: the bits of tree_sum.
/// Effects: launches into `stream` (a cudaStream_t) or is captured there. Returns the library's status (cudaError_t).
int add_tree(const TreeOperands& operands, void* stream);

}  // namespace renai::nccl
