#pragma once
// The control group of the mpi leaf.

#include "link.hpp"
#include "renai/comm/control_group.hpp"

namespace renai::mpi {

/// Every rank sends to every other directly, so each one knows by itself which ranks are silent.
std::unique_ptr<ControlGroup> make_control_group(std::shared_ptr<Link> link, std::chrono::milliseconds deadline);

}  // namespace renai::mpi
