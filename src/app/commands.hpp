#pragma once
// The commands behind the subcommands. Each returns the exit code and throws Error on failure.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "renai/data/dataset.hpp"
#include "renai/data/pack.hpp"
#include "renai/train/blueprint.hpp"
#include "world.hpp"

namespace renai {

/// The data sets of a job, opened and checked.
struct JobData {
  std::optional<Dataset> train, val;
  DataShape shape;
  std::string digest;   ///< Of all shards, for trace headers.
  std::string warning;  ///< Of how it is read; mostly empty.
};
/// Errors: UserError (no such directory or split; not to be read as --read-mode says), DataError (damaged).
JobData open_data(const Recipe& recipe, bool training);

struct TrainArguments {
  bool dry_run = false;
  std::chrono::steady_clock::time_point process_start;
};
int command_train(World& world, Recipe recipe, const TrainArguments& arguments);

struct EvalArguments {
  std::string checkpoint, data;
  std::int64_t batch = 0;
  int threads = 0;
  std::string device, precision;  ///< Empty: as trained.
  bool ema = false;               ///< The averaged weights.
  bool json = false;
  bool verify_data = false;
};
int command_eval(World& world, const EvalArguments& arguments);

struct AtlasArguments {
  bool json = false, dot = false, no_dedup = false, no_reuse = false, no_capture = false;
  std::string html;
};
int command_atlas(World& world, const Recipe& recipe, const AtlasArguments& arguments);

struct PackArguments {
  std::string kind, input;
  PackOptions options;
  SyntheticOptions synthetic;
  FolderOptions folder;
  Hdf5Options hdf5;
  std::string encoding = "jpeg", order = "shuffled";
  std::optional<std::int64_t> shard_samples, size;  ///< None: the kind's default.
  int threads = 0;                                  ///< 0: the rank's share of the cores.
};
int command_pack(World& world, PackArguments arguments);

int command_inspect(const std::filesystem::path& path, bool json);
int command_verify(const std::filesystem::path& path, bool adopt);
int command_trace_diff(const std::string& a, const std::string& b);

struct BenchArguments {
  std::int64_t steps = 20, warmup = 3;
  bool json = false, timeline = false, skip_proof = false;
  std::string picture;  ///< Path of the timeline as SVG; empty: none.
  std::int64_t channels = 3, classes = 10, size = 32;
};
int command_bench_step(World& world, Recipe recipe, const BenchArguments& arguments);

struct CommBenchArguments {
  std::string device = "auto";
  std::int64_t min_bytes = 4096, max_bytes = 0;  ///< 0: 1 GiB between GPUs, 64 MiB between CPUs.
  int pieces = 0;
  bool json = false, allow_shared_gpu = false;
};
int command_bench_comm(World& world, const CommBenchArguments& arguments);

struct DataBenchArguments {
  std::string data, split = "train", augment;  ///< augment empty: what is usual for such a set.
  std::string shuffle = "global", read_mode = "auto", device = "auto";
  std::int64_t size = 0, images = 0;
  int threads = 0;
  double seconds = 2, need = 0;
  bool scaling = false, json = false;
};
int command_bench_data(const DataBenchArguments& arguments);

/// Fingerprint sections that are known before the graph is built. Keys that may differ between ranks are left out.
Fingerprint recipe_fingerprint(const Recipe& recipe, const std::string& data_digest);
/// Mean and standard deviation by channel as text that reads back exactly, for checkpoints.
std::string print_normalization(const InputParams& normalization);
InputParams parse_normalization(const std::string& text, const std::string& file);
/// "renai 0.1.0, GCC 12.2.0".
std::string build_text();

}  // namespace renai
