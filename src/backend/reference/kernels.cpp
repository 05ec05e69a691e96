#include "kernels.hpp"

#include "renai/base/error.hpp"

namespace renai::reference {

void refuse_pass(const ComputeNode& node) {
  throw InternalError("binding '" + node.name + "'",
                      std::string(op_kind_name(node.op)) + " has no pass " + std::string(pass_name(node.pass)));
}

Kernel bind_kernel(const BindContext& context, const ComputeNode& node) {
  const Operands operands(context, node);
  switch (node.op) {
    case OpKind::unpack_slot: return bind_unpack_slot(operands);
    case OpKind::normalize_input: return bind_normalize_input(operands);
    case OpKind::conv2d: return bind_conv2d(operands);
    case OpKind::linear: return bind_linear(operands);
    case OpKind::batch_norm: return bind_batch_norm(operands);
    case OpKind::activation: return bind_activation(operands);
    case OpKind::max_pool: return bind_max_pool(operands);
    case OpKind::avg_pool: return bind_avg_pool(operands);
    case OpKind::global_avg_pool: return bind_global_avg_pool(operands);
    case OpKind::adaptive_avg_pool: return bind_adaptive_avg_pool(operands);
    case OpKind::add: return bind_add(operands);
    case OpKind::concat: return bind_concat(operands);
    case OpKind::flatten: return {};
    case OpKind::dropout: return bind_dropout(operands);
    case OpKind::softmax_cross_entropy: return bind_softmax_cross_entropy(operands);
  }
  throw InternalError("binding '" + node.name + "'", "the operator is unknown");
}

}  // namespace renai::reference
