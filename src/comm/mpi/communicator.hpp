#pragma once
// The communicator of the mpi leaf.

#include "link.hpp"
#include "renai/comm/communicator.hpp"

namespace renai::mpi {

/// Errors: UserError when the number of ranks is not a power of two; InternalError when `ranks_per_host` does not
/// divide it in powers of two.
std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Link> link, std::chrono::milliseconds deadline,
                                                int ranks_per_host);

}  // namespace renai::mpi
