// Run by hand: jpeg_stages FOLDER [SIZE [SAMPLES [AUGMENT]]] prints images a second of one thread for each stage of
// loading a set of JPEG images, beside a bare loop of libjpeg-turbo.

#include <cstdio>
#include <cstdlib>

#include "renai/data/stage_bench.hpp"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s FOLDER [SIZE [SAMPLES [AUGMENT]]]\n", argv[0]);
    return 2;
  }
  const std::int64_t size = argc > 2 ? std::atoll(argv[2]) : 224, samples = argc > 3 ? std::atoll(argv[3]) : 1000;
  try {
    const renai::Dataset dataset = renai::Dataset::open(argv[1], "train");
    const auto augmentation = renai::Augmentation::parse(argc > 4 ? argv[4] : "resized-crop,flip,colour");
    renai::time_stages(dataset, augmentation, size, samples / 10 + 1);  // Fills caches.
    const renai::StageTimes times = renai::time_stages(dataset, augmentation, size, samples);
    const auto rate = [&times](double seconds) { return static_cast<double>(times.samples) / seconds; };
    std::printf("%lld images of %lld bytes on average, staged with %lld pixels, network input %lld\n",
                static_cast<long long>(times.samples), static_cast<long long>(times.stored_bytes / times.samples),
                static_cast<long long>(times.staged_pixels / times.samples), static_cast<long long>(size));
    std::printf("read               %10.0f images/s\n", rate(times.read_seconds));
    std::printf("decode as trained  %10.0f images/s\n", rate(times.decode_seconds));
    if (times.colour_seconds > 0) std::printf("colours            %10.0f images/s\n", rate(times.colour_seconds));
    std::printf("all of these       %10.0f images/s\n",
                rate(times.read_seconds + times.decode_seconds + times.colour_seconds));
    std::printf("decode whole       %10.0f images/s\n", rate(times.whole_seconds));
    std::printf("libjpeg-turbo      %10.0f images/s at the same scale: %.3fx\n", rate(times.bare_seconds),
                times.bare_seconds / times.whole_seconds);
    std::printf("libjpeg-turbo      %10.0f images/s at full size\n", rate(times.bare_full_seconds));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
