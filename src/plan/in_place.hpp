#pragma once
// Whether kernels that write into the storage of another tensor leave every value alone that is still to be read.

#include "renai/plan/kernel_book.hpp"

namespace renai::plan_detail {

/// A value is a tensor with all its views (flatten). Values that share a storage through aliases must not overlap in
/// time: whoever writes one comes after all readers of the other, or before its writers, in every pass.
/// Errors: InternalError naming the tensors.
void check_in_place(const KernelBook& book, const ComputationGraph& graph);

}  // namespace renai::plan_detail
