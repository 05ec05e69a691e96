// HostDevice: memory, streams and events of the host leaf.

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "machine.hpp"
#include "renai/base/check.hpp"
#include "renai/base/memory.hpp"
#include "renai/base/text.hpp"
#include "renai/tensor/dtensor.hpp"
#include "stream.hpp"

namespace renai {
namespace host {
namespace {

/// Buffers from this size on are aligned to it, so that the system can back them with huge pages.
constexpr std::int64_t kHugePageBytes = 2 << 20;

void release_memory(std::byte* data, std::int64_t) noexcept { std::free(data); }

Buffer allocate_memory(std::int64_t size_bytes, const char* what) {
  RENAI_CHECK(size_bytes >= 0, std::string("negative size of ") + what);
  const std::int64_t available = allocatable_memory_bytes();
  const auto refuse = [&] {
    return ResourceError(std::string("cannot allocate ") + what,
                         format_bytes(size_bytes) + " asked for, " +
                             (available < 0 ? std::string("an unknown amount") : format_bytes(available)) +
                             " available",
                         "use a smaller batch, a smaller model or fewer ranks on this host");
  };
  // The system grants more than it has and ends the process on first use: ask before.
  if (available >= 0 && size_bytes > available) throw refuse();
  const std::int64_t alignment = size_bytes >= kHugePageBytes ? kHugePageBytes : kSlotAlignment;
  const std::int64_t rounded = (std::max<std::int64_t>(size_bytes, 1) + alignment - 1) / alignment * alignment;
  void* data = std::aligned_alloc(static_cast<std::size_t>(alignment), static_cast<std::size_t>(rounded));
  if (data == nullptr) throw refuse();
  if (alignment == kHugePageBytes) madvise(data, static_cast<std::size_t>(rounded), MADV_HUGEPAGE);
  std::memset(data, 0, static_cast<std::size_t>(size_bytes));
  return Buffer(static_cast<std::byte*>(data), size_bytes, &release_memory);
}

class HostDevice final : public Device {
 public:
  explicit HostDevice(const HostDeviceOptions& options) : core_(std::make_shared<Core>(options)) {}

  DeviceInfo info() const override {
    return {.kind = "cpu",
            .model = cpu_model(),
            .uuid = "",
            .instruction_set = instruction_set(),
            .numa_node = numa_node()};
  }
  Buffer allocate(std::int64_t size_bytes) override {
    Buffer buffer = allocate_memory(size_bytes, "device memory");
    core_->counters->allocations.fetch_add(1, std::memory_order_relaxed);
    core_->counters->allocated_bytes.fetch_add(size_bytes, std::memory_order_relaxed);
    return buffer;
  }
  /// The host's own memory needs no page lock: ordinary memory.
  Buffer allocate_pinned(std::int64_t size_bytes) override {
    Buffer buffer = allocate_memory(size_bytes, "staging memory");
    core_->counters->pinned_allocations.fetch_add(1, std::memory_order_relaxed);
    core_->counters->allocated_bytes.fetch_add(size_bytes, std::memory_order_relaxed);
    return buffer;
  }
  std::unique_ptr<Stream> create_stream(int index) override { return std::make_unique<StreamOnWorker>(core_, index); }
  std::unique_ptr<Event> create_event() override { return std::make_unique<HostEvent>(core_->counters); }
  DeviceCounters counters() const override {
    const Counters& now = *core_->counters;
    return {.allocations = now.allocations.load(),
            .allocated_bytes = now.allocated_bytes.load(),
            .pinned_allocations = now.pinned_allocations.load(),
            .host_synchronizations = now.host_synchronizations.load(),
            .launches = now.launches.load()};
  }

 private:
  std::shared_ptr<Core> core_;
};

}  // namespace
}  // namespace host

std::unique_ptr<Device> make_host_device(const HostDeviceOptions& options) {
  return std::make_unique<host::HostDevice>(options);
}

}  // namespace renai
