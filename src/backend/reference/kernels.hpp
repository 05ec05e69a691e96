#pragma once
// The reference kernels: naive loops with fp64 accumulation, rounded once to f32. One binder per operator family; each
// takes every pass that op.hpp lists.

#include "operands.hpp"
#include "renai/device/host.hpp"

namespace renai::reference {

Kernel bind_unpack_slot(const Operands& operands);
Kernel bind_normalize_input(const Operands& operands);
Kernel bind_conv2d(const Operands& operands);
Kernel bind_linear(const Operands& operands);
Kernel bind_batch_norm(const Operands& operands);
Kernel bind_activation(const Operands& operands);
Kernel bind_max_pool(const Operands& operands);
Kernel bind_avg_pool(const Operands& operands);
Kernel bind_global_avg_pool(const Operands& operands);
Kernel bind_adaptive_avg_pool(const Operands& operands);
Kernel bind_add(const Operands& operands);
Kernel bind_concat(const Operands& operands);
Kernel bind_dropout(const Operands& operands);
Kernel bind_softmax_cross_entropy(const Operands& operands);

/// Of a node that is a batch norm over several shards, with `c` channels; 0 for any other. Units: bytes.
std::int64_t batch_norm_workspace_bytes(const ComputeNode& node, std::int64_t c);
/// Such a node: two kernels with an exchange in between, all in `stream`.
void record_sync_batch_norm(const Operands& operands, std::byte* workspace, HostStream& stream);

/// The kernel of any node; empty for flatten, whose output is its input.
/// Errors: InternalError for a pass that the operator lacks.
Kernel bind_kernel(const BindContext& context, const ComputeNode& node);

/// Errors: InternalError naming node and pass.
[[noreturn]] void refuse_pass(const ComputeNode& node);

}  // namespace renai::reference
