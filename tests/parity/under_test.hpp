#pragma once
// The backend that this executable tests; one .cpp for each is linked.

#include <memory>

#include "renai/backend/backend.hpp"
#include "renai/device/device.hpp"

namespace renai::test {

/// Errors: BackendError with the reason when the backend is not built, or has nothing to run on here.
std::unique_ptr<Backend> make_backend_under_test();
/// Where it runs; null for the host.
std::unique_ptr<Device> make_device_under_test();
Precision precision_under_test();

}  // namespace renai::test
