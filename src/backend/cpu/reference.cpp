// The last resort: the reference backend's loops.

#include "../reference/kernels.hpp"
#include "tables.hpp"

namespace renai::cpu {
namespace {

Offer<Match> match_any(const Scope& scope, std::size_t first) {
  const ComputeNode* node = scope.node(first);
  if (node == nullptr) return Offer<Match>::refuse("not a COMPUTE node");
  return Match{1, node->inputs, node->outputs, {}};
}

Offer<Kernel> make_any(const Site& site) {
  const ComputeNode& node = site.node();
  Kernel kernel;
  kernel.detail = std::string(op_kind_name(node.op)) + "." + std::string(pass_name(node.pass));
  kernel.bind = [&node](const Operands& at) -> Call { return reference::bind_kernel(*at.context, node); };
  return kernel;
}

}  // namespace

std::vector<Implementation> reference_implementations() { return {{"reference", match_any, make_any}}; }

}  // namespace renai::cpu
