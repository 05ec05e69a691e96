#include "renai/data/data_bench.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <exception>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>

#include "renai/base/digest.hpp"
#include "renai/data/jpeg.hpp"
#include "renai/data/loader.hpp"

namespace renai {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kSeed = 1;
constexpr std::int64_t kHeldBytes = std::int64_t{256} << 20;  ///< Of encoded images, kept in memory for decoding alone.

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// 0 where the system does not tell.
std::int64_t disk_bytes_read() {
  std::ifstream io("/proc/self/io");
  std::int64_t value = 0;
  for (std::string key; io >> key >> value;) {
    if (key == "read_bytes:") return value;
  }
  return 0;
}

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
  return sampler;
}

/// Bytes that one call of a stage's work handled.
using Work = std::function<std::int64_t(std::int64_t position)>;

/// Threads take positions one after the other until the time is over or the samples are done.
StageRate measure(const std::string& name, const DataBenchConfig& config,
                  const std::function<Work(int thread)>& make_work) {
  std::vector<Work> works;
  for (int t = 0; t < config.threads; ++t) works.push_back(make_work(t));
  std::atomic<std::int64_t> next{0}, images{0}, bytes{0};
  std::vector<std::exception_ptr> failures(works.size());
  const std::int64_t disk = disk_bytes_read();
  const double cpu = cpu_seconds();
  const auto start = Clock::now();
  const auto run = [&](std::size_t t) {
    try {
      while (config.samples > 0 || seconds_since(start) < config.seconds) {
        const std::int64_t position = next++;
        if (config.samples > 0 && position >= config.samples) return;
        bytes += works[t](position);
        ++images;
      }
    } catch (...) {
      failures[t] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < works.size(); ++t) threads.emplace_back(run, t);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  const double seconds = seconds_since(start);
  StageRate rate;
  rate.name = name;
  rate.seconds = seconds;
  rate.images_per_second = static_cast<double>(images) / seconds;
  rate.bytes_per_second = static_cast<double>(bytes) / seconds;
  rate.busy = std::min(1.0, (cpu_seconds() - cpu) / (seconds * config.threads));
  rate.disk_bytes = disk_bytes_read() - disk;
  return rate;
}

StageRate measure_reading(const Subject& subject) {
  return measure("read", subject.config, [&subject](int) {
    return [&subject, buffer = std::vector<std::byte>()](std::int64_t position) mutable {
      const std::int64_t sample = subject.sample_at(position), size = subject.dataset.stored_bytes(sample);
      buffer.resize(static_cast<std::size_t>(size));
      subject.dataset.read(sample, buffer);
      return size;
    };
  });
}

/// Some of the set's images, in memory.
std::vector<std::pair<std::int64_t, std::vector<std::byte>>> hold_images(const Subject& subject) {
  std::vector<std::pair<std::int64_t, std::vector<std::byte>>> images;
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

StageRate measure_decoding(const Subject& subject) {
  const auto images = hold_images(subject);
  const DecodeGoal goal{subject.h, subject.w, subject.layout.h, subject.layout.w};
  return measure("decode", subject.config, [&](int) {
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

/// What the host does of augmentation: drawing boxes, flips and colours; the rest is done by the input kernel.
StageRate measure_augmenting(const Subject& subject) {
  return measure("augment", subject.config, [&subject](int) {
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

/// Runs a loader over batches; `use` sees each staged buffer. Returns how many rows were staged.
std::int64_t run_loader(const Subject& subject, int threads, const std::function<bool(std::int64_t)>& more,
                        const std::function<void(std::span<const std::byte>)>& use) {
  // Zeroed, so that bytes which nobody stages are the same in every run.
  std::vector<std::byte> buffers(static_cast<std::size_t>(2 * subject.layout.size_bytes));
  LoaderConfig config;
  config.layout = subject.layout;
  config.staging = {buffers.data(), buffers.data() + subject.layout.size_bytes};
  config.threads = threads;
  config.augmentation = subject.config.augmentation;
  config.seed = kSeed;
  const Free free;
  Loader loader(config);
  const std::int64_t batches = subject.sampler.split().batches();
  const auto job_of = [&](std::int64_t k) {
    ShardJob job;
    job.dataset = &subject.dataset;
    job.sampler = &subject.sampler;
    job.epoch = k / batches;
    job.batch = k % batches;
    job.h = subject.h;
    job.w = subject.w;
    return job;
  };
  std::int64_t rows = 0, submitted = 0;
  for (std::int64_t k = 0; more(rows); ++k) {
    while (submitted < k + 3) loader.submit(job_of(submitted++));
    const auto buffer = static_cast<std::size_t>(loader.wait(k));
    rows += subject.sampler.rows(k % batches);
    use({config.staging[buffer], static_cast<std::size_t>(subject.layout.size_bytes)});
    loader.release(k, free);
  }
  return rows;
}

std::string digest_of_staged(const Subject& subject, int threads) {
  const std::int64_t rows = std::min<std::int64_t>(subject.dataset.size(), 8 * subject.config.rows);
  std::string all;
  run_loader(
      subject, threads, [rows](std::int64_t done) { return done < rows; },
      [&all](std::span<const std::byte> staged) { all += hash128(staged).hex(); });
  return hash128(all).hex();
}

StageRate measure_staging(const Subject& subject) {
  const DataBenchConfig& config = subject.config;
  const std::int64_t disk = disk_bytes_read();
  const double cpu = cpu_seconds();
  const auto start = Clock::now();
  const auto more = [&](std::int64_t rows) {
    return config.samples > 0 ? rows < config.samples : seconds_since(start) < config.seconds;
  };
  const std::int64_t rows = run_loader(subject, config.threads, more, [](std::span<const std::byte>) {});
  const double seconds = seconds_since(start);
  StageRate rate;
  rate.name = "stage";
  rate.seconds = seconds;
  rate.images_per_second = static_cast<double>(rows) / seconds;
  rate.bytes_per_second =
      rate.images_per_second * static_cast<double>(subject.layout.h * subject.layout.w * subject.layout.c);
  rate.busy = std::min(1.0, (cpu_seconds() - cpu) / (seconds * config.threads));
  rate.disk_bytes = disk_bytes_read() - disk;
  return rate;
}

/// By what was seen: threads that compute all the time are what is short; else they waited, for a disk where one was
/// read.
std::string limit_of(const StageRate& rate, double stored_bytes) {
  constexpr double kBusy = 0.8, kFromDisk = 0.1;
  const bool disk = static_cast<double>(rate.disk_bytes) > kFromDisk * stored_bytes;
  if (rate.busy >= kBusy) return rate.name == "read" ? "cores copying from memory" : "cores";
  return disk ? "disk" : "waiting (other programs, or too few threads)";
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
  const std::int64_t h = config.size > 0 ? config.size : manifest.height;
  const std::int64_t w = config.size > 0 ? config.size : manifest.width;
  const Subject subject{dataset, config, h, w, layout_of(dataset, config, h, w), Sampler(sampler_of(dataset, config))};
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
  if (dataset.encoded()) bench.stages.push_back(measure_decoding(subject));
  bench.stages.push_back(measure_augmenting(subject));
  bench.stages.push_back(measure_staging(subject));
  for (StageRate& rate : bench.stages) {
    rate.limit = limit_of(rate, rate.images_per_second * rate.seconds * static_cast<double>(bench.mean_stored_bytes));
  }
  return bench;
}

}  // namespace renai
