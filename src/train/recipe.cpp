#include "renai/train/recipe.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>
#include <type_traits>

#include "renai/base/check.hpp"
#include "renai/base/error.hpp"
#include "renai/base/option_word.hpp"
#include "renai/data/loader.hpp"
#include "renai/data/sampler.hpp"
#include "renai/model/adjust.hpp"
#include "renai/tensor/batch_split.hpp"
#include "renai/train/blueprint.hpp"
#include "renai/train/fault.hpp"
#include "renai/train/lr_schedule.hpp"

namespace renai {
namespace {

void require(bool holds, const char* option, const std::string& value, const char* why, const char* remedy) {
  if (!holds) throw UserError(std::string("--") + option + " " + value, why, remedy);
}

template <typename T>
void require_at_least(const char* option, T value, T least) {
  std::ostringstream text;
  text << value;
  if (!(value >= least)) {
    std::ostringstream limit;
    limit << "use at least " << least;
    throw UserError(std::string("--") + option + " " + text.str(), "the value is too small", limit.str());
  }
}

std::string toml_string(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + "\"";
}

std::string toml_number(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, end.ptr);
  // Without a point TOML reads an integer, which has 64 bits and no negative zero.
  const bool is_integer = text.find_first_not_of("-0123456789") == std::string::npos;
  if (is_integer && (std::abs(value) >= 0x1p63 || text == "-0")) text += ".0";
  return text;
}

template <typename T>
std::string toml_value(const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return toml_string(value);
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_floating_point_v<T>) {
    return toml_number(value);
  } else {
    return std::to_string(value);
  }
}

/// Limits beyond which a value is a slip of the hand, and arithmetic on it would overflow.
template <typename T>
void require_at_most(const char* option, T value, T most) {
  if (value <= most) return;
  std::ostringstream text;
  std::ostringstream limit;
  text << value;
  limit << "use at most " << most;
  throw UserError(std::string("--") + option + " " + text.str(), "the value is too large", limit.str());
}

void verify_limits(const Recipe& r) {
  require_at_most("epochs", r.epochs, 1e6);
  require_at_most<std::int64_t>("steps", r.steps, 1'000'000'000'000);
  require_at_most<std::int64_t>("global-batch", r.global_batch, 1 << 24);
  require_at_most<std::int64_t>("val-batch", r.val_batch, 1 << 24);
  require_at_most("logical-shards", r.logical_shards, 1 << 16);
  require_at_most("lr", r.lr, 1e30);
  require_at_most("weight-decay", r.weight_decay, 1e30);
  require_at_most("mixup", r.mixup, 1e6);
  require_at_most("cutmix", r.cutmix, 1e6);
  require_at_most("clip-norm", r.clip_norm, 1e30);
  require_at_most("eps", r.eps, 1e30);
  require_at_most("lars-eta", r.lars_eta, 1e30);
  require_at_most("lars-eps", r.lars_eps, 1e30);
  require_at_most("warmup-epochs", r.warmup_epochs, 1e6);
  require_at_most("lr-step-epochs", r.lr_step_epochs, 1e6);
  require_at_most("lr-gamma", r.lr_gamma, 1e6);
  require_at_most<std::int64_t>("val-resolution", r.val_resolution, 16384);
  require_at_most<std::uint64_t>("seed", r.seed, INT64_MAX);
  require_at_most("bucket-mib", r.bucket_mib, 65536.0);
  require_at_most("threads", r.threads, 1024);
  require_at_most("loader-threads", r.loader_threads, 256);
  require_at_least("watchdog-seconds", r.watchdog_seconds, 0.1);
  require_at_most("watchdog-seconds", r.watchdog_seconds, 1e6);
}

bool is_plain_text(const std::string& text) {
  std::size_t more = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (more > 0) {
      if ((byte & 0xC0u) != 0x80u) return false;
      --more;
    } else if (byte < 0x20 || byte == 0x7F || (byte >= 0x80 && byte < 0xC2) || byte > 0xF4) {
      return false;
    } else {
      more = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : byte >= 0xC2 ? 1 : 0;
    }
  }
  return more == 0;
}

/// Recipes are stored as TOML and JSON, which hold UTF-8 without control characters.
void verify_texts(const Recipe& r) {
  Recipe::visit(r, [](const char* key, const auto& value, const char*, bool) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, std::string>) {
      if (!is_plain_text(value)) {
        throw UserError(std::string("--") + key, "it holds a control character or bytes that are not UTF-8",
                        "use plain names");
      }
    }
  });
}

void verify_words(const Recipe& r) {
  const auto word = [](const char* option, const std::string& value, const std::vector<std::string>& words) {
    require_word(std::string("--") + option, value, words);
  };
  word("device", r.device, {"auto", "cpu", "cuda", "reference"});
  precision_of(r);
  optimizer_of(r);
  word("lr-schedule", r.lr_schedule, lr_schedule_names());
  word("reduce", r.reduce, {"tree", "fast"});
  std::vector<std::string> rules = init_words();
  rules.insert(rules.begin(), "model");
  word("init", r.init, rules);
  word("kernel-search", r.kernel_search, {"heuristic", "measure"});
  word("loss-scale", r.loss_scale, {"auto", "dynamic", "none"});
}

void verify_rates(const Recipe& r) {
  require_at_least("warmup-epochs", r.warmup_epochs, 0.0);
  require(r.lr_step_epochs > 0.0, "lr-step-epochs", toml_number(r.lr_step_epochs), "must be above 0",
          "use for example 30");
  require(r.lr_gamma > 0.0, "lr-gamma", toml_number(r.lr_gamma), "must be above 0", "use for example 0.1");
  require_at_least("lr-power", r.lr_power, 0.0);
  require_at_most("lr-power", r.lr_power, 1000.0);
  require_at_least("lr-min", r.lr_min, 0.0);
  require(r.lr_min <= r.lr, "lr-min", toml_number(r.lr_min), "it is above --lr", "use at most --lr");
  require(r.lr_cycle_epochs > 0.0, "lr-cycle-epochs", toml_number(r.lr_cycle_epochs), "must be above 0",
          "use for example 10");
  require_at_most("lr-cycle-epochs", r.lr_cycle_epochs, 1e6);
  require_at_least("lr-cycle-mult", r.lr_cycle_mult, 1);
  require_at_most("lr-cycle-mult", r.lr_cycle_mult, 1000);
  require_at_least("lr-decay-epochs", r.lr_decay_epochs, 0.0);
  require_at_most("lr-decay-epochs", r.lr_decay_epochs, 1e6);
  require(r.lr_pct_start >= 0.0 && r.lr_pct_start <= 1.0, "lr-pct-start", toml_number(r.lr_pct_start),
          "must lie between 0 and 1", "use for example 0.3");
  require_at_least("lr-div-factor", r.lr_div_factor, 1.0);
  require_at_most("lr-div-factor", r.lr_div_factor, 1e30);
  require_at_least("lr-final-div-factor", r.lr_final_div_factor, 1.0);
  require_at_most("lr-final-div-factor", r.lr_final_div_factor, 1e30);
  verify_schedule(r);
}

/// A value that is not the default and would change nothing is a misunderstanding. (--nesterov is on by default, so
/// nothing is told by it where it has no meaning.)
void require_default(double value, double by_default, const char* option, const Recipe& r, const char* remedy) {
  if (value == by_default) return;
  throw UserError(std::string("--") + option + " " + toml_number(value),
                  "it has no meaning for --optimizer " + r.optimizer, remedy);
}

void verify_optimizer(const Recipe& r) {
  require_at_least("momentum", r.momentum, 0.0);
  require(static_cast<float>(r.momentum) < 1.0f, "momentum", toml_number(r.momentum),
          "momentum must be below 1 as a float32", "use for example 0.9");
  for (const auto& [option, beta] : {std::pair{"beta1", r.beta1}, {"beta2", r.beta2}}) {
    require(beta >= 0.0 && beta < 1.0, option, toml_number(beta), "must lie in [0, 1)", "use for example 0.9 or 0.999");
  }
  // In f32, in which they are added, they must stand above zero, too.
  require(static_cast<float>(r.eps) > 0.0f, "eps", toml_number(r.eps), "must be above 0", "use for example 1e-8");
  require(static_cast<float>(r.lars_eps) > 0.0f, "lars-eps", toml_number(r.lars_eps), "must be above 0",
          "use for example 1e-8");
  require(static_cast<float>(r.lars_eta) > 0.0f, "lars-eta", toml_number(r.lars_eta),
          "must be above 0: no weight would move", "use for example 0.001");
  const Recipe defaults;
  const bool adam = r.optimizer == "adam" || r.optimizer == "adamw", lars = r.optimizer == "lars";
  if (adam) {
    require_default(r.momentum, defaults.momentum, "momentum", r, "use --beta1");
  } else {
    require(!r.nesterov || r.momentum > 0.0, "nesterov", "true", "Nesterov needs momentum", "set --momentum above 0");
    require_default(r.beta1, defaults.beta1, "beta1", r, "use --momentum, or --optimizer adam or adamw");
    require_default(r.beta2, defaults.beta2, "beta2", r, "use --optimizer adam or adamw");
    require_default(r.eps, defaults.eps, "eps", r, lars ? "use --lars-eps" : "use --optimizer adam or adamw");
  }
  if (lars) return;
  require_default(r.lars_eta, defaults.lars_eta, "lars-eta", r, "use --optimizer lars");
  require_default(r.lars_eps, defaults.lars_eps, "lars-eps", r, "use --optimizer lars");
}

/// Where 0 means off, a value that is meant to do something must not become 0 in f32, in which steps use it.
void require_above_zero(const char* option, double value) {
  require(value == 0.0 || static_cast<float>(value) != 0.0f, option, toml_number(value),
          "it is 0 as a float32, which would switch it off", "use a larger value");
}

/// Of a step, all shards together: masks of dropout count them with 16 bits.
constexpr int kMostMicroBatches = 1 << 16;

void verify_numbers(const Recipe& r) {
  require_at_least("epochs", r.epochs, 0.0);
  require_at_least<std::int64_t>("steps", r.steps, 0);
  require_at_least<std::int64_t>("global-batch", r.global_batch, 1);
  require_at_least<std::int64_t>("val-batch", r.val_batch, 0);
  require_at_least("logical-shards", r.logical_shards, 1);
  require_at_least("accumulate", r.accumulate, 1);
  require_at_most("accumulate", r.accumulate, std::max(kMostMicroBatches / r.logical_shards, 1));
  require_at_least("lr", r.lr, 0.0);
  verify_optimizer(r);
  require_at_least("weight-decay", r.weight_decay, 0.0);
  require(r.label_smoothing >= 0.0 && static_cast<float>(r.label_smoothing) < 1.0f, "label-smoothing",
          toml_number(r.label_smoothing), "must lie in [0, 1) as a float32", "use for example 0.1");
  // Below, both variates of the share underflow, and it is 0 or 1 anyway.
  constexpr double kLeastAlpha = 1e-3;
  require(r.mixup == 0.0 || r.mixup >= kLeastAlpha, "mixup", toml_number(r.mixup), "must be 0 or at least 0.001",
          "use for example 0.2");
  require(r.cutmix == 0.0 || r.cutmix >= kLeastAlpha, "cutmix", toml_number(r.cutmix), "must be 0 or at least 0.001",
          "use for example 1");
  require(r.random_erasing >= 0.0 && r.random_erasing <= 1.0, "random-erasing", toml_number(r.random_erasing),
          "a probability lies in [0, 1]", "use for example 0.1");
  dropout_rate(r);
  require_at_least("clip-norm", r.clip_norm, 0.0);
  require_above_zero("clip-norm", r.clip_norm);
  require(r.ema >= 0.0 && static_cast<float>(r.ema) < 1.0f, "ema", toml_number(r.ema),
          "must lie in [0, 1) as a float32", "use for example 0.999");
  require_above_zero("bn-momentum", r.bn_momentum);
  require(r.bn_momentum >= 0.0 && r.bn_momentum <= 1.0, "bn-momentum", toml_number(r.bn_momentum), "must lie in [0, 1]",
          "use for example 0.1");
  require_at_least<std::int64_t>("val-resolution", r.val_resolution, 0);
  require(r.val_crop == 0.0 || (r.val_crop >= 0.01 && r.val_crop <= 1.0), "val-crop", toml_number(r.val_crop),
          "it must be 0 or lie between 0.01 and 1", "use for example 0.875");
  require(r.bucket_mib * 0x1p20 >= 1.0, "bucket-mib", toml_number(r.bucket_mib), "a bucket holds a byte at least",
          "use for example 4");
  require_at_least<std::int64_t>("verify-every", r.verify_every, 0);
  require_at_least<std::int64_t>("checkpoint-every", r.checkpoint_every, 0);
  require_at_least("keep", r.keep, 1);
  require_at_least("threads", r.threads, 1);
  require_at_least("loader-threads", r.loader_threads, 1);
  require_at_least<std::int64_t>("log-every", r.log_every, 1);
  require_at_least<std::int64_t>("max-bad-steps", r.max_bad_steps, 1);
  require_at_least("loss-scale-interval", r.loss_scale_interval, 1);
}

void verify_order(const Recipe& r) {
  const Shuffle shuffle = parse_shuffle(r.shuffle);
  if (r.cache && parse_read_mode(r.read_mode) == ReadMode::direct) {
    throw UserError("--cache with --read-mode direct", "direct reads go past the cache that --cache fills",
                    "leave out one of them");
  }
  require_at_least("shuffle-window", r.shuffle_window, 1);
  if (shuffle == Shuffle::block || r.shuffle_window == Recipe{}.shuffle_window) return;
  throw UserError("--shuffle-window " + std::to_string(r.shuffle_window),
                  "only --shuffle block has a window, not --shuffle " + r.shuffle, "leave out one of them");
}

/// Partners come from the same micro-batch of the same logical shard.
void verify_mixing(const Recipe& r) {
  const std::int64_t parts = std::int64_t{r.logical_shards} * r.accumulate;
  if ((r.mixup == 0.0 && r.cutmix == 0.0) || r.global_batch > parts) return;
  const std::string accumulate = r.accumulate > 1 ? " and --accumulate " + std::to_string(r.accumulate) : "";
  throw UserError(r.mixup > 0.0 ? "--mixup " + toml_number(r.mixup) : "--cutmix " + toml_number(r.cutmix),
                  "samples are mixed inside of a logical shard, and with --global-batch " +
                      std::to_string(r.global_batch) + " and --logical-shards " + std::to_string(r.logical_shards) +
                      accumulate + " each has one row only",
                  "use --global-batch " + std::to_string(2 * parts) + " or more, or fewer logical shards");
}

/// Batch norm waits for all shards in the middle of a pass, so none may wait for another one to be over.
void verify_sync_ranks(const Recipe& r, int world_size) {
  if (world_size == r.logical_shards) return;
  std::string works = "start " + std::to_string(r.logical_shards) + (r.logical_shards == 1 ? " rank" : " ranks");
  if ((world_size & (world_size - 1)) == 0) works += ", or use --logical-shards " + std::to_string(world_size);
  throw UserError("--sync-bn on " + std::to_string(world_size) + (world_size == 1 ? " rank" : " ranks") +
                      " with --logical-shards " + std::to_string(r.logical_shards),
                  "batch norm over the whole batch needs all shards at the same time, so the number of ranks must "
                  "equal the logical shards",
                  works);
}

}  // namespace

void verify(const Recipe& r) {
  Recipe::visit(r, [&](const char* key, const auto& value, const char*, bool) {
    if constexpr (std::is_floating_point_v<std::remove_cvref_t<decltype(value)>>)
      require(std::isfinite(value), key, toml_number(value), "the number is not finite", "give a finite number");
  });
  verify_texts(r);
  verify_words(r);
  verify_numbers(r);
  verify_rates(r);
  verify_limits(r);
  Augmentation::parse(r.augment);
  verify_order(r);
  split_batches(r.global_batch, r.global_batch, r.logical_shards, true, r.accumulate);
  if (r.val_batch > 0 && r.val_batch % r.logical_shards != 0) {
    throw UserError("--val-batch " + std::to_string(r.val_batch),
                    "it is not divisible by --logical-shards " + std::to_string(r.logical_shards),
                    "use a multiple of " + std::to_string(r.logical_shards));
  }
  verify_mixing(r);
  if (r.sync_bn && r.accumulate > 1) {
    throw UserError("--sync-bn with --accumulate " + std::to_string(r.accumulate),
                    "micro-batches pass one after the other, so statistics cannot take in the whole batch",
                    "leave one of them away");
  }
  if (!r.init_from.empty() && (r.init != "model" || r.zero_gamma)) {
    throw UserError(r.zero_gamma ? "--zero-gamma" : "--init " + r.init, "--init-from sets every weight",
                    "give one of them");
  }
  if (!r.init_from.empty() && r.resume != "auto" && r.resume != "no") {
    throw UserError("--init-from with --resume " + r.resume,
                    "the checkpoint that the run goes on from sets every weight",
                    "leave out one of them; --resume auto takes --init-from where there is no checkpoint yet");
  }
  if (!r.resolution.empty()) parse_resolution(r.resolution);
  parse_fault(r.inject_fault);
}

std::optional<double> dropout_rate(const Recipe& recipe) {
  const std::string& text = recipe.dropout;
  if (text.empty()) return std::nullopt;
  double rate = -1.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rate);
  if (error != std::errc{} || end != text.data() + text.size()) rate = -1.0;
  require(rate >= 0.0 && static_cast<float>(rate) < 1.0f, "dropout", text,
          "the rate must be a number in [0, 1) as a float32", "use for example 0.2");
  return rate;
}

std::int64_t validation_batch(const Recipe& recipe) {
  return recipe.val_batch > 0 ? recipe.val_batch : recipe.global_batch / recipe.accumulate;
}

void verify_ranks(const Recipe& r, int world_size) {
  RENAI_CHECK(world_size >= 1, std::to_string(world_size) + " ranks");
  require_at_least("logical-shards", r.logical_shards, 1);
  if (const int rank = parse_fault(r.inject_fault).rank; rank >= world_size) {
    throw UserError("--inject-fault " + r.inject_fault, "the ranks are 0 to " + std::to_string(world_size - 1),
                    "name one of them");
  }
  if (r.sync_bn) verify_sync_ranks(r, world_size);
  if (world_size <= r.logical_shards && r.logical_shards % world_size == 0) return;
  int below = 1;
  while (below * 2 <= world_size && below * 2 <= r.logical_shards) below *= 2;
  std::string works = "use " + std::to_string(below);
  if (below * 2 <= r.logical_shards) works += " or " + std::to_string(below * 2);
  works += " ranks";
  if (world_size > r.logical_shards) {
    int shards = r.logical_shards;
    while (shards < world_size) shards *= 2;
    if (shards % world_size == 0) works += ", or --logical-shards " + std::to_string(shards);
  }
  throw UserError(std::to_string(world_size) + " ranks with --logical-shards " + std::to_string(r.logical_shards),
                  "the number of ranks must divide the logical shards", works);
}

std::string to_toml(const Recipe& recipe, bool only_result) {
  std::string text;
  Recipe::visit(recipe, [&](const char* key, const auto& value, const char*, bool changes_result) {
    if (only_result && !changes_result) return;
    text += std::string(key) + " = " + toml_value(value) + "\n";
  });
  return text;
}

std::vector<ResolutionPhase> parse_resolution(const std::string& text) {
  const auto fail = [&text](const std::string& why) -> UserError {
    return UserError("--resolution " + text, why, "write SIZE or SIZE@EPOCH,SIZE@EPOCH,... such as 128@0,160@6");
  };
  std::vector<ResolutionPhase> phases;
  if (text.empty()) throw fail("it is empty");
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    const std::string part = text.substr(start, end - start);
    start = end + 1;
    ResolutionPhase phase;
    const std::size_t at = part.find('@');
    const std::string size = part.substr(0, at);
    const std::string epoch = at == std::string::npos ? (phases.empty() ? "0" : "") : part.substr(at + 1);
    const auto read = [&](const std::string& word, auto& value) {
      const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), value);
      if (error != std::errc{} || rest != word.data() + word.size()) throw fail("'" + part + "' is not SIZE@EPOCH");
    };
    read(size, phase.size);
    read(epoch, phase.epoch);
    if (phase.size < 1 || phase.size > 16384) throw fail("a size lies between 1 and 16384");
    if (phases.empty() && phase.epoch != 0) throw fail("the first phase starts at epoch 0");
    if (!phases.empty() && phase.epoch <= phases.back().epoch) throw fail("epochs must rise");
    phases.push_back(phase);
  }
  return phases;
}

}  // namespace renai
