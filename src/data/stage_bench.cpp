#include "renai/data/stage_bench.hpp"

#include <algorithm>
#include <ctime>
#include <vector>

#include "bare_decoder.hpp"
#include "renai/base/error.hpp"
#include "renai/data/jpeg.hpp"
#include "renai/data/loader.hpp"

namespace renai {
namespace {

/// Of this thread, or of the wall: computing is told apart from what other programs take, waiting for a disk is not.
double seconds_now(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Adds the time from its making to its end to a sum.
class Stopwatch {
 public:
  explicit Stopwatch(double* seconds, clockid_t clock = CLOCK_THREAD_CPUTIME_ID)
      : seconds_(seconds), clock_(clock), start_(seconds_now(clock)) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() { *seconds_ += seconds_now(clock_) - start_; }

 private:
  double* seconds_;
  clockid_t clock_;
  double start_;
};

}  // namespace

StageTimes time_stages(const Dataset& dataset, const Augmentation& augmentation, std::int64_t size,
                       std::int64_t samples) {
  if (!dataset.encoded()) {
    throw UserError("timing the stages of data set " + dataset.directory().string(), "its images are pixels already",
                    "give a set of JPEG images");
  }
  const std::int64_t extent = staged_extent(size), row_bytes = 3 * extent;
  const DecodeGoal goal{size, size, extent, extent};
  JpegDecoder decoder;
  BareDecoder bare;
  std::vector<std::byte> bytes, whole_pixels, pixels(static_cast<std::size_t>(extent * row_bytes));
  StageTimes times;
  for (; times.samples < samples; ++times.samples) {
    const std::int64_t sample = times.samples % dataset.size();
    bytes.resize(static_cast<std::size_t>(dataset.stored_bytes(sample)));
    times.stored_bytes += dataset.stored_bytes(sample);
    {
      const Stopwatch watch(&times.read_seconds, CLOCK_MONOTONIC);
      dataset.read(sample, bytes);
    }
    try {
      SampleParams params;
      ImageSize image, region;
      {
        const Stopwatch watch(&times.decode_seconds);
        image = decoder.open(bytes);
        params = draw_params(augmentation, image.h, image.w, 1, times.samples / dataset.size(), sample);
        region = decoder.decode({params.crop_y, params.crop_x, params.crop_h, params.crop_w}, goal, pixels.data(),
                                row_bytes);
      }
      times.staged_pixels += region.h * region.w;
      if (augmentation.colour > 0.0) {
        const Stopwatch watch(&times.colour_seconds);
        const double grey = mean_grey(reinterpret_cast<const std::uint8_t*>(pixels.data()), region.h, region.w,
                                      row_bytes, {0, 0, region.h, region.w});
        apply_colour(draw_colour(augmentation, 1, 0, sample), grey, params);
      }
      // Room for all of it: decoding is compared, not the averaging of what has no room.
      const PixelBox whole{0, 0, image.h, image.w};
      const DecodeGoal all{size, size, image.h, image.w};
      whole_pixels.resize(std::max(whole_pixels.size(), static_cast<std::size_t>(3 * image.h * image.w)));
      {
        const Stopwatch watch(&times.whole_seconds);
        decoder.open(bytes);
        decoder.decode(whole, all, whole_pixels.data(), 3 * image.w);
      }
      {
        const Stopwatch watch(&times.bare_seconds);
        bare.decode(bytes, [&](const ImageSize&) { return choose_scale(image, whole, all).eighths; });
      }
      const Stopwatch watch(&times.bare_full_seconds);
      bare.decode(bytes, [](const ImageSize&) { return 8; });
    } catch (const JpegError& error) {
      dataset.fail_sample(sample, std::string("its JPEG image cannot be decoded: ") + error.what());
    }
  }
  return times;
}

}  // namespace renai
