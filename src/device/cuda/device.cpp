// CudaDevice: one GPU's arena, pinned memory, streams and events.

#include <algorithm>
#include <cstring>

#include "gpu.hpp"
#include "renai/base/check.hpp"
#include "renai/base/error.hpp"
#include "renai/base/text.hpp"
#include "stream.hpp"

namespace renai {
namespace cuda {
namespace {

/// Stream indices are those of the plan's StreamId: TRANSFER, COMPUTE, COMM, UPDATE.
constexpr int kCommStream = 2;

void release_device(std::byte* data, std::int64_t) noexcept {
  if (!leaving()) cudaFree(data);
}

void release_pinned(std::byte* data, std::int64_t) noexcept {
  if (!leaving()) cudaFreeHost(data);
}

class CudaDevice final : public Device {
 public:
  CudaDevice(CudaGpu gpu, const CudaDeviceOptions& options) : gpu_(std::move(gpu)), core_(std::make_shared<Core>()) {
    core_->ordinal = gpu_.ordinal;
    core_->while_waiting = options.while_waiting;
    make_current(gpu_.ordinal);
    // The context is made here, so that a GPU that cannot be used is told at once.
    check_cuda(cudaFree(nullptr), "starting the GPU");
    check_cuda(cudaDeviceGetStreamPriorityRange(&least_priority_, &greatest_priority_), "asking for stream priorities");
  }

  DeviceInfo info() const override {
    return {.kind = "cuda",
            .model = gpu_.model,
            .uuid = gpu_.uuid,
            .instruction_set = "sm_" + std::to_string(gpu_.compute_capability),
            .numa_node = gpu_.numa_node};
  }

  Buffer allocate(std::int64_t size_bytes) override {
    RENAI_CHECK(size_bytes >= 0, "negative size of device memory");
    make_current(gpu_.ordinal);
    void* data = nullptr;
    const cudaError_t status = cudaMalloc(&data, static_cast<std::size_t>(std::max<std::int64_t>(size_bytes, 1)));
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      throw ResourceError("cannot allocate device memory", format_bytes(size_bytes) + " asked for, " + free_text(),
                          "use a smaller batch or model, more ranks, or end other programs on this GPU");
    }
    check_cuda(status, "allocating device memory");
    Buffer buffer(static_cast<std::byte*>(data), size_bytes, &release_device);
    check_cuda(cudaMemset(data, 0, static_cast<std::size_t>(size_bytes)), "clearing device memory");
    // Streams of this leaf do not wait for the library's default stream.
    check_cuda(cudaDeviceSynchronize(), "clearing device memory");
    core_->allocations.fetch_add(1, std::memory_order_relaxed);
    core_->allocated_bytes.fetch_add(size_bytes, std::memory_order_relaxed);
    return buffer;
  }

  Buffer allocate_pinned(std::int64_t size_bytes) override {
    RENAI_CHECK(size_bytes >= 0, "negative size of pinned memory");
    make_current(gpu_.ordinal);
    void* data = nullptr;
    const auto asked = static_cast<std::size_t>(std::max<std::int64_t>(size_bytes, 1));
    const cudaError_t status = cudaHostAlloc(&data, asked, cudaHostAllocDefault);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      throw ResourceError("cannot allocate page-locked memory", format_bytes(size_bytes) + " asked for",
                          "use a smaller batch or fewer ranks on this host, or raise its limit (ulimit -l)");
    }
    check_cuda(status, "allocating page-locked memory");
    Buffer buffer(static_cast<std::byte*>(data), size_bytes, &release_pinned);
    std::memset(data, 0, asked);
    core_->pinned_allocations.fetch_add(1, std::memory_order_relaxed);
    core_->allocated_bytes.fetch_add(size_bytes, std::memory_order_relaxed);
    return buffer;
  }

  std::unique_ptr<Stream> create_stream(int index) override {
    RENAI_CHECK(index >= 0 && index < 4, "stream index " + std::to_string(index) + " is out of range");
    return std::make_unique<GpuStream>(core_, index == kCommStream ? greatest_priority_ : least_priority_);
  }
  std::unique_ptr<Event> create_event() override { return std::make_unique<GpuEvent>(core_, false); }
  std::unique_ptr<Event> create_timed_event() override { return std::make_unique<GpuEvent>(core_, true); }

  DeviceCounters counters() const override {
    return {.allocations = core_->allocations.load(),
            .allocated_bytes = core_->allocated_bytes.load(),
            .pinned_allocations = core_->pinned_allocations.load(),
            .host_synchronizations = core_->host_synchronizations.load(),
            .launches = core_->launches.load()};
  }

 private:
  static std::string free_text() {
    std::size_t free_bytes = 0, total_bytes = 0;
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) return "an unknown amount free";
    return format_bytes(static_cast<std::int64_t>(free_bytes)) + " of " +
           format_bytes(static_cast<std::int64_t>(total_bytes)) + " free";
  }

  CudaGpu gpu_;
  std::shared_ptr<Core> core_;
  int least_priority_ = 0, greatest_priority_ = 0;
};

}  // namespace
}  // namespace cuda

std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options) {
  CudaGpus found = find_cuda_gpus();
  if (found.gpus.empty()) {
    throw BackendError("using a GPU", found.reason, "use --device cpu, or a machine with a GPU and its driver");
  }
  if (options.ordinal < 0 || static_cast<std::size_t>(options.ordinal) >= found.gpus.size()) {
    throw BackendError("using GPU " + std::to_string(options.ordinal),
                       "there are " + std::to_string(found.gpus.size()) + " GPUs for this process",
                       "start fewer ranks on this host, or let CUDA_VISIBLE_DEVICES name more GPUs");
  }
  return std::make_unique<cuda::CudaDevice>(std::move(found.gpus[static_cast<std::size_t>(options.ordinal)]), options);
}

}  // namespace renai
