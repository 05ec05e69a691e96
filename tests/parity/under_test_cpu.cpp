#include "under_test.hpp"

namespace renai::test {

std::unique_ptr<Backend> make_backend_under_test() { return make_cpu_backend(2); }

}  // namespace renai::test
