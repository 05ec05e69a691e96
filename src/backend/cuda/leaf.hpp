#pragma once
// What the implementations of the cuda leaf share: vocabulary, element type, planners, and where half weights lie.

#include <cuda_runtime_api.h>

#include <memory>
#include <string_view>
#include <vector>

#include "../lowering/implementation.hpp"
#include "convolution.hpp"
#include "matmul.hpp"
#include "renai/backend/backend.hpp"
#include "renai/tensor/dtype.hpp"

namespace renai::cuda {

using lowering::Call;
using lowering::Catalogue;
using lowering::Implementation;
using lowering::is_op;
using lowering::is_relu;
using lowering::Kernel;
using lowering::Match;
using lowering::NodePlace;
using lowering::Offer;
using lowering::Operands;
using lowering::saved_by;
using lowering::Scope;
using lowering::Site;
using lowering::Uses;
using lowering::WorkspaceLayout;

/// Fixed for a backend's life; implementations hold a pointer to it.
struct Leaf {
  Precision precision = Precision::fp32;
  DType dtype = DType::f32;  ///< Of activations, their gradients, and the weights that matrix kernels read.
  std::unique_ptr<ConvPlanner> convolutions;
  std::unique_ptr<LinearPlanner> products;

  bool half() const { return dtype != DType::f32; }
  std::int64_t elem_bytes() const { return dtype_bytes(dtype); }
};

inline cudaStream_t queue_of(const Operands& at) { return static_cast<cudaStream_t>(at.queue); }

/// Where matrix kernels read a parameter or its average: there, or in the half copy (weights_half, ema_half).
const void* matrix_operand(const Leaf& leaf, const Operands& at, std::size_t input);

/// Stored channels of the network's input: half-precision convolutions want 8 of them, the rest zero. Any other tensor,
/// and an input that something else reads: `c`.
std::int64_t stored_channels(const Leaf& leaf, const ComputationGraph& graph, const Uses& uses, TensorId tensor,
                             std::int64_t c);

std::vector<Implementation> conv_implementations(const Leaf& leaf);
std::vector<Implementation> linear_implementations(const Leaf& leaf);
std::vector<Implementation> norm_implementations(const Leaf& leaf);
std::vector<Implementation> elementwise_implementations(
    const Leaf& leaf);  ///< activations, add, concat, flatten, dropout
std::vector<Implementation> pool_implementations(const Leaf& leaf);
std::vector<Implementation> edge_implementations(const Leaf& leaf);  ///< slot, input and loss

}  // namespace renai::cuda
