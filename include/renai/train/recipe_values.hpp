#pragma once
// RecipeValues: the options of a training run with their defaults. recipe.hpp names and describes each.

#include <cstdint>
#include <string>

namespace renai {

/// The fields of a recipe.
struct RecipeValues {
  std::string model = "cnn-small";
  std::string data = "datasets/fashion-mnist";
  std::string val_data;
  std::string run_dir;
  double epochs = 5;
  std::int64_t steps = 0;
  std::int64_t global_batch = 128;
  std::int64_t val_batch = 0;
  int logical_shards = 8;
  int accumulate = 1;
  std::string device = "auto";
  std::string precision = "fp32";
  std::string optimizer = "sgd";
  double lr = 0.1;
  double momentum = 0.9;
  bool nesterov = true;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double lars_eta = 0.001, lars_eps = 1e-8;
  double weight_decay = 5e-4;
  bool bn_weight_decay = false;
  std::string lr_schedule = "cosine";
  double warmup_epochs = 0.5;
  double lr_step_epochs = 30;
  double lr_gamma = 0.1;
  std::string lr_milestones;
  double lr_power = 1.0;
  double lr_min = 0.0;
  double lr_cycle_epochs = 10;
  int lr_cycle_mult = 1;
  double lr_decay_epochs = 1;
  double lr_pct_start = 0.3;
  double lr_div_factor = 25;
  double lr_final_div_factor = 1e4;
  std::string lr_points;
  double label_smoothing = 0.0;
  std::string augment = "none";
  double mixup = 0.0;
  double cutmix = 0.0;
  double random_erasing = 0.0;
  std::string dropout;
  std::string init = "model";
  bool zero_gamma = false;
  double clip_norm = 0.0;
  std::string loss_scale = "auto";
  int loss_scale_interval = 2000;
  double ema = 0.0;
  std::string freeze_until;
  std::string freeze_after;
  double bn_momentum = 0.0;
  bool sync_bn = false;
  std::string resolution;
  std::int64_t val_resolution = 0;
  double val_crop = 0;
  std::string shuffle = "global";
  int shuffle_window = 8;
  std::uint64_t seed = 1;
  std::string reduce = "tree";
  std::string kernel_search = "heuristic";
  std::string plan_cache;
  bool allow_shared_gpu = false;
  double bucket_mib = 4.0;
  std::int64_t verify_every = 50;
  std::string trace;
  std::int64_t checkpoint_every = 0;
  int keep = 3;
  std::string resume = "no";
  std::string init_from;
  int threads = 1;
  int loader_threads = 1;
  bool cache = false;
  std::string read_mode = "auto";
  bool verify_data = false;
  std::int64_t log_every = 50;
  double watchdog_seconds = 60;
  std::int64_t max_bad_steps = 20;
  std::string inject_fault;
};

}  // namespace renai
