#include <toml++/toml.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "renai/base/digest.hpp"
#include "renai/base/error.hpp"
#include "renai/base/file_error.hpp"
#include "renai/base/text.hpp"
#include "renai/checkpoint/state_dict.hpp"
#include "renai/model/model_spec.hpp"
#include "renai/train/lr_schedule.hpp"
#include "renai/train/task.hpp"

namespace renai {
namespace {

/// The recipe that a checkpoint was trained with.
Recipe stored_recipe(const StateDict& state, const std::string& file) {
  const auto text = state.texts.find("full_recipe");
  if (text == state.texts.end()) {
    throw DataError(file, "it holds no recipe", "give a checkpoint written by renai train");
  }
  Recipe recipe;
  toml::table table;
  try {
    table = toml::parse(text->second);
  } catch (const toml::parse_error& error) {
    throw DataError(file, std::string("its recipe cannot be read: ") + std::string(error.description()),
                    "the checkpoint is damaged");
  }
  Recipe::visit(recipe, [&table](const char* key, auto& value, const char*, bool) {
    using T = std::remove_reference_t<decltype(value)>;
    const auto node = table[key];
    if (!node) return;
    if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, bool>) {
      value = node.value_or(value);
    } else if constexpr (std::is_floating_point_v<T>) {
      value = node.template value<double>().value_or(value);
    } else {
      value = static_cast<T>(node.template value<std::int64_t>().value_or(static_cast<std::int64_t>(value)));
    }
  });
  return recipe;
}

/// Each rank evaluates a part of the images, with the weights that it has read itself.
std::string digest_of_weights(const StateDict& state) {
  std::vector<Digest128> parts;
  for (const char* group : {"weights", "bn_running", "ema"}) {
    const auto found = state.groups.find(group);
    if (found == state.groups.end()) continue;
    for (const StateTensor& tensor : found->second) parts.push_back(hash128(std::as_bytes(std::span(tensor.data))));
  }
  return combine_digests(parts).hex();
}

void print_result(const ValidationResult& result, const EvalArguments& arguments) {
  if (arguments.json) {
    const nlohmann::ordered_json object{{"checkpoint", arguments.checkpoint},
                                        {"ema", arguments.ema},
                                        {"images", result.images},
                                        {"top1", result.top1},
                                        {"top5", result.top5},
                                        {"top1_hits", result.top1_hits},
                                        {"top5_hits", result.top5_hits},
                                        {"loss", result.loss}};
    std::printf("%s\n", object.dump().c_str());
    return;
  }
  std::printf("%s: top-1 %.4f (%.0f of %lld)  top-5 %.4f  loss %.4f\n", arguments.checkpoint.c_str(), result.top1,
              result.top1_hits, static_cast<long long>(result.images), result.top5, result.loss);
}

}  // namespace

int command_eval(World& world, const EvalArguments& arguments) {
  require_named_file("--checkpoint " + arguments.checkpoint, arguments.checkpoint, "give the path of a checkpoint");
  StateDict state = load_checkpoint(arguments.checkpoint);
  compare_fingerprints(world.control(),
                       {{{"checkpoint", "weights of --checkpoint = " + digest_of_weights(state) + "\n"}}});
  if (arguments.ema) state = averages_as_weights(std::move(state), arguments.checkpoint);
  Recipe recipe = stored_recipe(state, arguments.checkpoint);
  if (!arguments.data.empty()) recipe.data = recipe.val_data = arguments.data;
  if (arguments.batch > 0) recipe.global_batch = recipe.val_batch = arguments.batch;
  if (arguments.threads > 0) recipe.threads = arguments.threads;
  if (!arguments.device.empty()) recipe.device = arguments.device;
  if (!arguments.precision.empty()) recipe.precision = arguments.precision;
  recipe.reduce = "tree";  // No gradient is reduced, and not every device has another way.
  recipe.val_batch = validation_batch(recipe);
  recipe.accumulate = 1;
  recipe.mixup = recipe.cutmix = recipe.random_erasing = 0.0;
  recipe.ema = 0.0;        // The weights evaluated are whichever stand in the place of the weights.
  recipe.sync_bn = false;  // Running statistics need no other shard.
  recipe.freeze_until.clear();
  recipe.freeze_after.clear();
  recipe.init_from.clear();
  recipe.trace.clear();
  recipe.verify_data = arguments.verify_data;
  recipe.read_mode = Recipe{}.read_mode;  // The files may stand elsewhere now.
  recipe.inject_fault.clear();
  forget_schedule(recipe);  // No step is taken: nothing that says how rates change may stand in the way.
  verify(recipe);
  verify_ranks(recipe, world.world_size());
  JobData data = open_data(recipe, false);
  if (!data.warning.empty() && world.rank() == 0) world.log().warning(data.warning);
  compare_fingerprints(world.control(), recipe_fingerprint(recipe, data.digest));

  const Run run = world.choose(recipe);
  BlueprintOptions options;
  options.training = false;
  // The network and its input scale are the trained ones, wherever files and data sets went since.
  if (const auto text = state.texts.find("model"); text != state.texts.end()) {
    options.model = parse_model(text->second, arguments.checkpoint);
  }
  if (const auto text = state.texts.find("normalization"); text != state.texts.end()) {
    data.shape.normalization = parse_normalization(text->second, arguments.checkpoint);
  }
  const Blueprint blueprint = make_blueprint(recipe, data.shape, *run.backend, *run.communicator, options);
  compare_fingerprints(world.control(), fingerprint(blueprint.graph, blueprint.book, blueprint.plans, blueprint.atlas));
  Engine engine(blueprint, run);
  initialize_state(engine, recipe.seed);
  restore_state(engine, state, arguments.checkpoint, true);

  RunLog log(std::filesystem::path(), 1, true);
  DeepLearningTask::Options task_options;
  task_options.recipe = &recipe;
  task_options.data.val = &*data.val;
  task_options.log = &log;
  task_options.console = &world.log();
  DeepLearningTask task(engine, task_options);
  const ValidationResult result = task.validate();
  if (world.rank() == 0) print_result(result, arguments);
  world.control().barrier("the end of the evaluation");
  return 0;
}

}  // namespace renai
