#include "under_test.hpp"

namespace renai::test {

std::unique_ptr<Backend> make_backend_under_test() { return make_cpu_backend(2); }

std::unique_ptr<Device> make_device_under_test() { return nullptr; }

Precision precision_under_test() { return Precision::fp32; }

}  // namespace renai::test
