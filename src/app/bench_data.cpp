// renai bench data: what the input can do, and whether that is enough.
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>

#include "commands.hpp"
#include "gpus.hpp"
#include "number_options.hpp"
#include "renai/base/error.hpp"
#include "renai/base/memory.hpp"
#include "renai/base/text.hpp"
#include "renai/data/copy_bench.hpp"
#include "renai/data/data_bench.hpp"
#include "renai/data/page_cache.hpp"
#include "renai/device/cuda.hpp"
#include "renai/device/host.hpp"
#include "renai/tensor/slot_layout.hpp"

namespace renai {
namespace {

int own_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? std::max(1, CPU_COUNT(&cores)) : 1;
}

Dataset open_set(const DataBenchArguments& arguments) {
  const ReadMode asked = parse_read_mode(arguments.read_mode);
  std::error_code error;
  const bool folder = std::filesystem::is_directory(arguments.data, error);  // Opening says what is wrong.
  const std::int64_t bytes =
      folder ? stored_file_bytes(arguments.data, load_manifest(arguments.data), arguments.split) : 0;
  std::string warning;
  Dataset dataset = open_as(asked, bytes, cacheable_memory_bytes(), warning, [&arguments](ReadMode mode) {
    return Dataset::open(arguments.data, arguments.split, mode);
  });
  if (!warning.empty()) std::fprintf(stderr, "renai: warning: %s\n", warning.c_str());
  return dataset;
}

/// Of so many times what one thread does.
double share_of_linear(const std::vector<ScalingPoint>& points, std::size_t point, std::size_t stage) {
  return points[point].rates[stage].images_per_second /
         (points[point].threads * points.front().rates[stage].images_per_second);
}

nlohmann::ordered_json to_json(const std::vector<ScalingPoint>& points) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < points.size(); ++i) {
    nlohmann::ordered_json one{{"threads", points[i].threads}};
    for (std::size_t stage = 0; stage < points[i].rates.size(); ++stage) {
      const StageRate& rate = points[i].rates[stage];
      one[rate.name] = {{"per_second", rate.images_per_second}, {"of_linear", share_of_linear(points, i, stage)}};
    }
    all.push_back(one);
  }
  return all;
}

void print(const std::vector<ScalingPoint>& points) {
  std::printf("by threads, and of so many times one thread; what the machine gives to threads that share nothing: ");
  std::printf("%s\n", points.front().rates.size() > 3 ? "libjpeg-turbo alone, arithmetic in registers"
                                                      : "arithmetic in registers");
  std::printf("%-8s", "threads");
  for (const StageRate& rate : points.front().rates) std::printf(" %18s", (rate.name + "/s").c_str());
  std::printf("\n");
  for (std::size_t i = 0; i < points.size(); ++i) {
    std::printf("%-8d", points[i].threads);
    for (std::size_t stage = 0; stage < points[i].rates.size(); ++stage) {
      std::printf(" %10.0f (%.3f)", points[i].rates[stage].images_per_second, share_of_linear(points, i, stage));
    }
    std::printf("\n");
  }
}

nlohmann::ordered_json to_json(const DataBench& bench, const DataBenchArguments& arguments, const Dataset& dataset,
                               const std::string& device) {
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  for (const StageRate& stage : bench.stages) {
    stages.push_back({{"stage", stage.name},
                      {"images", stage.images},
                      {"images_per_second", stage.images_per_second},
                      {"bytes_per_second", stage.bytes_per_second},
                      {"busy", stage.busy},
                      {"disk_bytes", stage.disk_bytes},
                      {"reads", stage.reads},
                      {"page_faults", stage.page_faults},
                      {"limit", stage.limit}});
  }
  nlohmann::ordered_json json{{"data", arguments.data},
                              {"encoding", bench.encoding},
                              {"threads", bench.threads},
                              {"device", device},
                              {"shuffle", arguments.shuffle},
                              {"read_mode", dataset.reads_direct() ? "direct" : "cached"},
                              {"staged", {bench.height, bench.width, bench.channels}},
                              {"mean_stored_bytes", bench.mean_stored_bytes},
                              {"same_pixels", bench.same_pixels},
                              {"digest", bench.digest},
                              {"stages", stages},
                              {"images_per_second", bench.images_per_second()}};
  if (arguments.need > 0) {
    json["need"] = arguments.need;
    json["enough"] = bench.images_per_second() >= arguments.need;
  }
  return json;
}

void print(const DataBench& bench, const DataBenchArguments& arguments, const std::string& device) {
  std::printf("%s: %s images of %s, staged as up to %lldx%lldx%lld, %d threads\n", arguments.data.c_str(),
              bench.encoding.c_str(), format_bytes(bench.mean_stored_bytes).c_str(),
              static_cast<long long>(bench.height), static_cast<long long>(bench.width),
              static_cast<long long>(bench.channels), bench.threads);
  std::printf("1 thread and %d threads stage the same bytes: %s\n", std::max(3, bench.threads), bench.digest.c_str());
  std::printf("%-8s %12s %14s %6s %8s %8s  %s\n", "stage", "images/s", "bytes/s", "busy", "reads", "faults", "limit");
  for (const StageRate& stage : bench.stages) {
    const double images = static_cast<double>(std::max<std::int64_t>(stage.images, 1));
    std::printf("%-8s %12.0f %14s %5.0f%% %8.2f %8.2f  %s\n", stage.name.c_str(), stage.images_per_second,
                (format_bytes(static_cast<std::int64_t>(stage.bytes_per_second)) + "/s").c_str(), 100 * stage.busy,
                static_cast<double>(stage.reads) / images, static_cast<double>(stage.page_faults) / images,
                stage.limit.c_str());
  }
  std::printf("copied into: %s\n", device.c_str());
  std::printf("reads and faults (pages of memory touched first): of an image\n");
  if (arguments.need <= 0) return;
  const double share = bench.images_per_second() / arguments.need;
  std::printf("training needs %.0f images/s: %s (%.2fx)\n", arguments.need, share >= 1 ? "enough" : "too few", share);
}

/// The device that images are copied into, as training chooses it on one rank.
std::unique_ptr<Device> choose_device(const std::string& name) {
  if (name == "cpu") return make_host_device();
  const CudaGpus gpus = find_cuda_gpus();
  if (gpus.gpus.empty()) {
    if (name == "auto") return make_host_device();
    throw BackendError("--device cuda", gpus.reason, "use --device cpu, or a machine with a GPU and its driver");
  }
  CudaDeviceOptions options;
  options.ordinal = choose_gpu(gpus, 0).ordinal;
  return make_cuda_device(options);
}

void verify(const DataBenchArguments& arguments) {
  constexpr double kMostSeconds = 1e6;
  require_number(arguments.threads >= 0 && arguments.threads <= 1024, "--threads", arguments.threads,
                 "use 1 to 1024, or leave it out: the cores");
  require_number(arguments.size >= 0 && arguments.size <= 16384, "--size", arguments.size,
                 "use 1 to 16384, or leave it out: the set's size");
  require_number(arguments.images >= 0, "--images", arguments.images, "use 1 or more, or leave it out");
  require_number(arguments.seconds > 0 && arguments.seconds <= kMostSeconds, "--seconds", arguments.seconds,
                 "use more than 0 and at most 1e6");
  require_number(arguments.need >= 0 && std::isfinite(arguments.need), "--need", arguments.need,
                 "use images/s from 0 on");
}

}  // namespace

int command_bench_data(const DataBenchArguments& arguments) {
  verify(arguments);
  const Dataset dataset = open_set(arguments);
  DataBenchConfig config;
  const bool colours = dataset.manifest().channels == 3;
  const std::string usual = dataset.encoded() ? "resized-crop,flip" : colours ? "crop4,flip" : "crop4";
  config.augmentation = Augmentation::parse(arguments.augment.empty() ? usual : arguments.augment);
  config.size = arguments.size;
  config.samples = arguments.images;
  config.seconds = arguments.seconds;
  config.threads = arguments.threads > 0 ? arguments.threads : own_cores();
  const std::unique_ptr<Device> device = choose_device(arguments.device);
  config.shuffle = parse_shuffle(arguments.shuffle);
  for (const ShardInfo& shard : dataset.manifest().find(arguments.split)->shards)
    config.blocks.push_back(shard.samples);
  DataBench bench = bench_data(dataset, config);
  if (!bench.same_pixels) {
    throw InternalError("renai bench data", "one thread and several stage different bytes",
                        "please report this with the command line");
  }
  const SlotLayout slot = SlotLayout::make(config.rows, bench.height, bench.width, bench.channels);
  bench.stages.push_back(bench_copy(*device, slot.size_bytes, config.rows, std::min(config.seconds, 1.0)));
  const std::string model = device->info().model;
  std::vector<ScalingPoint> scaling;
  if (arguments.scaling) scaling = bench_scaling(dataset, config);
  if (arguments.json) {
    nlohmann::ordered_json json = to_json(bench, arguments, dataset, model);
    if (arguments.scaling) json["scaling"] = to_json(scaling);
    std::printf("%s\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  } else {
    print(bench, arguments, model);
    if (arguments.scaling) print(scaling);
  }
  return 0;
}

}  // namespace renai
