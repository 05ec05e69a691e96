// One executable for all precisions: RENAI_TEST_PRECISION is fp32 (default), tf32, bf16 or fp16.

#include <cstdlib>

#include "renai/backend/cuda.hpp"
#include "renai/base/error.hpp"
#include "renai/device/cuda.hpp"
#include "under_test.hpp"

namespace renai::test {

Precision precision_under_test() {
  const char* name = std::getenv("RENAI_TEST_PRECISION");
  if (name == nullptr) return Precision::fp32;
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16}) {
    if (precision_name(precision) == name) return precision;
  }
  throw UserError("RENAI_TEST_PRECISION", "unknown precision", "use fp32, tf32, bf16 or fp16");
}

std::unique_ptr<Device> make_device_under_test() { return make_cuda_device({}); }

std::unique_ptr<Backend> make_backend_under_test() {
  const std::unique_ptr<Device> device = make_cuda_device({});  // Says why where there is no GPU.
  CudaBackendOptions options;
  options.precision = precision_under_test();
  return make_cuda_backend(options);
}

}  // namespace renai::test
