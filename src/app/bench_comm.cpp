// renai bench comm: reductions between ranks over sizes, recorded and replayed; proved against the tree on the host
// first.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "number_options.hpp"
#include "renai/base/check.hpp"
#include "renai/base/error.hpp"
#include "renai/base/text.hpp"
#include "renai/comm/communicator.hpp"
#include "renai/plan/graph_atlas.hpp"

namespace renai {
namespace {

constexpr std::int64_t kHostMostBytes = std::int64_t{64} << 20, kGpuMostBytes = std::int64_t{1} << 30;
/// Elements at either end of the vector that are compared with the host's sum.
constexpr std::int64_t kProvedElems = 1 << 16;
constexpr double kWindowUs = 20e3;
constexpr int kWindows = 5, kFewestRounds = 3, kMostRounds = 200;

/// A value whose sum depends on the order: magnitudes over six decades, both signs.
float value_of(int rank, std::int64_t i) {
  auto bits = static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15ULL +
              static_cast<std::uint64_t>(rank + 1) * 0xD1B54A32D192ED03ULL;
  bits ^= bits >> 31;
  bits *= 0xBF58476D1CE4E5B9ULL;
  bits ^= bits >> 29;
  const double fraction = static_cast<double>(bits >> 40) / static_cast<double>(1 << 24) - 0.5;
  return static_cast<float>(std::ldexp(fraction, static_cast<int>(bits % 20)));
}

struct Row {
  std::string algorithm;
  std::int64_t size_bytes = 0;
  double recorded_us = 0, direct_us = 0;
};

/// One size and communicator on this rank's device.
class Measurement {
 public:
  Measurement(World& world, Device& device, Stream& stream, Communicator& communicator, Buffer& values,
              std::int64_t size_bytes)
      : world_(&world),
        device_(&device),
        stream_(&stream),
        communicator_(&communicator),
        values_(&values),
        elems_(size_bytes / 4),
        scratch_(device.allocate(communicator.tree_reduce_scratch_bytes(elems_))) {}

  Row run(const std::string& algorithm, bool exact) {
    Row row{algorithm, 4 * elems_};
    reduce();  // The first exchange makes connections, which cannot be recorded.
    stream_->synchronize();
    stream_->begin_capture();
    reduce();
    const auto graph = stream_->end_capture();
    prove(*graph, exact);
    stream_->zero(values_->data(), 4 * elems_);
    row.recorded_us = time([&] { stream_->launch(*graph); });
    row.direct_us = time([this] { reduce(); });
    return row;
  }

 private:
  float* data() const { return reinterpret_cast<float*>(values_->data()); }
  void reduce() { communicator_->tree_reduce(data(), elems_, scratch_.data(), *stream_, "measuring a reduction"); }

  /// Replays the graph on fresh values. Errors: BackendError when the sum is wrong.
  void prove(RecordedGraph& graph, bool exact) {
    std::vector<float> own(static_cast<std::size_t>(elems_));
    for (std::int64_t i = 0; i < elems_; ++i) own[static_cast<std::size_t>(i)] = value_of(world_->rank(), i);
    stream_->copy(values_->data(), reinterpret_cast<const std::byte*>(own.data()), 4 * elems_);
    stream_->synchronize();
    world_->control().barrier("before a proved reduction");
    stream_->launch(graph);
    // The copy goes to memory that is not page-locked: it would wait without looking at the other ranks.
    stream_->synchronize();
    stream_->copy(reinterpret_cast<std::byte*>(own.data()), values_->data(), 4 * elems_);
    stream_->synchronize();
    compare(own, 0, std::min(elems_, kProvedElems), exact);
    compare(own, std::max<std::int64_t>(0, elems_ - kProvedElems), elems_, exact);
  }

  void compare(const std::vector<float>& sums, std::int64_t first, std::int64_t end, bool exact) const {
    const int ranks = world_->world_size();
    std::vector<std::vector<float>> inputs(static_cast<std::size_t>(ranks));
    std::vector<const float*> pointers;
    for (int rank = 0; rank < ranks; ++rank) {
      auto& input = inputs[static_cast<std::size_t>(rank)];
      for (std::int64_t i = first; i < end; ++i) input.push_back(value_of(rank, i));
      pointers.push_back(input.data());
    }
    std::vector<float> expected(static_cast<std::size_t>(end - first));
    tree_sum(pointers.data(), ranks, end - first, expected.data());
    for (std::int64_t i = first; i < end; ++i) {
      const float sum = sums[static_cast<std::size_t>(i)], tree = expected[static_cast<std::size_t>(i - first)];
      double size = 0;
      for (const float* input : pointers) size += std::fabs(static_cast<double>(input[i - first]));
      if (exact ? sum == tree : std::fabs(static_cast<double>(sum) - static_cast<double>(tree)) <= 1e-6 * size)
        continue;
      throw BackendError("renai bench comm: the sum of " + std::to_string(elems_) + " elements is wrong",
                         "element " + std::to_string(i) + " is " + std::to_string(sum) + ", not " +
                             std::to_string(tree) + " (" + communicator_->name() + ")",
                         "the exchange does not work on these devices; please report it");
    }
  }

  /// Time of one round on the slowest rank: the median of a few windows. Units: microseconds.
  double time(const std::function<void()>& round) {
    const double once = window(round, kFewestRounds);
    const int rounds = std::clamp(static_cast<int>(kWindowUs / std::max(once, 1.0)), kFewestRounds, kMostRounds);
    std::vector<double> windows;
    for (int i = 0; i < kWindows; ++i) windows.push_back(window(round, rounds));
    std::nth_element(windows.begin(), windows.begin() + kWindows / 2, windows.end());
    return windows[kWindows / 2];
  }

  double window(const std::function<void()>& round, int rounds) {
    const auto start = device_->create_timed_event(), end = device_->create_timed_event();
    world_->control().barrier("before a measured window");
    stream_->record(*start);
    for (int i = 0; i < rounds; ++i) round();
    stream_->record(*end);
    stream_->synchronize();
    const std::string own = std::to_string(end->microseconds_since(*start) / rounds);
    double slowest = 0;
    for (const std::string& text : world_->control().all_gather(own, "comparing measured times")) {
      slowest = std::max(slowest, std::stod(text));
    }
    return slowest;
  }

  World* world_;
  Device* device_;
  Stream* stream_;
  Communicator* communicator_;
  Buffer* values_;
  std::int64_t elems_;
  Buffer scratch_;
};

/// What a rank sends and receives in the best all-reduce, over the time. Units: GB/s.
double bus_gb_per_s(std::int64_t size_bytes, double us, int ranks) {
  return static_cast<double>(size_bytes) / us * 1e-3 * 2.0 * (ranks - 1) / ranks;
}

void print_rows(const std::vector<Row>& rows, const std::vector<std::string>& names, const Run& run, bool json) {
  const int ranks = run.control->world_size();
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    list.push_back({{"algorithm", row.algorithm},
                    {"bytes", row.size_bytes},
                    {"recorded_us", row.recorded_us},
                    {"direct_us", row.direct_us},
                    {"algorithm_gb_per_s", static_cast<double>(row.size_bytes) / row.recorded_us * 1e-3},
                    {"bus_gb_per_s", bus_gb_per_s(row.size_bytes, row.recorded_us, ranks)}});
  }
  if (json) {
    const nlohmann::ordered_json object{
        {"world_size", ranks}, {"device", run.device->info().model}, {"communicators", names}, {"rows", list}};
    std::printf("%s\n", object.dump().c_str());
    return;
  }
  std::printf("%d ranks, %s, %s\n", ranks, run.device->info().model.c_str(), join(names, ", ").c_str());
  std::printf("%-9s %10s %14s %12s %13s %13s\n", "algorithm", "size", "recorded (us)", "direct (us)", "alg. (GB/s)",
              "bus (GB/s)");
  for (const auto& row : list) {
    std::printf("%-9s %10s %14.1f %12.1f %13.2f %13.2f\n", row["algorithm"].get<std::string>().c_str(),
                format_bytes(row["bytes"].get<std::int64_t>()).c_str(), row["recorded_us"].get<double>(),
                row["direct_us"].get<double>(), row["algorithm_gb_per_s"].get<double>(),
                row["bus_gb_per_s"].get<double>());
  }
}

std::vector<std::int64_t> sizes_of(const CommBenchArguments& arguments, bool gpu) {
  const std::int64_t most = arguments.max_bytes > 0 ? arguments.max_bytes : gpu ? kGpuMostBytes : kHostMostBytes;
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = arguments.min_bytes; size < most; size *= 4) sizes.push_back(size / 4 * 4);
  sizes.push_back(most / 4 * 4);
  return sizes;
}

}  // namespace

int command_bench_comm(World& world, const CommBenchArguments& arguments) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 36;
  const std::int64_t least = arguments.min_bytes, most = arguments.max_bytes;
  require_number(least >= 4 && least <= kMostBytes, "--min-bytes", least, "use 4 bytes to 64 GiB");
  require_number(most == 0 || (most >= least && most <= kMostBytes), "--max-bytes", most, "use --min-bytes to 64 GiB");
  require_number(arguments.pieces >= 0, "--pieces", arguments.pieces, "use 0 or more");
  Recipe recipe;
  recipe.device = arguments.device;
  recipe.allow_shared_gpu = arguments.allow_shared_gpu;
  verify(recipe);
  if (world.world_size() < 2) {
    throw UserError("renai bench comm", "one rank has nobody to exchange with", "start it with mpirun -np 2 or more");
  }
  const Run run = world.choose(recipe);
  const bool gpu = run.device->info().kind == "cuda";
  const auto stream = run.device->create_stream(static_cast<int>(StreamId::COMM));
  const std::vector<std::int64_t> sizes = sizes_of(arguments, gpu);
  Buffer values = run.device->allocate(sizes.back());
  std::vector<Row> rows;
  std::vector<std::string> names;
  for (const ReduceMode mode : {ReduceMode::tree, ReduceMode::fast}) {
    if (mode == ReduceMode::fast && !gpu) continue;
    const auto communicator = world.make_another_communicator(mode, arguments.pieces);
    names.push_back(communicator->name());
    for (const std::int64_t size : sizes) {
      Measurement measurement(world, *run.device, *stream, *communicator, values, size);
      const bool tree = mode == ReduceMode::tree;
      rows.push_back(measurement.run(tree ? "tree" : "fast", tree));
    }
  }
  if (world.rank() == 0) print_rows(rows, names, run, arguments.json);
  world.control().barrier("the end of the benchmark");
  return 0;
}

}  // namespace renai
