#pragma once
// Recipe: every option of a training run, in one table that the command line, TOML files and the run directory share.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "renai/plan/compile_spec.hpp"
#include "renai/train/recipe_values.hpp"

namespace renai {

/// The options, and the table that gives each its name, its help and its meaning for the result.
struct Recipe : RecipeValues {
  /// Calls f(key, field, help, changes_result) for every option in a fixed order. `changes_result` marks what the trace
  /// header's identity depends on and what ranks must agree in.
  template <typename Self, typename F>
  static void visit(Self& r, F&& f) {
    f("model", r.model, "named model or a TOML file", true);
    f("data", r.data, "data set directory (HDF5 shards with a manifest)", false);
    f("val-data", r.val_data, "data set whose 'val' split is used for validation (default: --data)", false);
    f("run-dir", r.run_dir, "run directory (default: runs/DATA-MODEL-TIME)", false);
    f("epochs", r.epochs, "epochs to train", true);
    f("steps", r.steps, "stop after this many optimizer steps (0: by --epochs)", true);
    f("global-batch", r.global_batch, "samples of one step over ALL ranks", true);
    f("val-batch", r.val_batch, "validation samples over ALL ranks (default: --global-batch / --accumulate)", true);
    f("logical-shards", r.logical_shards, "V: shards of a batch, a power of two; ranks must divide it", true);
    f("accumulate", r.accumulate, "K: micro-batches of a shard, one after the other, for one optimizer step", true);
    f("device", r.device, "auto (a GPU where there is one), cuda, cpu or reference", true);
    f("precision", r.precision, "fp32, tf32, bf16 or fp16 (with fp32 master weights)", true);
    visit_optimizer(r, f);
    visit_schedule(r, f);
    f("label-smoothing", r.label_smoothing, "share of the label spread over all classes", true);
    f("augment", r.augment, "none, or a list of flip, cropN, resized-crop, colour, such as resized-crop,flip,colour0.4",
      true);
    visit_regularisation(r, f);
    f("clip-norm", r.clip_norm, "largest global gradient norm (0: off)", true);
    f("ema", r.ema, "decay of an exponential moving average of weights and running statistics (0: off)", true);
    f("freeze-until", r.freeze_until, "layers kept as they are before an epoch: NAME@EPOCH,..., or first@EPOCH", true);
    f("freeze-after", r.freeze_after, "layers kept as they are from an epoch on: NAME@EPOCH,...", true);
    f("bn-momentum", r.bn_momentum, "share of a step in batch norm's running statistics (0: each layer's own)", true);
    f("sync-bn", r.sync_bn,
      "batch norm takes the statistics of the whole global batch; needs as many ranks as --logical-shards", true);
    visit_images(r, f);
    f("seed", r.seed, "seed of weights, order and augmentation", true);
    f("reduce", r.reduce,
      "tree: one fixed reduction tree, the same bits on any number of ranks; fast: the GPU library's own all-reduce",
      true);
    f("kernel-search", r.kernel_search, "heuristic: kernels chosen without timing; measure: timed once, then kept",
      true);
    f("plan-cache", r.plan_cache, "folder of kernel plans, or no (default: renai in the user's cache folder)", false);
    f("allow-shared-gpu", r.allow_shared_gpu, "let several ranks use one GPU (slow; for tests)", false);
    f("bucket-mib", r.bucket_mib, "size of a gradient bucket in MiB", false);
    f("verify-every", r.verify_every, "steps between comparisons of all ranks' digests (0: at checkpoints only)",
      false);
    f("trace", r.trace, "file that gets one line of digests a step", false);
    f("checkpoint-every", r.checkpoint_every, "steps between checkpoints (0: at the end only)", false);
    f("keep", r.keep, "checkpoints kept", false);
    f("resume", r.resume, "auto, no, or a checkpoint to continue from", false);
    f("init-from", r.init_from, "checkpoint or HDF5 file to take the first weights from", false);
    f("threads", r.threads, "compute threads of a rank (a constant of the run, never the core count)", true);
    f("loader-threads", r.loader_threads, "input threads of a rank", false);
    f("cache", r.cache, "read the whole data set into each host's memory first, shared by its ranks", false);
    f("read-mode", r.read_mode,
      "how shards are read: cached (through the page cache), direct (past it) or auto (direct where the data set has "
      "over twice the memory that is free)",
      false);
    f("verify-data", r.verify_data, "compare each sample read with its digest", false);
    f("log-every", r.log_every, "steps between metrics lines", false);
    f("watchdog-seconds", r.watchdog_seconds, "longest wait for another rank", false);
    f("loss-scale", r.loss_scale, "auto (dynamic in fp16), dynamic or none: factor of the loss that grows and shrinks",
      true);
    f("loss-scale-interval", r.loss_scale_interval, "good steps after which a dynamic loss scale doubles", true);
    f("max-bad-steps", r.max_bad_steps, "give up after this many consecutive non-finite steps", true);
    f("inject-fault", r.inject_fault,
      "fault drill: flip@STEP:RANK, overflow@STEP:RANK, stall@STEP:RANK, stall@capture:RANK or exit@STEP:RANK", false);
  }

 private:
  template <typename Self, typename F>
  static void visit_optimizer(Self& r, F& f) {
    f("optimizer", r.optimizer, "sgd, lars (rates by layer), adam (L2 decay) or adamw (decoupled decay)", true);
    f("lr", r.lr, "peak learning rate", true);
    f("momentum", r.momentum, "sgd, lars: momentum", true);
    f("nesterov", r.nesterov, "sgd, lars: Nesterov momentum", true);
    f("beta1", r.beta1, "adam, adamw: share that the mean of the gradient keeps of itself in a step", true);
    f("beta2", r.beta2, "adam, adamw: likewise the mean of its square", true);
    f("eps", r.eps, "adam, adamw: added to the root of that mean", true);
    f("lars-eta", r.lars_eta, "lars: a layer's rate is this times |weights| / |gradient|", true);
    f("lars-eps", r.lars_eps, "lars: added to that ratio's denominator", true);
    f("weight-decay", r.weight_decay, "decay of convolution and linear weights: L2, with adamw decoupled", true);
    f("bn-weight-decay", r.bn_weight_decay, "decay batch-norm parameters and biases too", true);
  }

  template <typename Self, typename F>
  static void visit_images(Self& r, F& f) {
    f("resolution", r.resolution, "training resolutions SIZE@EPOCH,... (default: the model's or the data set's)", true);
    f("val-resolution", r.val_resolution, "validation resolution (default: the last training resolution)", true);
    f("val-crop", r.val_crop,
      "share of the shorter side that validation sees, 0.875: as resizing to 256 and cropping 224 (default: that for "
      "JPEG images, all of raw ones)",
      true);
    f("shuffle", r.shuffle,
      "order of training samples: global (a permutation of all), block (whole shards in random order, some of them "
      "mixed at a time) or none (as stored)",
      true);
    f("shuffle-window", r.shuffle_window, "shards that --shuffle block mixes at a time", true);
  }

  template <typename Self, typename F>
  static void visit_regularisation(Self& r, F& f) {
    f("mixup", r.mixup, "alpha of mixup: blends pairs of a shard by a share drawn from Beta(alpha, alpha) (0: off)",
      true);
    f("cutmix", r.cutmix,
      "alpha of cutmix: pastes a box of the partner, 1 - Beta(alpha, alpha) of the area (0: off); with --mixup each "
      "shard's step takes one of them, with even chances",
      true);
    f("random-erasing", r.random_erasing, "probability that a box of 2 to 33 % of a training image is erased", true);
    f("dropout", r.dropout,
      "rate of every dropout layer, or of one put before the last linear layer where the model has none (default: the "
      "model's)",
      true);
    f("init", r.init,
      "how weights start: model (what the model says), kaiming-normal, kaiming-uniform, xavier-normal, xavier-uniform, "
      "trunc-normal or torchvision",
      true);
    f("zero-gamma", r.zero_gamma,
      "the last batch norm of each residual block starts at 0, so that a block starts as "
      "its shortcut",
      true);
  }

  template <typename Self, typename F>
  static void visit_schedule(Self& r, F& f) {
    f("lr-schedule", r.lr_schedule,
      "constant, step, multistep, exponential, polynomial, cosine, cosine-restarts, wsd (warm-up, stable, decay), "
      "onecycle or piecewise",
      true);
    f("warmup-epochs", r.warmup_epochs, "epochs of linear warm-up before any schedule", true);
    f("lr-step-epochs", r.lr_step_epochs, "step: epochs between decays", true);
    f("lr-gamma", r.lr_gamma, "step, multistep: factor of a decay; exponential: factor of an epoch", true);
    f("lr-milestones", r.lr_milestones, "multistep: epochs of the decays, such as 30,60,80", true);
    f("lr-power", r.lr_power, "polynomial: its power (1: linear)", true);
    f("lr-min", r.lr_min, "polynomial, cosine, cosine-restarts, wsd: rate at the end", true);
    f("lr-cycle-epochs", r.lr_cycle_epochs, "cosine-restarts: epochs of the first cycle", true);
    f("lr-cycle-mult", r.lr_cycle_mult, "cosine-restarts: each cycle is this many times as long as the last", true);
    f("lr-decay-epochs", r.lr_decay_epochs, "wsd: epochs of the linear decay at the end", true);
    f("lr-pct-start", r.lr_pct_start, "onecycle: share of the steps in which the rate rises", true);
    f("lr-div-factor", r.lr_div_factor, "onecycle: it starts at --lr divided by this", true);
    f("lr-final-div-factor", r.lr_final_div_factor, "onecycle: it ends at its start divided by this", true);
    f("lr-points", r.lr_points, "piecewise: FACTOR@EPOCH,... of --lr, linear between them, such as 0@0,1@5,0@24", true);
  }
};

/// Ranges and words of every option. Errors: UserError naming the option, the reason and what works.
void verify(const Recipe& recipe);
/// Validation samples at a time over all ranks: as many to a shard as in training where nothing else is said.
std::int64_t validation_batch(const Recipe& recipe);

/// The run must also fit the number of ranks. Errors: UserError with the nearest values that work.
void verify_ranks(const Recipe& recipe, int world_size);

/// --dropout as a number; nothing where the model's own rates stay. Errors: UserError outside of [0, 1).
std::optional<double> dropout_rate(const Recipe& recipe);

/// TOML text "key = value", one line an option, in table order. `only_result` leaves out what cannot change a bit of
/// the result.
std::string to_toml(const Recipe& recipe, bool only_result = false);

/// "128@0,160@6": phases with rising epochs from 0 on; "64" alone means 64@0. Errors: UserError.
std::vector<ResolutionPhase> parse_resolution(const std::string& text);

}  // namespace renai
