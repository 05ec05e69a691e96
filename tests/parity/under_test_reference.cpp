#include "under_test.hpp"

namespace renai::test {

std::unique_ptr<Backend> make_backend_under_test() { return make_reference_backend(); }

}  // namespace renai::test
