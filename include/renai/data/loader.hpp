#pragma once
// Loader: threads that fill staging buffers A and B, shard after shard, in the layout of the device slot.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "renai/data/dataset.hpp"
#include "renai/data/mixing.hpp"
#include "renai/data/sampler.hpp"
#include "renai/device/device.hpp"
#include "renai/tensor/slot_layout.hpp"

namespace renai {

/// Training augmentation of raw images: random crop after padding, random left-right flip.
struct Augmentation {
  std::int64_t pad = 0;  ///< Pixels of border on each side before the crop; 0: no crop.
  bool flip = false;
  /// "none", "flip", "crop4", "crop4,flip". Errors: UserError with the nearest known word.
  static Augmentation parse(const std::string& text);
  std::string str() const;
};
/// Parameters of one sample: a pure function of (seed, epoch, sample id).
SampleParams draw_params(const Augmentation& augmentation, std::int64_t h, std::int64_t w, std::uint64_t seed,
                         std::int64_t epoch, std::int64_t sample);

/// One shard to stage. `control` is copied to the buffer; rows, valid_rows are filled in by the loader.
struct ShardJob {
  const Dataset* dataset = nullptr;
  const Sampler* sampler = nullptr;
  std::int64_t epoch = 0, batch = 0;
  int shard = 0;
  std::int64_t h = 0, w = 0;  ///< The network's input, in which boxes lie; 0: the stored image's size.
  ControlBlock control;
};

struct LoaderConfig {
  SlotLayout layout;
  std::array<std::byte*, 2> staging{};  ///< Pinned, layout.size_bytes each.
  int threads = 2;
  Augmentation augmentation;  ///< Applied in training only, as mixing and erasing are.
  std::uint64_t seed = 0;
  Mixing mixing{};
  double erasing = 0;  ///< Probability that a box of a sample is erased.
};

/// Job k goes to buffer k % 2. `submit` queues (at most `kQueueDepth` ahead), `wait` blocks until job k is staged,
/// `release` says when its buffer may be filled again. No allocation after construction.
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
  std::chrono::nanoseconds waited()
      const;  ///< Time spent in wait() while the job's buffer was being filled (not while it was in use).

 private:
  struct Impl;
  void stop() noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace renai
