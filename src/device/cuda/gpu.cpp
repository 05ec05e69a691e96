#include "gpu.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "renai/base/error.hpp"

namespace renai {
namespace cuda {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// "GPU-6d0f2a1c-1f2e-...": the form that nvidia-smi and CUDA_VISIBLE_DEVICES use.
std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    std::array<char, 3> hex{};
    std::snprintf(hex.data(), hex.size(), "%02x", static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
    text += hex.data();
  }
  return text;
}

int numa_node_of(std::string pci) {
  std::transform(pci.begin(), pci.end(), pci.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::ifstream file("/sys/bus/pci/devices/" + pci + "/numa_node");
  int node = -1;
  return file >> node ? node : -1;
}

CudaGpu describe(int ordinal) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, ordinal), "asking for a GPU's properties");
  std::array<char, 32> pci{};
  check_cuda(cudaDeviceGetPCIBusId(pci.data(), static_cast<int>(pci.size()), ordinal), "asking for a GPU's bus id");
  return {.ordinal = ordinal,
          .model = properties.name,
          .uuid = uuid_text(properties.uuid),
          .pci = pci.data(),
          .compute_capability = properties.major * 10 + properties.minor,
          .numa_node = numa_node_of(pci.data()),
          .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem)};
}

std::string visible_devices() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible != nullptr ? " (CUDA_VISIBLE_DEVICES is '" + std::string(visible) + "')" : std::string();
}

/// Why the runtime counts no device.
std::string refusal(cudaError_t status) {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0) return "no NVIDIA driver is installed; this build uses CUDA " + version_text(runtime);
  if (status == cudaErrorInsufficientDriver) {
    return "the driver is too old: it supports CUDA " + version_text(driver) + ", this build needs " +
           version_text(runtime);
  }
  if (status == cudaErrorNoDevice || status == cudaSuccess) return "there is no GPU here" + visible_devices();
  return std::string(cudaGetErrorString(status)) + visible_devices() + " (" + cuda_versions() + ")";
}

}  // namespace

void check_cuda(cudaError_t status, const char* what, std::source_location where) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // An error that is not sticky must not come up again in the next call.
  throw BackendError(std::string(what) + " failed",
                     std::string(cudaGetErrorString(status)) + " (" + cudaGetErrorName(status) + ")",
                     "see the GPU's log (dmesg, nvidia-smi), or use --device cpu", where);
}

void make_current(int ordinal) {
  thread_local int current = -1;
  if (current == ordinal) return;
  check_cuda(cudaSetDevice(ordinal), "choosing the GPU");
  current = ordinal;
}

void Patience::rest() {
  const auto now = std::chrono::steady_clock::now();
  if (now - begin_ < kSpin) {
    std::this_thread::yield();
    return;
  }
  if (now >= next_look_) {
    next_look_ = now + kLook;
    if (core_->while_waiting) {
      core_->while_waiting(std::chrono::duration_cast<std::chrono::milliseconds>(now - waiting_since_));
    }
  }
  std::this_thread::sleep_for(sleep_);
  sleep_ = std::min(sleep_ * 2, std::chrono::microseconds{200});
}

}  // namespace cuda

CudaGpus find_cuda_gpus() {
  CudaGpus found;
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    cudaGetLastError();
    found.reason = cuda::refusal(status);
    return found;
  }
  try {
    for (int ordinal = 0; ordinal < count; ++ordinal) found.gpus.push_back(cuda::describe(ordinal));
  } catch (const BackendError& error) {
    found.gpus.clear();
    found.reason = error.failed() + ": " + error.why() + " (" + cuda_versions() + ")";
  }
  return found;
}

int cuda_device_count_or_reason(std::string* reason) {
  const CudaGpus found = find_cuda_gpus();
  *reason = found.reason;
  return static_cast<int>(found.gpus.size());
}

std::string cuda_versions() {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  return "CUDA " + cuda::version_text(runtime) + ", driver " +
         (driver == 0 ? std::string("none") : "for CUDA " + cuda::version_text(driver));
}

}  // namespace renai
