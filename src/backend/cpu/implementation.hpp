#pragma once
// The lowering's vocabulary, as the CPU leaf uses it.

#include "../lowering/implementation.hpp"

namespace renai::cpu {

using lowering::Call;
using lowering::Catalogue;
using lowering::Implementation;
using lowering::is_op;
using lowering::is_relu;
using lowering::is_saved;
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

}  // namespace renai::cpu
