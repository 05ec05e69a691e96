#pragma once
// RANGE operations on device memory.

#include <cstddef>
#include <cstdint>
#include <string>

#include "renai/backend/backend.hpp"
#include "renai/device/cuda.hpp"

namespace renai {

/// "cuda.<operation>": the kernel name of a RANGE node in the cuda backend's book.
std::string cuda_range_kernel_name(const RangeNode& node);

/// Workspace that a RANGE node's entry has to book, the same for every spec; 0 for most. Determinism: a function of the
/// parameters' sizes alone.
std::int64_t cuda_range_workspace_bytes(const ComputationGraph& graph, const RangeNode& node, const ShapeTable& shapes);

/// Enqueues (or records) one RANGE node. All addresses are resolved now; step-dependent values are read at run time
/// from the staged control block and from the scalars. `workspace` is what the entry booked. Determinism: element-wise,
/// or sums over blocks of constant size in one order: the same bits on every rank. Errors: InternalError for regions
/// that do not fit the operation; BackendError when a launch is refused.
void record_cuda_range_node(const BindContext& context, const RangeNode& node, CudaStream& stream,
                            std::byte* workspace = nullptr);

}  // namespace renai
