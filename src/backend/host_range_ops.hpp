#pragma once
// RANGE operations on host memory, shared by the backends that run on HostStream.

#include <string>

#include "renai/backend/backend.hpp"
#include "renai/device/host.hpp"

namespace renai {

/// The host stream behind `stream`. Errors: BackendError naming the backend when it is another device's.
HostStream& require_host_stream(Stream& stream, const std::string& backend);

/// "host.<operation>": the kernel name of a RANGE node in a host backend's book.
std::string host_range_kernel_name(const RangeNode& node);

/// Enqueues (or records) one RANGE node. All addresses are resolved now; step-dependent values are read at run time
/// from the staged control block and from the scalars. Determinism: element-wise, or sums over blocks of constant size
/// in rising order: the same bits on every rank. Errors: InternalError for regions that do not fit the operation.
void record_host_range_node(const BindContext& context, const RangeNode& node, HostStream& stream);

}  // namespace renai
