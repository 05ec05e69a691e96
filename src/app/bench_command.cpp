#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "number_options.hpp"
#include "renai/base/error.hpp"
#include "renai/base/text.hpp"
#include "renai/device/host.hpp"
#include "renai/io/atomic_file.hpp"
#include "renai/model/adjust.hpp"
#include "renai/model/model_spec.hpp"
#include "renai/train/step_bench.hpp"
#include "timeline_svg.hpp"

namespace renai {
namespace {

/// A directory that goes away with the value.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const std::string& name) : path_(std::filesystem::temp_directory_path() / name) {}
  ~TemporaryDirectory() {
    std::error_code ignored;
    if (owned_) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }
  void own() { owned_ = true; }

 private:
  std::filesystem::path path_;
  bool owned_ = false;
};

/// Synthetic data of `samples` samples, in a temporary directory of each host that its first rank makes and all read.
/// The same bytes everywhere: they follow from the options.
void make_data(World& world, Recipe& recipe, const BenchArguments& arguments, std::int64_t samples,
               TemporaryDirectory& place) {
  const HostTopology& topology = world.topology();
  if (topology.places.at(static_cast<std::size_t>(world.rank())).local_rank == 0) {
    place.own();
    SyntheticOptions synthetic;
    synthetic.train = samples;
    synthetic.val = 0;
    synthetic.height = synthetic.width = arguments.size;
    synthetic.channels = arguments.channels;
    synthetic.classes = arguments.classes;
    PackOptions options;
    options.out = place.path();
    options.overwrite = true;
    options.gather = [](const std::string& text) { return std::vector<std::string>{text}; };
    pack_synthetic(synthetic, options);
  }
  world.control().barrier("making synthetic data");
  recipe.data = place.path().string();
  recipe.val_data.clear();
}

/// Largest relative deviation of a parameter's update that rounding explains, in a network of fifty layers whose batch
/// norms see four values a channel at the end. Rounding to bf16 turns over one ReLU in a hundred of every layer, which
/// alone is a tenth; wrong kernels give 1 and more.
double largest_deviation(const std::string& precision) {
  if (precision == "tf32") return 5e-2;
  if (precision == "fp16" || precision == "bf16") return 5e-1;
  return 1e-2;
}

/// Image size of the proof: the reference's loops are slow. Units: pixels.
constexpr std::int64_t kProofSize = 32;

/// One small step on the reference backend and on the chosen one: the benchmark's proof. Rounding can turn over a
/// single decision (which of two values is a window's maximum, on which side of zero an activation lies), and one of
/// them moves a late layer's update by a percent. Wrong kernels deviate on every batch, so the best of a few counts.
double prove(const Recipe& recipe, const JobData& data, const Run& run) {
  constexpr int kAttempts = 3;
  Recipe small = recipe;
  small.logical_shards = small.accumulate = 1;
  small.sync_bn = false;  // On one rank.
  small.global_batch = 4;
  // Near their shortcuts residual blocks pass differences of rounding on; at their first weights fifty layers enlarge
  // them a thousand times, until nothing can be compared.
  small.zero_gamma = ends_blocks_in_norms(load_model(recipe.model));
  // The proof is of the gradients: Adam's first step is their sign, which rounding decides where they are small, and a
  // frozen layer shows nothing.
  small.optimizer = "sgd";
  small.freeze_until.clear();
  small.freeze_after.clear();
  if (data.shape.h > kProofSize) small.resolution = std::to_string(kProofSize);
  const double limit = largest_deviation(recipe.precision);
  const auto control = make_self_control_group();
  const auto communicator = make_self_communicator();
  const auto device = make_host_device();
  const auto reference = make_reference_backend();
  double best = std::numeric_limits<double>::infinity();
  for (int attempt = 0; attempt < kAttempts && !(best <= limit); ++attempt, ++small.seed) {
    const double deviation = compare_one_step(small, data.shape, *data.train,
                                              Run{device.get(), reference.get(), communicator.get(), control.get()},
                                              Run{run.device, run.backend, communicator.get(), control.get()});
    if (!(deviation >= best)) best = deviation;
    if (!std::isfinite(deviation)) return deviation;
  }
  return best;
}

void print_result(const Recipe& recipe, const Run& run, const StepBenchResult& result, double deviation, bool json) {
  nlohmann::ordered_json object{
      {"model", recipe.model},
      {"backend", run.backend->name()},
      {"library", run.backend->library()},
      {"device", run.device->info().model},
      {"precision", recipe.precision},
      {"world_size", run.control->world_size()},
      {"threads", recipe.threads},
      {"global_batch", recipe.global_batch},
      {"logical_shards", recipe.logical_shards},
      {"shard_batch", recipe.global_batch / recipe.logical_shards},
      {"micro_batch", recipe.global_batch / recipe.logical_shards / recipe.accumulate},
      {"steps", result.steps},
      {"step_ms_median", result.step_ms_median},
      {"images_per_second", result.images_per_second},
      {"deviation_from_reference", deviation < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(deviation)},
      {"transfer_overlap", result.transfer_overlap},
      {"step_allocations", result.step_allocations},
      {"step_synchronizations", result.step_synchronizations},
      {"arena_bytes", result.arena_bytes}};
  if (json) {
    std::printf("%s\n", object.dump().c_str());
    return;
  }
  for (const auto& [key, value] : object.items()) {
    std::printf("%-26s %s\n", key.c_str(), value.is_string() ? value.get<std::string>().c_str() : value.dump().c_str());
  }
}

void print_timeline(const StepBenchResult& result) {
  std::printf("%-24s %-9s %12s %12s\n", "graph", "stream", "start (us)", "end (us)");
  for (const TimelineSpan& span : result.timeline) {
    std::printf("%-24s %-9s %12.1f %12.1f\n", span.graph.c_str(), span.stream.c_str(), span.start_us, span.end_us);
  }
}

}  // namespace

int command_bench_step(World& world, Recipe recipe, const BenchArguments& arguments) {
  verify(recipe);
  verify_ranks(recipe, world.world_size());
  compare_fingerprints(world.control(), recipe_fingerprint(recipe, ""));
  require_number(arguments.steps >= 1, "--steps", arguments.steps, "use 1 or more");
  require_number(arguments.warmup >= 0, "--warmup", arguments.warmup, "use 0 or more");
  require_number(arguments.size >= 1, "--image-size", arguments.size, "use 1 or more");
  require_number(arguments.channels >= 1 && arguments.channels <= 4, "--channels", arguments.channels, "use 1 to 4");
  require_number(arguments.classes >= 2, "--classes", arguments.classes, "use 2 or more");
  const std::string name =
      world.control().broadcast("renai-bench-" + std::to_string(::getpid()), 0, "naming the synthetic data");
  TemporaryDirectory place(name);
  const Run run = world.choose(recipe);
  make_data(world, recipe, arguments, recipe.global_batch * 4, place);
  const JobData data = open_data(recipe, true);
  compare_fingerprints(world.control(), recipe_fingerprint(recipe, data.digest));
  const double deviation = arguments.skip_proof ? -1.0 : prove(recipe, data, run);
  if (!(deviation <= largest_deviation(recipe.precision))) {
    throw BackendError("renai bench step",
                       "one step deviates from the reference backend by " + std::to_string(deviation),
                       "the kernels are wrong on this machine; please report it");
  }
  const StepBenchResult result = bench_steps(recipe, data.shape, *data.train, run, arguments.warmup, arguments.steps);
  world.control().barrier("the end of the benchmark");
  if (world.rank() == 0) {
    print_result(recipe, run, result, deviation, arguments.json);
    if (arguments.timeline && !arguments.json) print_timeline(result);
    if (!arguments.picture.empty()) {
      const std::string svg = timeline_svg(
          result.timeline, recipe.model + ", " + recipe.precision + ", batch " + std::to_string(recipe.global_batch));
      replace_text(arguments.picture, svg);
    }
  }
  return 0;
}

}  // namespace renai
