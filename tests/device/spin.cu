#include <cuda_runtime.h>

#include <stdexcept>

#include "spin.hpp"

namespace renai::testing {
namespace {

__global__ void spin_kernel(unsigned long long nanoseconds, int* counter) {
  unsigned long long start = 0, now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
  if (counter != nullptr) *counter += 1;
}

}  // namespace

void spin_then_count(void* stream, double us, int* counter) {
  spin_kernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<unsigned long long>(us * 1e3), counter);
  if (cudaGetLastError() != cudaSuccess) throw std::runtime_error("the spinning kernel does not start");
}

}  // namespace renai::testing
