#include "renai/app/app.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <new>
#include <thread>

#include "commands.hpp"
#include "recipe_options.hpp"
#include "renai/base/error.hpp"
#include "renai/base/file_error.hpp"
#include "renai/base/text.hpp"
#include "renai/model/model_spec.hpp"

namespace renai {
namespace {

/// Everything the command line can ask for.
struct Request {
  Recipe recipe;
  std::string config;
  TrainArguments train;
  EvalArguments eval;
  AtlasArguments atlas;
  PackArguments pack;
  BenchArguments bench;
  CommBenchArguments bench_comm;
  DataBenchArguments bench_data;
  std::string path, second_path;
  bool json = false, adopt = false;
};

struct Command {
  CLI::App* app = nullptr;
  bool has_recipe = false;
  bool needs_ranks = false;
  std::function<int(World*)> run;
};

class CommandLine {
 public:
  explicit CommandLine(std::chrono::steady_clock::time_point start);
  /// Errors: UserError. Returns false when help or version was printed.
  bool parse(std::vector<std::string> arguments);
  const Command& chosen() const { return *chosen_; }
  const Recipe& recipe() const { return request_.recipe; }
  /// Errors: UserError where ranks were started with other commands, or other options that change what all do.
  void compare_ranks(World& world) const {
    compare_fingerprints(world.control(), {{{"command line", shared_options(*chosen_->app, chosen_->has_recipe)}}});
  }

 private:
  CLI::App* add(CLI::App& parent, const char* name, const char* description, bool needs_ranks,
                std::function<int(World*)> run);
  void add_train();
  void add_eval();
  void add_pack();
  void add_pack_folder(CLI::App& folder, const std::function<void(CLI::App*)>& add_division);
  void add_pack_hdf5(CLI::App& hdf5);
  void add_files();
  void add_atlas();
  void add_bench();
  void add_bench_comm(CLI::App& bench);
  void add_bench_data(CLI::App& bench);
  void refuse_unknown_command(const std::vector<std::string>& arguments) const;

  Request request_;
  CLI::App app_{"renai trains image classifiers, one MPI rank per device, with the same bits on any number of ranks."};
  std::vector<Command> commands_;
  const Command* chosen_ = nullptr;
};

CommandLine::CommandLine(std::chrono::steady_clock::time_point start) {
  request_.train.process_start = start;
  app_.name("renai");
  app_.set_version_flag("--version", build_text());
  app_.require_subcommand(1);
  app_.footer(
      "Without a command renai trains: 'renai' is 'renai train'. Start several ranks with mpirun -np N renai ...");
  commands_.reserve(32);
  add_train();
  add_eval();
  add_pack();
  add_files();
  add_atlas();
  add_bench();
  for (const Command& command : commands_) check_whole_numbers(*command.app);
}

CLI::App* CommandLine::add(CLI::App& parent, const char* name, const char* description, bool needs_ranks,
                           std::function<int(World*)> run) {
  CLI::App* command = parent.add_subcommand(name, description);
  command->allow_extras();
  commands_.push_back(Command{command, false, needs_ranks, std::move(run)});
  return command;
}

void CommandLine::add_train() {
  CLI::App* train = add(app_, "train", "train a model", true,
                        [this](World* world) { return command_train(*world, request_.recipe, request_.train); });
  add_recipe_options(*train, request_.recipe, request_.config);
  train->add_flag("--dry-run", request_.train.dry_run,
                  "print recipe, model, atlas, memory and schedule; train and write nothing");
  commands_.back().has_recipe = true;
  train->footer("Models: " + join(zoo_model_names(), ", ") + ", or a TOML file (see the README).");
}

void CommandLine::add_eval() {
  CLI::App* eval = add(app_, "eval", "exact top-1 and top-5 of a checkpoint, each image once", true,
                       [this](World* world) { return command_eval(*world, request_.eval); });
  eval->add_option("--checkpoint", request_.eval.checkpoint, "checkpoint written by renai train")->required();
  eval->add_option("--data", request_.eval.data, "data set whose 'val' split is used (default: the one trained with)");
  eval->add_option("--global-batch", request_.eval.batch, "samples at a time over ALL ranks")
      ->check(CLI::PositiveNumber);
  eval->add_option("--threads", request_.eval.threads, "compute threads of a rank")->check(CLI::PositiveNumber);
  eval->add_option("--device", request_.eval.device, "auto, cuda, cpu or reference");
  eval->add_option("--precision", request_.eval.precision, "fp32, tf32, bf16 or fp16 (default: as trained)");
  eval->add_flag("--ema", request_.eval.ema, "the averaged weights of a run with --ema");
  eval->add_flag("--verify-data", request_.eval.verify_data, "compare each sample read with its digest");
  eval->add_flag("--json", request_.eval.json, "print a JSON object");
}

void CommandLine::add_pack() {
  CLI::App* pack = app_.add_subcommand("pack", "make a data set of HDF5 shards; parallel under mpirun");
  pack->require_subcommand(1);
  const auto add_kind = [&](const char* kind, const char* description) {
    CLI::App* command = add(*pack, kind, description, true, [this, kind](World* world) {
      request_.pack.kind = kind;
      return command_pack(*world, request_.pack);
    });
    command->add_option("--out", request_.pack.options.out, "directory of the data set")->required();
    command->add_option("--shard-samples", request_.pack.shard_samples,
                        "samples of a shard (default: 8192; folder: 2048)");
    command->add_flag("--overwrite", request_.pack.options.overwrite, "replace a complete data set");
    return command;
  };
  const auto add_division = [&](CLI::App* command) {
    SplitDivision& division = request_.pack.options.division;
    command->add_option(
        "--val-fraction", division.fraction,
        "share of the training samples that becomes the validation split, by a hash of each name or number");
    command->add_option("--val-every", division.every,
                        "every N-th sample (of a class, for folders) becomes validation");
    command->add_option("--split-seed", division.seed, "seed of that hash and of a folder's order")
        ->capture_default_str();
  };
  const auto add_files_kind = [&](const char* kind, const char* description, const char* input) {
    CLI::App* command = add_kind(kind, description);
    command->add_option("INPUT", request_.pack.input, input)->required();
    command->add_option("--class-names", request_.pack.options.classes, "text file with one class name a line");
    add_division(command);
    return command;
  };
  add_files_kind("idx", "MNIST-style IDX files, plain or gzip", "directory with the IDX files");
  add_files_kind("cifar", "CIFAR-10 or CIFAR-100 binary files", "directory with the .bin files");
  add_pack_hdf5(*add_files_kind("hdf5", "any HDF5 file with an array of images and one of labels", "HDF5 file"));
  add_pack_folder(*add_kind("folder", "images in one folder a class, or train/ and val/ that hold those"),
                  add_division);
  CLI::App* synthetic = add_kind("synthetic", "learnable random images");
  SyntheticOptions& options = request_.pack.synthetic;
  synthetic->add_option("--train", options.train, "training samples")->capture_default_str();
  synthetic->add_option("--val", options.val, "validation samples")->capture_default_str();
  synthetic->add_option("--height", options.height, "image height")->capture_default_str();
  synthetic->add_option("--width", options.width, "image width")->capture_default_str();
  synthetic->add_option("--channels", options.channels, "image channels, 1 to 4")->capture_default_str();
  synthetic->add_option("--classes", options.classes, "classes")->capture_default_str();
  synthetic->add_option("--seed", options.seed, "seed")->capture_default_str();
}

void CommandLine::add_pack_folder(CLI::App& folder, const std::function<void(CLI::App*)>& add_division) {
  FolderOptions& options = request_.pack.folder;
  folder.add_option("INPUT", request_.pack.input, "folder of the classes' folders, or of train/ and val/")->required();
  folder
      .add_option("--encoding", request_.pack.encoding,
                  "jpeg: the bytes of JPEG files as they are, PNG encoded at quality 95, 4:4:4; raw: pixels")
      ->check(CLI::IsMember({"jpeg", "raw"}))
      ->capture_default_str();
  folder.add_option(
      "--size", request_.pack.size,
      "jpeg: the network input that the set is meant for; raw: height and width that images are resized and "
      "cropped to (default: 224; raw: 256)");
  folder.add_flag("--skip-bad", options.skip_bad, "leave out files that cannot be used and list them in skipped.txt");
  folder
      .add_option("--order", request_.pack.order,
                  "of training samples: shuffled once, so that every shard holds a bit of "
                  "everything, or sorted by path")
      ->check(CLI::IsMember({"shuffled", "sorted"}))
      ->capture_default_str();
  folder.add_option("--threads", request_.pack.threads, "decoding threads of a rank (default: its share of the cores)")
      ->check(CLI::PositiveNumber);
  add_division(&folder);
}

void CommandLine::add_pack_hdf5(CLI::App& hdf5) {
  Hdf5Options& options = request_.pack.hdf5;
  hdf5.add_option("--images", options.images, "dataset with the images: integers 0 to 255, or floating point")
      ->capture_default_str();
  hdf5.add_option("--labels", options.labels, "dataset with the labels: one number a row, or one-hot rows")
      ->capture_default_str();
  hdf5.add_option("--val-file", options.val_file, "HDF5 file with the validation samples");
  hdf5.add_option("--val-images", options.val_images, "dataset with the validation images (default: as --images)");
  hdf5.add_option("--val-labels", options.val_labels, "dataset with their labels (default: as --labels)");
  hdf5.add_option("--layout", options.layout,
                  "nhwc, nchw, flat (a row of pixels an image) or flat-chw (planes); auto: the "
                  "only one that the shape allows")
      ->check(CLI::IsMember({"auto", "nhwc", "nchw", "flat", "flat-chw"}))
      ->capture_default_str();
  hdf5.add_option("--scale", options.scale,
                  "of floating-point images: unit (0 to 1) or byte (0 to 255); auto: the only one "
                  "that the values allow")
      ->check(CLI::IsMember({"auto", "unit", "byte"}))
      ->capture_default_str();
  hdf5.add_option("--height", options.height, "height of flat images");
  hdf5.add_option("--width", options.width, "width of flat images");
  hdf5.add_option("--channels", options.channels, "channels of flat images (default: what the shape leaves)");
}

void CommandLine::add_files() {
  CLI::App* inspect = add(app_, "inspect", "what is in a data set, shard, checkpoint or run", false,
                          [this](World*) { return command_inspect(request_.path, request_.json); });
  inspect->add_option("PATH", request_.path, "directory or file")->required();
  inspect->add_flag("--json", request_.json, "print JSON");
  CLI::App* verify = add(app_, "verify", "check every digest; exit 3 on damage, naming it", false,
                         [this](World*) { return command_verify(request_.path, request_.adopt); });
  verify->add_option("PATH", request_.path, "data set, shard, checkpoint or run")->required();
  verify->add_flag("--adopt", request_.adopt, "first add digests to shards made elsewhere");
  CLI::App* diff = add(app_, "trace-diff", "compare two traces: exit 0 when identical, 1 when they differ", false,
                       [this](World*) { return command_trace_diff(request_.path, request_.second_path); });
  diff->add_option("A", request_.path, "first trace")->required();
  diff->add_option("B", request_.second_path, "second trace")->required();
}

void CommandLine::add_atlas() {
  AtlasArguments& arguments = request_.atlas;
  CLI::App* atlas = add(app_, "atlas", "the compiled atlas: slots, captures, deduplication, regions, peak memory", true,
                        [this](World* world) { return command_atlas(*world, request_.recipe, request_.atlas); });
  add_recipe_options(*atlas, request_.recipe, request_.config);
  commands_.back().has_recipe = true;
  atlas->add_flag("--json", arguments.json, "print JSON");
  atlas->add_flag("--dot", arguments.dot, "print the graphs in DOT");
  atlas->add_option("--html", arguments.html, "write a page with the grid and the arena drawn");
  atlas->add_flag("--no-dedup", arguments.no_dedup, "also compile without deduplication and print both side by side");
  atlas->add_flag("--no-reuse", arguments.no_reuse, "plan without reuse of slots");
  atlas->add_flag("--no-capture", arguments.no_capture, "plan only: capture nothing");
}

void CommandLine::add_bench() {
  CLI::App* bench = app_.add_subcommand("bench", "benchmarks on synthetic data; correctness first");
  bench->require_subcommand(1);
  BenchArguments& arguments = request_.bench;
  CLI::App* step = add(*bench, "step", "whole training steps", true,
                       [this](World* world) { return command_bench_step(*world, request_.recipe, request_.bench); });
  add_recipe_options(*step, request_.recipe, request_.config);
  commands_.back().has_recipe = true;
  step->add_option("--warmup", arguments.warmup, "steps before the measured ones")->capture_default_str();
  step->add_option("--image-size", arguments.size, "height and width of the synthetic images")->capture_default_str();
  step->add_option("--channels", arguments.channels, "channels of the synthetic images")->capture_default_str();
  step->add_option("--classes", arguments.classes, "classes of the synthetic images")->capture_default_str();
  step->add_flag("--json", arguments.json, "print a JSON object");
  step->add_flag("--timeline", arguments.timeline, "print when each graph of a few steps ran");
  step->add_option("--picture", arguments.picture, "write that timeline to this file, as SVG");
  step->add_flag("--skip-proof", arguments.skip_proof, "do not compare one step with the reference backend first");
  add_bench_comm(*bench);
  add_bench_data(*bench);
}

void CommandLine::add_bench_comm(CLI::App& bench) {
  CommBenchArguments& arguments = request_.bench_comm;
  CLI::App* comm = add(bench, "comm", "reductions between ranks over sizes", true,
                       [this](World* world) { return command_bench_comm(*world, request_.bench_comm); });
  comm->add_option("--device", arguments.device, "auto, cuda, cpu or reference")->capture_default_str();
  comm->add_option("--min-bytes", arguments.min_bytes, "smallest vector")->capture_default_str();
  comm->add_option("--max-bytes", arguments.max_bytes, "largest vector (default: 1 GiB on GPUs, 64 MiB on CPUs)");
  comm->add_option("--pieces", arguments.pieces,
                   "pieces of a tree reduction on GPUs (0: one; between two ranks the library's)");
  comm->add_flag("--allow-shared-gpu", arguments.allow_shared_gpu, "let several ranks use one GPU");
  comm->add_flag("--json", arguments.json, "print a JSON object");
}

void CommandLine::add_bench_data(CLI::App& bench) {
  DataBenchArguments& arguments = request_.bench_data;
  CLI::App* data = add(bench, "data", "the input of a training, stage by stage", false,
                       [this](World*) { return command_bench_data(request_.bench_data); });
  data->add_option("DIR", arguments.data, "data set")->required();
  data->add_option("--split", arguments.split, "split to read")->capture_default_str();
  data->add_option("--augment", arguments.augment, "as for train (default: what is usual for the encoding)");
  data->add_option("--size", arguments.size, "height and width of the network's input (default: the set's)");
  data->add_option("--shuffle", arguments.shuffle, "order in which samples are staged: global, block or none")
      ->capture_default_str();
  data->add_option("--read-mode", arguments.read_mode, "as for train: auto, cached or direct")->capture_default_str();
  data->add_option("--threads", arguments.threads, "loader threads (default: the cores)");
  data->add_option("--seconds", arguments.seconds, "of each measurement, about")->capture_default_str();
  data->add_option("--images", arguments.images, "images of each measurement, instead of --seconds");
  data->add_option("--device", arguments.device, "that images are copied into: auto, cuda or cpu")
      ->check(CLI::IsMember({"auto", "cuda", "cpu"}))
      ->capture_default_str();
  data->add_option("--need", arguments.need, "images/s that training takes, to compare with");
  data->add_flag("--scaling", arguments.scaling, "also measure 1, 2, 4, ... threads, and what the machine gives them");
  data->add_flag("--json", arguments.json, "print a JSON object");
}

void CommandLine::refuse_unknown_command(const std::vector<std::string>& arguments) const {
  std::vector<std::string> names;
  for (const CLI::App* sub : app_.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  for (const std::string& name : names) {
    if (name == arguments.front()) return;
  }
  throw UserError("command '" + arguments.front() + "'", "there is no such command",
                  suggest_name(arguments.front(), names));
}

bool CommandLine::parse(std::vector<std::string> arguments) {
  const bool general =
      !arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "--version");
  if (arguments.empty() || (arguments[0].starts_with('-') && !general)) arguments.insert(arguments.begin(), "train");
  if (!general) refuse_unknown_command(arguments);
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app_.parse(reversed);
  } catch (const CLI::Success& success) {
    if (launcher_rank() == 0) app_.exit(success);
    return false;
  } catch (const CLI::ParseError& error) {
    const CLI::App* given = &app_;
    while (!given->get_subcommands().empty()) given = given->get_subcommands().front();
    throw UserError("the command line", error.what(), "see " + command_words(*given) + " --help");
  }
  for (const Command& command : commands_) {
    if (command.app->parsed()) chosen_ = &command;
  }
  refuse_extras(*chosen_->app);
  if (chosen_->has_recipe) apply_config(*chosen_->app, request_.config);
  // bench step reads --steps as the number of measured steps; the default of a recipe (0) means "not given".
  if (chosen_->app->get_name() == "step" && request_.recipe.steps > 0) request_.bench.steps = request_.recipe.steps;
  return true;
}

/// Errors of every kind as Error values.
template <typename F>
int guarded(World* world, F&& body) {
  const auto report = [world](const Error& error) {
    if (world != nullptr) return world->fail(error);
    // Before ranks can speak to each other: rank 0 speaks; the others leave after it.
    // A mistake of all ranks is rank 0's to tell, and ends the job before the others speak.
    const int rank = launcher_rank();
    if (rank != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    std::fprintf(stderr, "renai: rank %d on %s: %s\n", rank, host_name().c_str(), error.what());
    return error.exit_code();
  };
  try {
    return body();
  } catch (const Error& error) {
    return report(error);
  } catch (const std::bad_alloc&) {
    return report(
        ResourceError("memory", "the host has no more memory", "lower --global-batch, or use a larger machine"));
  } catch (const std::filesystem::filesystem_error& error) {
    return report(ResourceError(error.path1().string(), error.code().message(), file_remedy(error.code().value())));
  } catch (const std::exception& error) {
    return report(InternalError("an unexpected failure", error.what(), "please report this with the command line"));
  }
}

/// A file opened while a standard stream is closed would take its place, and what is printed would go into it. A file
/// that may not grow further is an error of the write, which names it, and not the end of the process.
void prepare_process() {
  for (int descriptor = ::open("/dev/null", O_RDWR); descriptor >= 0; descriptor = ::open("/dev/null", O_RDWR)) {
    if (descriptor <= STDERR_FILENO) continue;
    ::close(descriptor);
    break;
  }
  std::signal(SIGXFSZ, SIG_IGN);
}

/// Output that was asked for and could not be written is no success.
int finish_output(int code) {
  if (code != 0) return code;
  return guarded(nullptr, [] {
    errno = 0;
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
    if (errno != 0) fail_writing("standard output cannot be written", errno);
    throw ResourceError("standard output cannot be written", "the system refused a part of it",
                        "check that its disk has space");
  });
}

}  // namespace

int run_app(int argc, char** argv) {
  const auto start = std::chrono::steady_clock::now();
  prepare_process();
  CommandLine line(start);
  bool chosen = false;
  const int parsed = guarded(nullptr, [&] {
    chosen = line.parse({argv + 1, argv + argc});
    return 0;
  });
  if (parsed != 0 || !chosen) return finish_output(parsed);
  const bool trains = line.chosen().app->get_name() == "train";
  if (trains) std::signal(SIGPIPE, SIG_IGN);  // Whoever read the output may go; the run does not.
  if (!line.chosen().needs_ranks) return finish_output(guarded(nullptr, [&] { return line.chosen().run(nullptr); }));

  std::unique_ptr<World> world;
  const int started = guarded(nullptr, [&] {
    const double seconds = line.recipe().watchdog_seconds;
    if (!(seconds >= 0.1 && seconds <= 1e6)) {
      throw UserError("--watchdog-seconds", "it must lie between 0.1 and 1e6", "use for example 60");
    }
    world = std::make_unique<World>(std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3)));
    return 0;
  });
  if (started != 0) return started;
  const int code = guarded(world.get(), [&] {
    line.compare_ranks(*world);
    return line.chosen().run(world.get());
  });
  // What training prints is in the run directory too.
  return trains ? code : finish_output(code);
}

}  // namespace renai
