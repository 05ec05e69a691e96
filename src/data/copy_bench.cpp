#include "renai/data/copy_bench.hpp"

#include <array>
#include <chrono>
#include <memory>

#include "renai/base/check.hpp"
#include "renai/base/elapsed.hpp"

namespace renai {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBuffers = 2;  ///< As many as a training stages into.
constexpr int kTransferStream = 0;

}  // namespace

StageRate bench_copy(Device& device, std::int64_t slot_bytes, std::int64_t rows, double seconds) {
  RENAI_CHECK(slot_bytes > 0 && rows > 0, "a staging buffer holds images");
  const std::unique_ptr<Stream> stream = device.create_stream(kTransferStream);
  std::array<Buffer, kBuffers> from, to;
  std::array<std::unique_ptr<Event>, kBuffers> done;
  for (std::size_t i = 0; i < kBuffers; ++i) {
    from[i] = device.allocate_pinned(slot_bytes);
    to[i] = device.allocate(slot_bytes);
    done[i] = device.create_event();
    stream->copy(to[i].data(), from[i].data(), slot_bytes);  // The first touch of the memory is not measured.
  }
  stream->synchronize();
  std::int64_t copies = 0;
  double taken = 0;
  const auto start = Clock::now();
  do {
    const auto i = static_cast<std::size_t>(copies % kBuffers);
    if (copies >= kBuffers) {
      while (!done[i]->wait_host(std::chrono::seconds(1))) {
      }
    }
    stream->copy(to[i].data(), from[i].data(), slot_bytes);
    stream->record(*done[i]);
    ++copies;
    taken = seconds_since(start);
  } while (taken < seconds);
  stream->synchronize();
  taken = seconds_since(start);
  StageRate rate;
  rate.name = "copy";
  rate.images = copies * rows;
  rate.seconds = taken;
  rate.images_per_second = static_cast<double>(copies * rows) / taken;
  rate.bytes_per_second = static_cast<double>(copies * slot_bytes) / taken;
  rate.busy = 1.0;
  rate.limit = device.info().kind == "cuda" ? "the way to the GPU" : "memory";
  return rate;
}

}  // namespace renai
