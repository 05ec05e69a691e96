#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <set>
#include <sstream>

#include "commands.hpp"
#include "data_cache.hpp"
#include "dry_run.hpp"
#include "interrupt.hpp"
#include "renai/base/error.hpp"
#include "renai/base/file_error.hpp"
#include "renai/base/lines.hpp"
#include "renai/base/memory.hpp"
#include "renai/base/text.hpp"
#include "renai/data/loader.hpp"
#include "renai/data/page_cache.hpp"
#include "renai/train/task.hpp"
#include "same_run.hpp"

namespace renai {
namespace {

/// What shells and launchers take for "ended by signal N": this and N.
constexpr int kSignalExit = 128;

std::string stem(const std::string& path) { return std::filesystem::path(path).lexically_normal().stem().string(); }

/// runs/DATA-MODEL-TIME, the first name that is free.
std::string default_run_dir(const Recipe& recipe) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  std::array<char, 32> time{};
  std::strftime(time.data(), time.size(), "%Y%m%d-%H%M%S", &local);
  const std::string base = "runs/" + stem(recipe.data) + "-" + stem(recipe.model) + "-" + time.data();
  std::string name = base;
  for (int n = 2; std::filesystem::exists(name); ++n) name = base + "-" + std::to_string(n);
  return name;
}

/// Points runs/latest at the newest run of the default name.
void link_latest(const std::filesystem::path& directory) {
  const std::filesystem::path link = directory.parent_path() / "latest";
  std::error_code ignored;
  if (std::filesystem::is_symlink(link, ignored)) std::filesystem::remove(link, ignored);
  if (!std::filesystem::exists(link, ignored))
    std::filesystem::create_directory_symlink(directory.filename(), link, ignored);
}

/// Files of a run among those of a data set could not be told apart, and the next run would move the data set aside.
void refuse_data_directory(const Recipe& recipe) {
  if (recipe.run_dir.empty()) return;
  std::error_code ignored;
  bool is_data = std::filesystem::exists(std::filesystem::path(recipe.run_dir) / "manifest.json", ignored);
  for (const std::string& data : {recipe.data, recipe.val_data})
    is_data = is_data || (!data.empty() && std::filesystem::equivalent(recipe.run_dir, data, ignored));
  if (!is_data) return;
  throw UserError("--run-dir " + recipe.run_dir, "it is the directory of a data set", "give the run one of its own");
}

/// Whether the run goes on in what --run-dir holds: --resume auto, or a checkpoint below it. The checkpoint of another
/// directory starts the run anew there, and what --run-dir holds is moved aside like before every new run.
bool continues_in_place(const Recipe& recipe) {
  if (recipe.resume == "auto") return true;
  if (recipe.resume == "no") return false;
  const std::filesystem::path file = std::filesystem::absolute(recipe.resume).lexically_normal();
  std::error_code ignored;
  for (auto folder = file.parent_path(); folder.has_relative_path(); folder = folder.parent_path()) {
    if (std::filesystem::equivalent(folder, recipe.run_dir, ignored)) return true;
  }
  return false;
}

/// What a run starts from besides the seed. Loaded and checked before anything is written.
struct StartState {
  std::string file;
  StateDict state;
  bool continues = false;
};

/// With --resume auto, the newest checkpoint that all ranks can load: a damaged or unreadable one costs the steps since
/// the one before, not the run.
std::optional<StartState> load_automatic(const Recipe& recipe, World& world) {
  std::string names;
  std::vector<std::string> warnings;
  if (world.rank() == 0) {
    for (const auto& path : CheckpointStore(recipe.run_dir).candidates(&warnings)) names += path.string() + '\n';
  }
  names = world.control().broadcast(names, 0, "choosing the checkpoint to continue from");
  std::vector<std::filesystem::path> candidates;
  // A line each: no path of a recipe holds a control character.
  for (const std::string& line : lines_of(names)) candidates.emplace_back(line);
  const auto tell = [&] {
    if (world.rank() != 0) return;
    for (const std::string& warning : warnings) world.log().warning(warning);
  };
  const auto agree = [&world](const std::string& own) {
    const std::vector<std::string> all = world.control().all_gather(own, "loading the checkpoint to continue from");
    const auto first = std::find_if(all.begin(), all.end(), [](const std::string& text) { return !text.empty(); });
    return first == all.end() ? std::string() : *first;
  };
  std::optional<LoadedCheckpoint> loaded;
  try {
    loaded = load_newest(candidates, agree, &warnings);
  } catch (const Error&) {
    tell();
    throw;
  }
  tell();
  if (loaded) return StartState{loaded->file.string(), std::move(loaded->state), true};
  if (world.rank() == 0) world.log().info("no checkpoint in " + recipe.run_dir + ": starting from the beginning");
  return std::nullopt;
}

std::optional<StartState> load_start(const Recipe& recipe, World& world, const std::string& data_digest) {
  std::optional<StartState> start;
  if (recipe.resume == "auto") {
    start = load_automatic(recipe, world);
  } else if (recipe.resume != "no") {
    require_named_file("--resume " + recipe.resume, recipe.resume, "use auto, no, or the path of a checkpoint");
    start = StartState{recipe.resume, load_checkpoint(recipe.resume), true};
  }
  if (start) {
    require_same_run(recipe, start->state, start->file, data_digest);
    return start;
  }
  if (recipe.init_from.empty()) return std::nullopt;
  require_named_file("--init-from " + recipe.init_from, recipe.init_from, "give the path of a checkpoint");
  return StartState{recipe.init_from, load_checkpoint(recipe.init_from, false), false};
}

std::vector<std::pair<std::string, std::string>> trace_header(const Recipe& recipe, const Blueprint& blueprint,
                                                              const Run& run, const std::string& data_digest) {
  const DeviceInfo device = run.device->info();
  std::vector<std::pair<std::string, std::string>> header{{"build", build_text()},
                                                          {"device", device.model},
                                                          {"instruction_set", device.instruction_set},
                                                          {"backend", run.backend->name()},
                                                          {"precision", recipe.precision},
                                                          {"library", run.backend->library()},
                                                          {"kernel_plan", hex64(kernel_plan_hash(blueprint.book))},
                                                          {"data", data_digest},
                                                          {"seed", std::to_string(recipe.seed)},
                                                          {"logical_shards", std::to_string(recipe.logical_shards)},
                                                          {"recipe", to_toml(recipe, true)}};
  return header;
}

AtlasReport atlas_report(const Blueprint& blueprint) {
  AtlasReport report;
  report.graph = &blueprint.graph;
  report.book = &blueprint.book;
  report.plans = blueprint.plans;
  report.atlas = &blueprint.atlas;
  return report;
}

Progress apply_start(Engine& engine, const Recipe& recipe, const std::optional<StartState>& start) {
  initialize_state(engine, recipe.seed);
  if (!start) return {};
  return restore_state(engine, start->state, start->file, !start->continues);
}

DeepLearningTask::Options task_options(const Recipe& recipe, const JobData& data, const Blueprint& blueprint,
                                       const Run& run) {
  DeepLearningTask::Options options;
  options.recipe = &recipe;
  options.data.train = &*data.train;
  options.data.val = data.val ? &*data.val : nullptr;
  options.checkpoint_texts = {{"recipe", to_toml(recipe, true)},
                              {"full_recipe", to_toml(recipe)},
                              {"build", build_text()},
                              {"library", run.backend->library()},
                              {"data", data.digest},
                              {"classes", std::to_string(data.shape.classes)},
                              {"normalization", print_normalization(data.shape.normalization)},
                              {"model", to_toml(blueprint.graph.model())}};
  options.trace_header = trace_header(recipe, blueprint, run, data.digest);
  return options;
}

void print_start(World& world, const Recipe& recipe, const Run& run, const JobData& data) {
  if (world.rank() != 0) return;
  std::printf("%s%s, %lld training samples, run directory %s\n", world.topology().print().c_str(),
              run.backend->library().c_str(), static_cast<long long>(data.shape.train_samples), recipe.run_dir.c_str());
  std::fflush(stdout);
}

void print_end(const Summary& summary, const RunLog& log) {
  char validation[48] = "no validation";
  if (summary.val_images > 0) std::snprintf(validation, sizeof validation, "val top-1 %.4f", summary.val_top1);
  // A run that was complete already makes no step.
  char speed[48] = "no speed measured";
  const double rate = summary.images_per_second_median;
  if (rate > 0) std::snprintf(speed, sizeof speed, "%.0f img/s", rate);
  std::printf("%s after %lld steps: %s, %s, digest %s, %s\n", summary.status.c_str(),
              static_cast<long long>(summary.steps), validation, speed, summary.digest.c_str(),
              (log.directory() / "summary.json").c_str());
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

/// The run directory as given, without a trailing slash; one named after data, model and time when none is given.
std::string choose_run_dir(const Recipe& recipe, World& world) {
  if (recipe.run_dir.empty()) {
    if (recipe.resume == "auto") {
      throw UserError("--resume auto", "no run is named, so there is nothing to look in", "give its --run-dir");
    }
    return world.control().broadcast(default_run_dir(recipe), 0, "naming the run directory");
  }
  return without_slash(recipe.run_dir);
}

/// Every rank must run the same kernels: equal libraries, instruction sets and processor models.
void compare_machines(const Run& run) {
  const DeviceInfo info = run.device->info();
  compare_fingerprints(*run.control, Fingerprint{{{"library", run.backend->library() + "\n"},
                                                  {"machine", info.model + "\n" + info.instruction_set + "\n"}}});
}

/// What a training run stands on, in the order in which it is made. It outlives a failure until that is written down.
struct Training {
  Recipe recipe;
  JobData data;
  Run run;
  std::optional<Blueprint> blueprint;
  RunLock lock;  ///< Of the run directory, until the log takes it over.
  std::optional<RunLog> log;
  std::optional<Engine> engine;
  std::optional<DeepLearningTask> task;
  bool in_task = false;  ///< From its first step on the task itself writes how the run ends.
};

/// Writes into the run directory that the run failed before its first step. A refused command line begins no run: it
/// leaves the directory as it was.
void tell_failure(World& world, Training& training, const std::exception& error) noexcept {
  const Recipe& recipe = training.recipe;
  const bool refused = dynamic_cast<const UserError*>(&error) != nullptr;
  if (!training.log && (refused || recipe.run_dir.empty() || world.rank() != 0)) return;
  try {
    if (!training.log) {
      training.log.emplace(without_slash(recipe.run_dir), world.rank(), continues_in_place(recipe),
                           std::move(training.lock));
    }
  } catch (const std::exception& second) {
    world.log().warning(std::string("no summary could be written: ") + second.what());
    return;
  }
  Summary summary;
  summary.world_size = world.world_size();
  summary.logical_shards = recipe.logical_shards;
  summary.device = training.run.backend != nullptr ? training.run.backend->name() : recipe.device;
  summary.library = training.run.backend != nullptr ? training.run.backend->library() : "";
  summary.precision = recipe.precision;
  summary.reduce = recipe.reduce;
  summary.model = recipe.model;
  summary.seed = recipe.seed;
  training.log->finish_failed(summary, error.what(), world.log());
}

}  // namespace

std::string build_text() { return std::string("renai ") + RENAI_VERSION + ", GCC " + __VERSION__; }

std::string print_normalization(const InputParams& normalization) {
  std::ostringstream text;
  text << std::hexfloat;
  for (const float value : normalization.mean) text << value << ' ';
  for (const float value : normalization.std) text << value << ' ';
  return text.str();
}

InputParams parse_normalization(const std::string& text, const std::string& file) {
  InputParams normalization;
  std::istringstream words(text);
  const auto read = [&](float& value) {
    std::string word;
    words >> word;
    char* end = nullptr;
    value = std::strtof(word.c_str(), &end);
    if (word.empty() || *end != '\0') throw DataError(file, "its normalisation cannot be read", "the file is damaged");
  };
  for (float& value : normalization.mean) read(value);
  for (float& value : normalization.std) read(value);
  return normalization;
}

namespace {

std::string val_directory_of(const Recipe& recipe) { return recipe.val_data.empty() ? recipe.data : recipe.val_data; }

/// --cache and the reading ahead of --shuffle block bring files into the page cache, where they are to be found.
ReadMode asked_read_mode(const Recipe& recipe) {
  const ReadMode asked = parse_read_mode(recipe.read_mode);
  const bool through_cache = recipe.cache || recipe.shuffle == shuffle_name(Shuffle::block);
  return asked == ReadMode::automatic && through_cache ? ReadMode::cached : asked;
}

/// Of the files that a job reads; 0 where that cannot be told: opening them says why.
std::int64_t job_file_bytes(const Recipe& recipe, bool training) {
  const std::string val_directory = val_directory_of(recipe);
  try {
    const std::int64_t val = stored_file_bytes(val_directory, load_manifest(val_directory), "val");
    return training ? val + stored_file_bytes(recipe.data, load_manifest(recipe.data), "train") : val;
  } catch (const Error&) {
    return 0;
  }
}

/// Returns the manifest of the validation set.
Manifest open_splits(const Recipe& recipe, bool training, ReadMode mode, JobData& data) {
  const std::string val_directory = val_directory_of(recipe);
  if (training) data.train = Dataset::open(recipe.data, "train", mode);
  require_named_folder("data set " + val_directory, val_directory, "name the folder that `renai pack` wrote");
  Manifest val_manifest = load_manifest(val_directory);
  if (val_manifest.find("val") != nullptr) {
    data.val = Dataset::open(val_directory, "val", mode);
  } else if (!recipe.val_data.empty() || !training) {
    throw UserError("data set " + val_directory, "it has no split 'val'", "pack one, or give another --val-data");
  }
  return val_manifest;
}

}  // namespace

JobData open_data(const Recipe& recipe, bool training) {
  JobData data;
  const std::string val_directory = val_directory_of(recipe);
  const ReadMode asked = asked_read_mode(recipe);
  const std::int64_t bytes = asked == ReadMode::automatic ? job_file_bytes(recipe, training) : 0;
  const Manifest val_manifest = open_as(asked, bytes, cacheable_memory_bytes(), data.warning,
                                        [&](ReadMode mode) { return open_splits(recipe, training, mode, data); });
  const Manifest& manifest = training ? data.train->manifest() : data.val->manifest();
  if (training && data.val &&
      (val_manifest.height != manifest.height || val_manifest.width != manifest.width ||
       val_manifest.channels != manifest.channels || val_manifest.encoding != manifest.encoding ||
       val_manifest.classes != manifest.classes)) {
    throw DataError(val_directory, "its image size, encoding or classes differ from " + recipe.data,
                    "pack both the same way");
  }
  if (training) verify_augmentation(Augmentation::parse(recipe.augment), manifest);
  if (recipe.verify_data) {
    if (data.train) data.train->check_digests();
    if (data.val) data.val->check_digests();
  }
  data.shape = describe_data(manifest, training ? data.train->size() : 0, data.val ? data.val->size() : 0);
  data.digest = manifest.digest();
  if (data.val && val_directory != recipe.data) data.digest += "+" + val_manifest.digest();
  return data;
}

Fingerprint recipe_fingerprint(const Recipe& recipe, const std::string& data_digest) {
  std::string text;
  const std::set<std::string> may_differ{"run-dir",    "data",           "val-data",    "trace",
                                         "plan-cache", "loader-threads", "inject-fault"};
  for (const std::string& line : lines_of(to_toml(recipe))) {
    if (!may_differ.contains(line.substr(0, line.find(' ')))) text += line + "\n";
  }
  // Rank 0 alone decides where files go, and every host may have its data elsewhere, but all must agree in what there
  // is: a trace takes part of every rank, and a run without a directory has one that rank 0 names.
  const auto add_whether = [&text](const char* option, const std::string& value) {
    text += std::string(option) + " = " + (value.empty() ? "not given" : "given") + "\n";
  };
  add_whether("trace", recipe.trace);
  add_whether("run-dir", recipe.run_dir);
  add_whether("val-data", recipe.val_data);
  // Ranks capture together or not at all.
  text += std::string("RENAI_UNCAPTURED = ") + (runs_uncaptured() ? "1" : "0") + "\n";
  return Fingerprint{{{"recipe", text}, {"build", build_text() + "\n"}, {"data", data_digest + "\n"}}};
}

namespace {

void say_reading(World& world, const JobData& data) {
  if (world.rank() != 0) return;
  if (!data.warning.empty()) world.log().warning(data.warning);
  if (data.train->reads_direct()) world.log().info("data: read past the page cache");
  if (data.shape.encoded || data.shape.h == data.shape.w) return;
  world.log().warning("images of " + std::to_string(data.shape.h) + " x " + std::to_string(data.shape.w) +
                      " are stretched to squares, which is what networks see");
}

/// Takes hold of the run directory and makes the log. Returns what the run goes on from.
std::optional<StartState> open_run_directory(World& world, Training& training) {
  Recipe& recipe = training.recipe;
  const bool named = recipe.run_dir.empty();
  recipe.run_dir = choose_run_dir(recipe, world);
  if (world.rank() == 0 && !recipe.trace.empty()) require_trace_place(recipe.trace, recipe.run_dir);
  if (world.rank() == 0) training.lock = RunLock(recipe.run_dir);
  std::optional<StartState> start = load_start(recipe, world, training.data.digest);
  const bool in_place = start && start->continues && continues_in_place(recipe);
  RunLog& log = training.log.emplace(recipe.run_dir, world.rank(), in_place, std::move(training.lock));
  if (!log.lock().warning().empty()) world.log().warning(log.lock().warning());
  if (named && world.rank() == 0) link_latest(recipe.run_dir);
  return start;
}

int train(World& world, Training& training, const TrainArguments& arguments) {
  Recipe& recipe = training.recipe;
  verify(recipe);
  verify_ranks(recipe, world.world_size());
  compare_fingerprints(world.control(), recipe_fingerprint(recipe, ""));
  refuse_data_directory(recipe);
  training.data = open_data(recipe, true);
  const JobData& data = training.data;
  say_reading(world, data);
  compare_fingerprints(world.control(), recipe_fingerprint(recipe, data.digest));

  Recipe chosen = recipe;
  if (arguments.dry_run) chosen.plan_cache = "no";  // A dry run writes nothing, kernel plans neither.
  training.run = world.choose(chosen);
  const Run& run = training.run;
  compare_machines(run);
  const Blueprint& blueprint =
      training.blueprint.emplace(make_blueprint(recipe, data.shape, *run.backend, *run.communicator));
  if (arguments.dry_run) {
    AtlasReport report = atlas_report(blueprint);
    report.device = run.device->info().model;
    if (world.rank() == 0) std::printf("%s", print_plan(recipe, blueprint, data.shape, report).c_str());
    return 0;
  }
  fill_cache(world, recipe);
  const std::optional<StartState> start = open_run_directory(world, training);
  RunLog& log = *training.log;
  log.write_text("recipe.toml", to_toml(recipe));
  log.write_ranks(world.topology());
  print_start(world, recipe, run, data);

  const FaultPlan fault = parse_fault(recipe.inject_fault);
  if (fault.due(-1, world.rank())) run_fault(fault);
  compare_fingerprints(world.control(), fingerprint(blueprint.graph, blueprint.book, blueprint.plans, blueprint.atlas));
  Engine& engine = training.engine.emplace(blueprint, run);
  AtlasReport report = atlas_report(blueprint);
  report.capture_seconds = engine.capture_seconds();
  report.device = run.device->info().model;
  if (world.rank() == 0) log.write_text("atlas.json", to_json(report));

  const Progress progress = apply_start(engine, recipe, start);
  DeepLearningTask::Options options = task_options(recipe, data, blueprint, run);
  options.log = &log;
  options.console = &world.log();
  options.process_start = arguments.process_start;
  const SignalWatch watch;
  options.interrupt = &watch.signal();
  training.task.emplace(engine, options);
  training.in_task = true;
  const Summary summary = training.task->train(progress);
  world.control().barrier("the end of the run");
  if (world.rank() == 0) print_end(summary, log);
  return summary.signal == 0 ? 0 : kSignalExit + summary.signal;
}

}  // namespace

int command_train(World& world, Recipe recipe, const TrainArguments& arguments) {
  Training training;
  training.recipe = std::move(recipe);
  try {
    return train(world, training, arguments);
  } catch (const std::exception& error) {
    if (!arguments.dry_run && !training.in_task) tell_failure(world, training, error);
    throw;
  }
}

}  // namespace renai
