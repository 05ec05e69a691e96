#pragma once
// The backend that this executable tests; one .cpp for each is linked.

#include <memory>

#include "renai/backend/backend.hpp"

namespace renai::test {

/// Errors: BackendError with the reason when the backend is not built.
std::unique_ptr<Backend> make_backend_under_test();

}  // namespace renai::test
