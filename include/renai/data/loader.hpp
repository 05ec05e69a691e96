#pragma once
// Loader: threads that fill staging buffers A and B, shard after shard, in the layout of the device slot.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "renai/data/augmentation.hpp"
#include "renai/data/dataset.hpp"
#include "renai/data/mixing.hpp"
#include "renai/data/sampler.hpp"
#include "renai/device/device.hpp"
#include "renai/tensor/slot_layout.hpp"

namespace renai {

/// Capacity on each side that staged images of an encoded set need for a network input of this extent: room for the
/// reduced-size decoding that is not smaller than it.
constexpr std::int64_t staged_extent(std::int64_t network_extent) { return (3 * network_extent + 1) / 2; }

/// Errors: UserError when the set has no such images: padded crops of images that differ in size, colours of images
/// without three channels.
void verify_augmentation(const Augmentation& augmentation, const Manifest& manifest);

/// One shard to stage. `control` is copied to the buffer; rows, valid_rows are filled in by the loader.
struct ShardJob {
  const Dataset* dataset = nullptr;
  const Sampler* sampler = nullptr;
  std::int64_t epoch = 0, batch = 0;
  int shard = 0;
  std::int64_t h = 0, w = 0;  ///< The network's input, in which boxes lie; 0: the stored image's size (raw sets only).
  ControlBlock control;
};

/// What a loader fills, with what, and on how many threads.
struct LoaderConfig {
  SlotLayout layout;
  std::array<std::byte*, 2> staging{};  ///< Pinned, layout.size_bytes each.
  int threads = 2;
  Augmentation augmentation;  ///< Applied in training only, as mixing and erasing are.
  std::uint64_t seed = 0;
  Mixing mixing{};
  double erasing = 0;   ///< Probability that a box of a sample is erased.
  double val_crop = 0;  ///< What validation shows, see centre_box(); 0: all of a raw image, 0.875 of an encoded one.
  std::string threads_option = "--loader-threads";  ///< What the command line calls `threads`.
};

/// Job k goes to buffer k % 2. `submit` queues (at most `kQueueDepth` ahead), `wait` blocks until job k is staged,
/// `release` says when its buffer may be filled again. No allocation after construction, but for what libjpeg needs.
class Loader {
 public:
  static constexpr int kQueueDepth = 8;
  explicit Loader(const LoaderConfig& config);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  std::int64_t submit(const ShardJob& job);  ///< Returns k.
  /// Returns the buffer (0: A, 1: B) of job k. Errors: DataError of the read that failed. Waits for the disk only,
  /// never for other ranks.
  int wait(std::int64_t k);
  /// The buffer of job k is free again once `copied` is reached. `copied` must outlive the loader.
  void release(std::int64_t k, const Event& copied);
  /// Of all threads so far.
  ReadCounts counts() const;
  std::chrono::nanoseconds waited()
      const;  ///< Time spent in wait() while the job's buffer was being filled (not while it was in use).

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace renai
