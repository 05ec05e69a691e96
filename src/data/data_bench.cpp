#include "renai/data/data_bench.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "bare_decoder.hpp"
#include "jpeg_scale.hpp"
#include "renai/base/digest.hpp"
#include "renai/data/jpeg.hpp"
#include "renai/data/loader.hpp"
#include "stage_meter.hpp"

namespace renai {
namespace {

constexpr std::uint64_t kSeed = 1;
constexpr std::int64_t kHeldBytes = std::int64_t{256} << 20;  ///< Of encoded images, kept in memory for decoding alone.

/// The buffers of a loader are free at once: nothing is copied out of them.
class Free final : public Event {
 public:
  bool ready() const override { return true; }
  bool wait_host(std::chrono::milliseconds) const override { return true; }
  bool wait_background(std::chrono::milliseconds) const override { return true; }
  double microseconds_since(const Event&) const override { return 0; }
};

/// What is measured: everything that the stages share.
struct Subject {
  const Dataset& dataset;
  const DataBenchConfig& config;
  std::int64_t h = 0, w = 0;  ///< The network's input.
  SlotLayout layout;
  Sampler sampler;

  std::int64_t sample_at(std::int64_t position) const {
    const std::int64_t n = dataset.size();
    return static_cast<std::int64_t>(permute(static_cast<std::uint64_t>(position % n), static_cast<std::uint64_t>(n),
                                             kSeed, static_cast<std::uint64_t>(position / n)));
  }
};

SlotLayout layout_of(const Dataset& dataset, const DataBenchConfig& config, std::int64_t h, std::int64_t w) {
  const Manifest& manifest = dataset.manifest();
  if (dataset.encoded()) return SlotLayout::make(config.rows, staged_extent(h), staged_extent(w), 3);
  return SlotLayout::make(config.rows, manifest.height, manifest.width, manifest.channels);
}

SamplerConfig sampler_of(const Dataset& dataset, const DataBenchConfig& config) {
  SamplerConfig sampler;
  sampler.samples = dataset.size();
  sampler.global_batch = std::min(config.rows, dataset.size());
  sampler.logical_shards = 1;
  sampler.seed = kSeed;
  sampler.shuffle = config.shuffle;
  sampler.blocks = config.blocks;
  return sampler;
}

Subject subject_of(const Dataset& dataset, const DataBenchConfig& config) {
  const Manifest& manifest = dataset.manifest();
  const std::int64_t h = config.size > 0 ? config.size : manifest.height;
  const std::int64_t w = config.size > 0 ? config.size : manifest.width;
  return {dataset, config, h, w, layout_of(dataset, config, h, w), Sampler(sampler_of(dataset, config))};
}

StageRate measure_reading(const Subject& subject) {
  StageRate rate = measure_stage("read", subject.config, [&subject](int) {
    return [&subject, buffer = std::vector<std::byte>()](std::int64_t position) mutable {
      const std::int64_t sample = subject.sample_at(position), size = subject.dataset.stored_bytes(sample);
      if (static_cast<std::int64_t>(buffer.size()) < size) buffer.resize(static_cast<std::size_t>(size));
      subject.dataset.read(sample, std::span(buffer).first(static_cast<std::size_t>(size)));
      return size;
    };
  });
  rate.reads = rate.images;
  return rate;
}

/// Some of the set's images, in memory.
using HeldImages = std::vector<std::pair<std::int64_t, std::vector<std::byte>>>;

HeldImages hold_images(const Subject& subject) {
  HeldImages images;
  std::int64_t held = 0;
  for (std::int64_t i = 0; i < subject.dataset.size() && held < kHeldBytes; ++i) {
    const std::int64_t sample = subject.sample_at(i);
    std::vector<std::byte> bytes(static_cast<std::size_t>(subject.dataset.stored_bytes(sample)));
    subject.dataset.read(sample, bytes);
    held += static_cast<std::int64_t>(bytes.size());
    images.emplace_back(sample, std::move(bytes));
  }
  return images;
}

StageRate measure_decoding(const Subject& subject, const HeldImages& images) {
  const DecodeGoal goal{subject.h, subject.w, subject.layout.h, subject.layout.w};
  return measure_stage("decode", subject.config, [&](int) {
    auto decoder = std::make_shared<JpegDecoder>();
    const std::int64_t row_bytes = 3 * subject.layout.w;
    auto pixels = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(subject.layout.h * row_bytes));
    return [&, decoder, pixels, row_bytes](std::int64_t position) {
      const auto& [sample, bytes] = images[static_cast<std::size_t>(position) % images.size()];
      try {
        const ImageSize size = decoder->open(bytes);
        const SampleParams params =
            draw_params(subject.config.augmentation, size.h, size.w, kSeed, position / subject.dataset.size(), sample);
        const ImageSize region = decoder->decode({params.crop_y, params.crop_x, params.crop_h, params.crop_w}, goal,
                                                 pixels->data(), row_bytes);
        return 3 * region.h * region.w;
      } catch (const JpegError& error) {
        subject.dataset.fail_sample(sample, std::string("its JPEG image cannot be decoded: ") + error.what());
      }
    };
  });
}

/// What the machine gives to threads that share nothing: libjpeg-turbo alone on whole images, at the scale that fits
/// them.
StageRate measure_bare_decoding(const Subject& subject, const HeldImages& images) {
  return measure_stage("libjpeg", subject.config, [&](int) {
    auto decoder = std::make_shared<BareDecoder>();
    return [&, decoder](std::int64_t position) {
      const auto& [sample, bytes] = images[static_cast<std::size_t>(position) % images.size()];
      return decoder->decode(bytes, [&subject](const ImageSize& size) {
        return choose_scale(size, {0, 0, size.h, size.w}, {subject.h, subject.w, size.h, size.w}).eighths;
      });
    };
  });
}

/// As above, in registers: a xorshift of 64 bits, whose speed is the clock's.
StageRate measure_arithmetic(const DataBenchConfig& config) {
  return measure_stage("registers", config, [](int thread) {
    return [state = static_cast<std::uint64_t>(thread) + 1](std::int64_t) mutable {
      constexpr int kRounds = 20000;
      for (int i = 0; i < kRounds; ++i) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
      }
      return static_cast<std::int64_t>(state & 7);  // So that it is computed.
    };
  });
}

/// What the host does of augmentation: drawing boxes, flips and colours; the rest is done by the input kernel.
StageRate measure_augmenting(const Subject& subject) {
  return measure_stage("augment", subject.config, [&subject](int) {
    const std::int64_t row_bytes = subject.layout.w * subject.layout.c;
    std::vector<std::byte> pixels(static_cast<std::size_t>(subject.layout.h * row_bytes), std::byte{99});
    return [&subject, row_bytes, pixels = std::move(pixels)](std::int64_t position) {
      const SlotLayout& layout = subject.layout;
      const Augmentation& augmentation = subject.config.augmentation;
      const std::int64_t sample = subject.sample_at(position), epoch = position / subject.dataset.size();
      SampleParams params = draw_params(augmentation, layout.h, layout.w, kSeed, epoch, sample);
      if (augmentation.colour > 0) {
        const double grey = mean_grey(reinterpret_cast<const std::uint8_t*>(pixels.data()), layout.h, layout.w,
                                      row_bytes, {params.crop_y, params.crop_x, params.crop_h, params.crop_w});
        apply_colour(draw_colour(augmentation, kSeed, epoch, sample), grey, params);
      }
      return static_cast<std::int64_t>(sizeof(params));
    };
  });
}

/// Batches that hold so many rows.
std::int64_t batches_of(const Subject& subject, std::int64_t rows) {
  std::int64_t batches = 0;
  for (const std::int64_t in_epoch = subject.sampler.split().batches(); rows > 0; ++batches) {
    rows -= subject.sampler.rows(batches % in_epoch);
  }
  return batches;
}

/// Runs a loader over so many batches, or while there is `more`; `use` sees each staged buffer. Taking memory and
/// starting threads is not measured: a training does that once.
StageRate run_loader(const Subject& subject, int threads, std::int64_t batches,
                     const std::function<bool(const StageMeter&)>& more,
                     const std::function<void(std::span<const std::byte>)>& use) {
  // Zeroed, so that bytes which nobody stages are the same in every run.
  std::vector<std::byte> buffers(static_cast<std::size_t>(2 * subject.layout.size_bytes));
  LoaderConfig config;
  config.layout = subject.layout;
  config.staging = {buffers.data(), buffers.data() + subject.layout.size_bytes};
  config.threads = threads;
  config.threads_option = kBenchThreadsOption;
  config.augmentation = subject.config.augmentation;
  config.seed = kSeed;
  const Free free;
  Loader loader(config);
  const std::int64_t in_epoch = subject.sampler.split().batches();
  const auto job_of = [&](std::int64_t k) {
    ShardJob job;
    job.dataset = &subject.dataset;
    job.sampler = &subject.sampler;
    job.epoch = k / in_epoch;
    job.batch = k % in_epoch;
    job.h = subject.h;
    job.w = subject.w;
    return job;
  };
  const StageMeter meter;
  std::int64_t rows = 0, submitted = 0;
  for (std::int64_t k = 0; k < batches && more(meter); ++k) {
    while (submitted < std::min(k + 3, batches)) loader.submit(job_of(submitted++));
    const auto buffer = static_cast<std::size_t>(loader.wait(k));
    rows += subject.sampler.rows(k % in_epoch);
    use({config.staging[buffer], static_cast<std::size_t>(subject.layout.size_bytes)});
    loader.release(k, free);
  }
  const SlotLayout& layout = subject.layout;
  StageRate rate = meter.rate("stage", rows, rows * layout.h * layout.w * layout.c, threads);
  // The loader may have begun with batches beyond those waited for.
  const ReadCounts counts = loader.counts();
  const double share = static_cast<double>(rows) / static_cast<double>(std::max<std::int64_t>(counts.samples, 1));
  rate.reads = std::llround(static_cast<double>(counts.reads) * share);
  return rate;
}

std::string digest_of_staged(const Subject& subject, int threads) {
  const std::int64_t rows = std::min<std::int64_t>(subject.dataset.size(), 8 * subject.config.rows);
  std::string all;
  run_loader(
      subject, threads, batches_of(subject, rows), [](const StageMeter&) { return true; },
      [&all](std::span<const std::byte> staged) { all += hash128(staged).hex(); });
  return hash128(all).hex();
}

StageRate measure_staging(const Subject& subject) {
  const DataBenchConfig& config = subject.config;
  const std::int64_t batches =
      config.samples > 0 ? batches_of(subject, config.samples) : std::numeric_limits<std::int64_t>::max() - 3;
  const auto more = [&](const StageMeter& meter) { return config.samples > 0 || meter.seconds() < config.seconds; };
  return run_loader(subject, config.threads, batches, more, [](std::span<const std::byte>) {});
}

/// By what was seen: threads that compute all the time are what is short; else they waited, for a disk where one was
/// read.
std::string limit_of(const StageRate& rate, double stored_bytes) {
  constexpr double kBusy = 0.8, kFromDisk = 0.1;
  const bool disk = static_cast<double>(rate.disk_bytes) > kFromDisk * stored_bytes;
  if (rate.busy >= kBusy) return rate.name == "read" ? "cores copying from memory" : "cores";
  return disk ? "disk" : "waiting (other programs, or too few threads)";
}

/// The bare loop ends the program on damage: each image that it sees has been decoded once.
void check_decoding(const Dataset& dataset, const HeldImages& images) {
  JpegDecoder decoder;
  std::vector<std::byte> pixels;
  for (const auto& [sample, bytes] : images) {
    try {
      const ImageSize size = decoder.open(bytes);
      pixels.resize(std::max(pixels.size(), static_cast<std::size_t>(3 * size.h * size.w)));
      decoder.decode({0, 0, size.h, size.w}, {size.h, size.w, size.h, size.w}, pixels.data(), 3 * size.w);
    } catch (const JpegError& error) {
      dataset.fail_sample(sample, std::string("its JPEG image cannot be decoded: ") + error.what());
    }
  }
}

std::vector<StageRate> measure_all(const Subject& subject, const HeldImages& images) {
  std::vector<StageRate> rates;
  rates.push_back(subject.dataset.encoded() ? measure_decoding(subject, images) : measure_reading(subject));
  rates.push_back(measure_staging(subject));
  if (subject.dataset.encoded()) rates.push_back(measure_bare_decoding(subject, images));
  rates.push_back(measure_arithmetic(subject.config));
  return rates;
}

}  // namespace

double DataBench::images_per_second() const {
  double least = 0;
  for (const StageRate& stage : stages) {
    if (stage.name != "stage" && stage.name != "copy") continue;
    if (least == 0 || stage.images_per_second < least) least = stage.images_per_second;
  }
  return least;
}

DataBench bench_data(const Dataset& dataset, const DataBenchConfig& config) {
  const Manifest& manifest = dataset.manifest();
  verify_augmentation(config.augmentation, manifest);
  const Subject subject = subject_of(dataset, config);
  DataBench bench;
  bench.encoding = manifest.encoding;
  bench.height = subject.layout.h;
  bench.width = subject.layout.w;
  bench.channels = subject.layout.c;
  bench.threads = config.threads;
  bench.digest = digest_of_staged(subject, 1);
  bench.same_pixels = bench.digest == digest_of_staged(subject, std::max(3, config.threads));
  bench.stages.push_back(measure_reading(subject));
  const StageRate& read = bench.stages.front();
  bench.mean_stored_bytes = std::llround(read.bytes_per_second / std::max(read.images_per_second, 1e-9));
  if (dataset.encoded()) bench.stages.push_back(measure_decoding(subject, hold_images(subject)));
  bench.stages.push_back(measure_augmenting(subject));
  bench.stages.push_back(measure_staging(subject));
  for (StageRate& rate : bench.stages) {
    rate.limit = limit_of(rate, rate.images_per_second * rate.seconds * static_cast<double>(bench.mean_stored_bytes));
  }
  return bench;
}

std::vector<ScalingPoint> bench_scaling(const Dataset& dataset, const DataBenchConfig& config) {
  constexpr int kRounds = 5;
  verify_augmentation(config.augmentation, dataset.manifest());
  HeldImages images;
  if (dataset.encoded()) {
    images = hold_images(subject_of(dataset, config));
    check_decoding(dataset, images);
  }
  std::vector<ScalingPoint> points;
  for (int threads = 1; threads < config.threads; threads *= 2) points.push_back({threads, {}});
  points.push_back({config.threads, {}});
  std::vector<std::vector<std::vector<StageRate>>> found(points.size());  // By point, stage and round.
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < points.size(); ++i) {
      DataBenchConfig own = config;
      own.threads = points[i].threads;
      own.seconds = config.seconds / kRounds;
      const std::vector<StageRate> rates = measure_all(subject_of(dataset, own), images);
      found[i].resize(rates.size());
      for (std::size_t stage = 0; stage < rates.size(); ++stage) found[i][stage].push_back(rates[stage]);
    }
  }
  for (std::size_t i = 0; i < points.size(); ++i) {
    for (std::vector<StageRate>& rounds : found[i]) {
      const auto middle = rounds.begin() + kRounds / 2;
      std::nth_element(rounds.begin(), middle, rounds.end(), [](const StageRate& a, const StageRate& b) {
        return a.images_per_second < b.images_per_second;
      });
      points[i].rates.push_back(*middle);
    }
  }
  return points;
}

}  // namespace renai
