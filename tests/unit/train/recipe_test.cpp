// Recipe: ranges and words, ranks, TOML text, resolutions.
#include "renai/train/recipe.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "data_files.hpp"
#include "renai/base/lines.hpp"

namespace renai {
namespace {

using testing::message_of;

TEST(Resolution, ReadsPhases) {
  const std::vector<ResolutionPhase> one = parse_resolution("64");
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].size, 64);
  EXPECT_EQ(one[0].epoch, 0);
  const std::vector<ResolutionPhase> three = parse_resolution("128@0,160@6,192@12");
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(three[1].size, 160);
  EXPECT_EQ(three[1].epoch, 6);
  EXPECT_EQ(three[2].size, 192);
  EXPECT_EQ(three[2].epoch, 12);
  EXPECT_EQ(parse_resolution("64,32@1").size(), 2u);  // Sizes may fall, and the first epoch may be left out.
  EXPECT_EQ(parse_resolution("16384")[0].size, 16384);
}

TEST(Resolution, RefusesWhatIsNotRisingPhases) {
  struct Bad {
    const char *text, *why;
  };
  for (const Bad& bad : {Bad{"", "it is empty"},
                         {"x", "is not SIZE@EPOCH"},
                         {"64@", "is not SIZE@EPOCH"},
                         {"@0", "is not SIZE@EPOCH"},
                         {"64@0,,96@2", "is not SIZE@EPOCH"},
                         {"64@0,", "is not SIZE@EPOCH"},
                         {"64,", "is not SIZE@EPOCH"},
                         {",", "is not SIZE@EPOCH"},
                         {"64@0, 96@2", "is not SIZE@EPOCH"},
                         {"64px", "is not SIZE@EPOCH"},
                         {"64@0,96", "is not SIZE@EPOCH"},
                         {"64@1.5", "is not SIZE@EPOCH"},
                         {"64@0@1", "is not SIZE@EPOCH"},
                         {"0", "between 1 and 16384"},
                         {"-8", "between 1 and 16384"},
                         {"16385", "between 1 and 16384"},
                         {"64@1", "starts at epoch 0"},
                         {"64@0,96@0", "epochs must rise"},
                         {"64@0,96@5,128@4", "epochs must rise"}}) {
    const std::string message = message_of<UserError>([&] { parse_resolution(bad.text); });
    EXPECT_NE(message.find("--resolution " + std::string(bad.text)), std::string::npos) << message;
    EXPECT_NE(message.find(bad.why), std::string::npos) << message;
    EXPECT_NE(message.find("128@0,160@6"), std::string::npos) << message;
  }
}

TEST(Recipe, TheDefaultsAreValid) {
  EXPECT_NO_THROW(verify(Recipe{}));
  Recipe edges;
  edges.epochs = edges.lr = edges.weight_decay = edges.warmup_epochs = 0;
  edges.momentum = 0;
  edges.nesterov = false;
  edges.global_batch = 8;
  edges.val_batch = 16;
  edges.resolution = "28@0,32@2";
  edges.inject_fault = "exit@3:0";
  EXPECT_NO_THROW(verify(edges));
  for (const char* optimizer : {"sgd", "lars", "adam", "adamw"}) {
    Recipe other;
    other.optimizer = optimizer;
    EXPECT_NO_THROW(verify(other)) << optimizer << ", though --nesterov is on";
  }
  for (const char* precision : {"fp32", "tf32", "bf16", "fp16"}) {
    edges.precision = precision;
    EXPECT_NO_THROW(verify(edges)) << "the backend decides";
  }
}

TEST(Recipe, EveryBadValueIsNamedWithARemedy) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  struct Bad {
    std::function<void(Recipe&)> change;
    const char *names, *remedy;
  };
  const std::vector<Bad> all{
      {[](Recipe& r) { r.device = "referense"; }, "--device referense", "did you mean 'reference'?"},
      {[](Recipe& r) { r.device = "gpu"; }, "--device gpu", "auto, cpu, cuda, reference"},
      {[](Recipe& r) { r.device = "abacus"; }, "--device abacus", "use auto, cpu, cuda, reference"},
      {[](Recipe& r) { r.precision = "fp3"; }, "--precision fp3", "did you mean 'fp32'?"},
      {[](Recipe& r) { r.optimizer = "adagradient"; }, "--optimizer adagradient", "sgd, lars, adam, adamw"},
      {[](Recipe& r) { r.lr_schedule = "cosin"; }, "--lr-schedule cosin", "did you mean 'cosine'?"},
      {[](Recipe& r) { r.reduce = "quick"; }, "--reduce quick", "tree"},
      {[](Recipe& r) { r.kernel_search = "measured"; }, "--kernel-search measured", "measure"},
      {[](Recipe& r) { r.epochs = -1; }, "--epochs -1", "use at least 0"},
      {[](Recipe& r) { r.steps = -1; }, "--steps -1", "use at least 0"},
      {[](Recipe& r) { r.global_batch = 0; }, "--global-batch 0", "use at least 1"},
      {[](Recipe& r) { r.global_batch = 100; }, "--global-batch 100", "96 and 104"},
      {[](Recipe& r) { r.val_batch = 20; }, "--val-batch 20", "use a multiple of 8"},
      {[](Recipe& r) { r.val_batch = -8; }, "--val-batch -8", "use at least 0"},
      {[](Recipe& r) { r.logical_shards = 6; }, "--logical-shards 6", "use 1, 2, 4, 8"},
      {[](Recipe& r) { r.logical_shards = 0; }, "--logical-shards 0", "use at least 1"},
      {[](Recipe& r) { r.lr = -0.1; }, "--lr -0.1", "use at least 0"},
      {[](Recipe& r) { r.augment = "flop"; }, "--augment flop", "did you mean 'flip'?"},
      {[](Recipe& r) { r.mixup = -0.2; }, "--mixup -0.2", "use for example 0.2"},
      {[](Recipe& r) { r.cutmix = -1; }, "--cutmix -1", "use for example 1"},
      {[](Recipe& r) { r.mixup = 1e7; }, "--mixup 1e+07", "use at most"},
      {[](Recipe& r) { r.mixup = 0.2, r.global_batch = 8; }, "--mixup 0.2", "--global-batch 16 or more"},
      {[](Recipe& r) { r.cutmix = 1, r.global_batch = 8; }, "--cutmix 1", "--global-batch 16 or more"},
      {[](Recipe& r) { r.mixup = 1, r.global_batch = 16, r.accumulate = 2; }, "--mixup 1", "--global-batch 32 or more"},
      {[](Recipe& r) { r.random_erasing = -0.1; }, "--random-erasing -0.1", "0.1"},
      {[](Recipe& r) { r.random_erasing = 1.5; }, "--random-erasing 1.5", "0.1"},
      {[](Recipe& r) { r.dropout = "1"; }, "--dropout 1", "0.2"},
      {[](Recipe& r) { r.dropout = "-0.1"; }, "--dropout -0.1", "0.2"},
      {[](Recipe& r) { r.dropout = "nan"; }, "--dropout nan", "0.2"},
      {[](Recipe& r) { r.dropout = "half"; }, "--dropout half", "0.2"},
      {[](Recipe& r) { r.init = "kaiming-norm"; }, "--init kaiming-norm", "did you mean 'kaiming-normal'?"},
      {[](Recipe& r) { r.watchdog_seconds = 1e300; }, "--watchdog-seconds", "use at most"},
      {[](Recipe& r) { r.global_batch = std::int64_t{1} << 40; }, "--global-batch 1099511627776", "use at most"},
      {[](Recipe& r) { r.lr = kNan; }, "--lr nan", "give a finite number"},
      {[](Recipe& r) { r.clip_norm = INFINITY; }, "--clip-norm inf", "give a finite number"},
      {[](Recipe& r) { r.momentum = 1; }, "--momentum 1", "0.9"},
      {[](Recipe& r) { r.momentum = -0.5; }, "--momentum -0.5", "use at least 0"},
      {[](Recipe& r) { r.momentum = 0; }, "--nesterov true", "set --momentum above 0"},
      {[](Recipe& r) { r.beta1 = 1; }, "--beta1 1", "must lie in [0, 1)"},
      {[](Recipe& r) { r.beta2 = -0.1; }, "--beta2 -0.1", "must lie in [0, 1)"},
      {[](Recipe& r) { r.eps = 0; }, "--eps 0", "must be above 0"},
      {[](Recipe& r) { r.eps = 1e-60; }, "--eps 1e-60", "must be above 0"},
      {[](Recipe& r) { r.lars_eps = -1; }, "--lars-eps -1", "must be above 0"},
      {[](Recipe& r) { r.lars_eta = 0; }, "--lars-eta 0", "no weight would move"},
      {[](Recipe& r) { r.beta1 = 0.8; }, "--beta1 0.8; it has no meaning for --optimizer sgd", "--momentum"},
      {[](Recipe& r) { r.beta2 = 0.8; }, "--beta2 0.8; it has no meaning for --optimizer sgd", "adamw"},
      {[](Recipe& r) { r.eps = 0.5; }, "--eps 0.5; it has no meaning for --optimizer sgd", "adamw"},
      {[](Recipe& r) { r.lars_eta = 0.5; }, "--lars-eta 0.5; it has no meaning for --optimizer sgd", "lars"},
      {[](Recipe& r) { r.optimizer = "lars", r.eps = 0.5; }, "--eps 0.5", "use --lars-eps"},
      {[](Recipe& r) { r.optimizer = "lars", r.momentum = 0; }, "--nesterov true", "set --momentum above 0"},
      {[](Recipe& r) { r.optimizer = "adam", r.momentum = 0.5; }, "--momentum 0.5; it has no meaning", "use --beta1"},
      {[](Recipe& r) { r.optimizer = "adamw", r.lars_eps = 0.5; }, "--lars-eps 0.5", "use --optimizer lars"},
      {[](Recipe& r) { r.weight_decay = -1; }, "--weight-decay -1", "use at least 0"},
      {[](Recipe& r) { r.warmup_epochs = -1; }, "--warmup-epochs -1", "use at least 0"},
      {[](Recipe& r) { r.lr_step_epochs = 0; }, "--lr-step-epochs 0", "30"},
      {[](Recipe& r) { r.lr_gamma = 0; }, "--lr-gamma 0", "0.1"},
      {[](Recipe& r) { r.lr_power = -1; }, "--lr-power -1", "use at least 0"},
      {[](Recipe& r) { r.lr_min = -1; }, "--lr-min -1", "use at least 0"},
      {[](Recipe& r) { r.lr_min = 0.2; }, "--lr-min 0.2", "use at most --lr"},
      {[](Recipe& r) { r.lr_cycle_epochs = 0; }, "--lr-cycle-epochs 0", "10"},
      {[](Recipe& r) { r.lr_cycle_mult = 0; }, "--lr-cycle-mult 0", "use at least 1"},
      {[](Recipe& r) { r.lr_cycle_mult = 1001; }, "--lr-cycle-mult 1001", "use at most 1000"},
      {[](Recipe& r) { r.lr_decay_epochs = -1; }, "--lr-decay-epochs -1", "use at least 0"},
      {[](Recipe& r) { r.lr_pct_start = 1.5; }, "--lr-pct-start 1.5", "0.3"},
      {[](Recipe& r) { r.lr_div_factor = 0.5; }, "--lr-div-factor 0.5", "use at least 1"},
      {[](Recipe& r) { r.lr_final_div_factor = 0; }, "--lr-final-div-factor 0", "use at least 1"},
      {[](Recipe& r) { r.lr_schedule = "multistep"; }, "milestones are not given", "--lr-milestones 30,60"},
      {[](Recipe& r) { r.lr_milestones = "30,x"; }, "--lr-milestones 30,x; 'x' is not a number", "30,60,80"},
      {[](Recipe& r) { r.lr_milestones = "30,"; }, "--lr-milestones 30,; '' is not a number", "30,60,80"},
      {[](Recipe& r) { r.lr_milestones = "60,30"; }, "--lr-milestones 60,30; epochs must rise", "30,60,80"},
      {[](Recipe& r) { r.lr_milestones = "nan"; }, "--lr-milestones nan", "30,60,80"},
      {[](Recipe& r) { r.lr_milestones = "-3"; }, "--lr-milestones -3", "30,60,80"},
      {[](Recipe& r) { r.lr_schedule = "piecewise"; }, "points are not given", "--lr-points 0@0,1@5,0@24"},
      {[](Recipe& r) { r.lr_points = "0@0,1"; }, "--lr-points 0@0,1; '1' is not FACTOR@EPOCH", "0@0,1@5,0@24"},
      {[](Recipe& r) { r.lr_points = "0@0,1@0"; }, "--lr-points 0@0,1@0; epochs must rise", "0@0,1@5,0@24"},
      {[](Recipe& r) { r.lr_points = "-1@0"; }, "--lr-points -1@0", "between 0 and 1000000"},
      {[](Recipe& r) { r.lr_milestones = "30,60"; },
       "--lr-milestones 30,60; it has no meaning for --lr-schedule cosine", "use --lr-schedule multistep"},
      {[](Recipe& r) { r.lr_schedule = "multistep", r.lr_milestones = "3", r.lr_power = 2; }, "--lr-power 2",
       "polynomial"},
      {[](Recipe& r) { r.lr_schedule = "constant", r.lr_min = 0.01; }, "--lr-min 0.01", "cosine-restarts or wsd"},
      {[](Recipe& r) { r.lr_gamma = 0.5; }, "--lr-gamma 0.5", "step or multistep or exponential"},
      {[](Recipe& r) { r.lr_step_epochs = 5; }, "--lr-step-epochs 5", "use --lr-schedule step"},
      {[](Recipe& r) { r.lr_cycle_epochs = 5; }, "--lr-cycle-epochs 5", "use --lr-schedule cosine-restarts"},
      {[](Recipe& r) { r.lr_cycle_mult = 2; }, "--lr-cycle-mult 2", "use --lr-schedule cosine-restarts"},
      {[](Recipe& r) { r.lr_decay_epochs = 2; }, "--lr-decay-epochs 2", "use --lr-schedule wsd"},
      {[](Recipe& r) { r.lr_pct_start = 0.5; }, "--lr-pct-start 0.5", "use --lr-schedule onecycle"},
      {[](Recipe& r) { r.lr_div_factor = 5; }, "--lr-div-factor 5", "use --lr-schedule onecycle"},
      {[](Recipe& r) { r.lr_final_div_factor = 5; }, "--lr-final-div-factor 5", "use --lr-schedule onecycle"},
      {[](Recipe& r) { r.lr_points = "1@0"; }, "--lr-points 1@0", "use --lr-schedule piecewise"},
      {[](Recipe& r) { r.init_from = "a.h5", r.resume = "b.h5"; }, "--init-from with --resume b.h5",
       "leave out one of them"},
      {[](Recipe& r) { r.label_smoothing = 1; }, "--label-smoothing 1", "[0, 1)"},
      {[](Recipe& r) { r.clip_norm = -1; }, "--clip-norm -1", "use at least 0"},
      {[](Recipe& r) { r.accumulate = 0; }, "--accumulate 0", "use at least 1"},
      {[](Recipe& r) { r.accumulate = 3; }, "--global-batch 128", "the nearest batches that work are 120 and 144"},
      {[](Recipe& r) { r.accumulate = 1 << 20; }, "--accumulate 1048576", "use at most 8192"},
      {[](Recipe& r) { r.ema = 1; }, "--ema 1", "[0, 1)"},
      {[](Recipe& r) { r.ema = -0.5; }, "--ema -0.5", "[0, 1)"},
      {[](Recipe& r) { r.bn_momentum = 1.5; }, "--bn-momentum 1.5", "[0, 1]"},
      {[](Recipe& r) { r.resolution = "64@3"; }, "--resolution 64@3", "epoch 0"},
      {[](Recipe& r) { r.val_resolution = -1; }, "--val-resolution -1", "use at least 0"},
      {[](Recipe& r) { r.bucket_mib = 0; }, "--bucket-mib 0", "4"},
      {[](Recipe& r) { r.bucket_mib = 1e-7; }, "--bucket-mib 1e-07", "a byte at least"},
      // In float32, in which steps compute, these are 1 or 0.
      {[](Recipe& r) { r.momentum = 1 - 1e-10; }, "--momentum 0.9999999999", "float32"},
      {[](Recipe& r) { r.label_smoothing = 1 - 1e-10; }, "--label-smoothing 0.9999999999", "float32"},
      {[](Recipe& r) { r.dropout = "0.9999999999"; }, "--dropout 0.9999999999", "float32"},
      {[](Recipe& r) { r.clip_norm = 1e-50; }, "--clip-norm 1e-50", "would switch it off"},
      {[](Recipe& r) { r.bn_momentum = 1e-50; }, "--bn-momentum 1e-50", "would switch it off"},
      {[](Recipe& r) { r.verify_every = -1; }, "--verify-every -1", "use at least 0"},
      {[](Recipe& r) { r.checkpoint_every = -1; }, "--checkpoint-every -1", "use at least 0"},
      {[](Recipe& r) { r.keep = 0; }, "--keep 0", "use at least 1"},
      {[](Recipe& r) { r.threads = 0; }, "--threads 0", "use at least 1"},
      {[](Recipe& r) { r.loader_threads = 0; }, "--loader-threads 0", "use at least 1"},
      {[](Recipe& r) { r.log_every = 0; }, "--log-every 0", "use at least 1"},
      {[](Recipe& r) { r.watchdog_seconds = 0; }, "--watchdog-seconds 0", "use "},
      {[](Recipe& r) { r.max_bad_steps = 0; }, "--max-bad-steps 0", "use at least 1"},
      {[](Recipe& r) { r.inject_fault = "flip@x:0"; }, "--inject-fault flip@x:0", "flip@STEP:RANK"},
  };
  for (const Bad& bad : all) {
    Recipe recipe;
    bad.change(recipe);
    const std::string message = message_of<UserError>([&] { verify(recipe); });
    EXPECT_NE(message.find(bad.names), std::string::npos) << bad.names << " is not in: " << message;
    EXPECT_NE(message.find(bad.remedy), std::string::npos) << bad.remedy << " is not in: " << message;
  }
}

TEST(Recipe, RanksMustDivideTheLogicalShards) {
  Recipe recipe;
  for (const int ranks : {1, 2, 4, 8}) EXPECT_NO_THROW(verify_ranks(recipe, ranks)) << ranks;
  struct Bad {
    int ranks;
    const char* remedy;
  };
  for (const Bad& bad : {Bad{3, "use 2 or 4 ranks"},
                         {5, "use 4 or 8 ranks"},
                         {12, "use 8 ranks"},
                         {16, "use 8 ranks, or --logical-shards 16"}}) {
    const std::string message = message_of<UserError>([&] { verify_ranks(recipe, bad.ranks); });
    EXPECT_EQ(message, std::to_string(bad.ranks) +
                           " ranks with --logical-shards 8; the number of ranks must divide the logical shards; " +
                           bad.remedy);
  }
}

TEST(Recipe, SyncBnNeedsARankForEachShard) {
  Recipe recipe;
  recipe.sync_bn = true;
  EXPECT_NO_THROW(verify_ranks(recipe, 8));
  struct Bad {
    int ranks;
    const char *given, *remedy;
  };
  for (const Bad& bad : {Bad{1, "--sync-bn on 1 rank with", "start 8 ranks, or use --logical-shards 1"},
                         {4, "--sync-bn on 4 ranks with", "start 8 ranks, or use --logical-shards 4"},
                         {3, "--sync-bn on 3 ranks with", "start 8 ranks"},
                         {16, "--sync-bn on 16 ranks with", "start 8 ranks, or use --logical-shards 16"}}) {
    EXPECT_EQ(message_of<UserError>([&] { verify_ranks(recipe, bad.ranks); }),
              std::string(bad.given) +
                  " --logical-shards 8; batch norm over the whole batch needs all shards at the same time, so the "
                  "number of ranks must equal the logical shards; " +
                  bad.remedy);
  }
  recipe.accumulate = 2;
  const std::string message = message_of<UserError>([&] { verify(recipe); });
  EXPECT_NE(message.find("--sync-bn with --accumulate 2"), std::string::npos) << message;
}

TEST(Recipe, ThereIsAtLeastOneRankAndOneShard) {
  Recipe recipe;
  EXPECT_THROW(verify_ranks(recipe, 0), InternalError);
  EXPECT_THROW(verify_ranks(recipe, -2), InternalError);
  recipe.logical_shards = 0;
  EXPECT_THROW(verify_ranks(recipe, 2), UserError);
}

TEST(Recipe, AFaultNeedsARankThatExists) {
  Recipe recipe;
  recipe.inject_fault = "exit@3:1";
  EXPECT_NO_THROW(verify_ranks(recipe, 2));
  const std::string message = message_of<UserError>([&] { verify_ranks(recipe, 1); });
  EXPECT_EQ(message, "--inject-fault exit@3:1; the ranks are 0 to 0; name one of them");
}

TEST(Recipe, TomlHoldsEveryOptionInTableOrder) {
  Recipe recipe;
  recipe.model = "a \"quoted\\path\".toml";
  recipe.lr = 0.1;
  recipe.weight_decay = 1e-7;
  recipe.nesterov = false;
  recipe.seed = std::numeric_limits<std::uint64_t>::max();
  const std::vector<std::string> lines = lines_of(to_toml(recipe));
  std::vector<std::string> keys;
  Recipe::visit(recipe, [&](const char* key, const auto&, const char*, bool) { keys.emplace_back(key); });
  EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()).size(), keys.size()) << "a key stands twice";
  ASSERT_EQ(lines.size(), keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(lines[i].rfind(keys[i] + " = ", 0), 0u) << lines[i];
  const std::set<std::string> all(lines.begin(), lines.end());
  for (const char* line : {R"(model = "a \"quoted\\path\".toml")", "lr = 0.1", "weight-decay = 1e-07",
                           "nesterov = false", "bn-weight-decay = false", "seed = 18446744073709551615",
                           "global-batch = 128", R"(resume = "no")", R"(run-dir = "")"}) {
    EXPECT_EQ(all.count(line), 1u) << line;
  }
}

TEST(Recipe, TomlNumbersThatNoIntegerHoldsHaveAPoint) {
  Recipe recipe;
  for (const auto& [value, line] : {std::pair{5.0, "lr = 5\n"},
                                    {-0.0, "lr = -0.0\n"},
                                    {12345678901234567168.0, "lr = 12345678901234567168.0\n"},
                                    {1e30, "lr = 1e+30\n"}}) {
    recipe.lr = value;
    EXPECT_NE(to_toml(recipe).find(line), std::string::npos) << to_toml(recipe);
  }
}

TEST(Recipe, TheResultTextLeavesOutWhatCannotChangeABit) {
  Recipe one, two;
  two.data = "elsewhere";
  two.run_dir = "r";
  two.bucket_mib = 1;
  two.verify_every = 1;
  two.trace = "t";
  two.checkpoint_every = 5;
  two.keep = 9;
  two.resume = "auto";
  two.loader_threads = 4;
  two.log_every = 1;
  two.watchdog_seconds = 5;
  EXPECT_EQ(to_toml(one, true), to_toml(two, true));
  EXPECT_NE(to_toml(one), to_toml(two));
  for (const auto& change : std::vector<std::function<void(Recipe&)>>{
           [](Recipe& r) { r.lr = 0.2; }, [](Recipe& r) { r.seed = 2; }, [](Recipe& r) { r.logical_shards = 4; },
           [](Recipe& r) { r.global_batch = 64; }, [](Recipe& r) { r.threads = 2; },
           [](Recipe& r) { r.augment = "flip"; }, [](Recipe& r) { r.model = "mlp"; }}) {
    Recipe other;
    change(other);
    EXPECT_NE(to_toml(one, true), to_toml(other, true));
  }
}

}  // namespace
}  // namespace renai
