// RunLog: metrics, summary and the place of an earlier run.
#include "renai/train/run_log.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "data_files.hpp"

namespace renai {
namespace {

using nlohmann::json;
using testing::Folder;
using testing::slurp;
using testing::spill;

std::vector<json> lines_of(const std::filesystem::path& path) {
  std::vector<json> lines;
  std::istringstream text(slurp(path));
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
  return lines;
}

std::set<std::string> keys_of(const json& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

TEST(Summary, HoldsTheFieldsOfTheContractWithTheirValues) {
  Summary summary;
  summary.epochs = 2.5;
  summary.steps = 1234;
  summary.world_size = 4;
  summary.logical_shards = 8;
  summary.device = "cpu";
  summary.seed = std::numeric_limits<std::uint64_t>::max();
  summary.train_loss = 0.25;
  summary.val_top1 = 0.875;
  summary.val_top5 = 1;
  summary.val_images = 10000;
  summary.images_per_second_median = 1500.5;
  summary.startup_seconds = 1.5;
  summary.peak_device_bytes = std::int64_t{5} << 30;
  summary.captured_graphs = 21;
  summary.reused_slots = 12;
  summary.digest = "00ff";
  summary.skipped_steps = 3;
  const json expected{{"status", "completed"},
                      {"epochs", 2.5},
                      {"steps", 1234},
                      {"world_size", 4},
                      {"logical_shards", 8},
                      {"device", "cpu"},
                      {"precision", "fp32"},
                      {"seed", summary.seed},
                      {"train_loss", 0.25},
                      {"val_top1", 0.875},
                      {"val_top5", 1.0},
                      {"val_images", 10000},
                      {"images_per_second_median", 1500.5},
                      {"startup_seconds", 1.5},
                      {"peak_device_bytes", summary.peak_device_bytes},
                      {"captured_graphs", 21},
                      {"reused_slots", 12},
                      {"digest", "00ff"},
                      {"skipped_steps", 3},
                      {"reduce", "tree"}};
  const json found = json::parse(to_json(summary));
  for (const auto& [key, value] : expected.items()) {
    ASSERT_TRUE(found.contains(key)) << key;
    EXPECT_EQ(found[key], value) << key;
  }
  EXPECT_FALSE(found.contains("error"));
}

TEST(Summary, AFailureIsToldAndNotANumberIsNull) {
  Summary summary;
  summary.status = "failed";
  summary.error = "rank 1 \"stalled\"\nat step 3";
  summary.train_loss = std::numeric_limits<double>::quiet_NaN();
  summary.val_loss = std::numeric_limits<double>::infinity();
  const json found = json::parse(to_json(summary));
  EXPECT_EQ(found["status"], "failed");
  EXPECT_EQ(found["error"], summary.error);
  EXPECT_TRUE(found["train_loss"].is_null());
  EXPECT_TRUE(found["val_loss"].is_null());
}

TEST(RunLog, WritesOneObjectALine) {
  const Folder folder;
  RunLog log(folder / "run", 0, false);
  log.train({.step = 50,
             .epoch = 0.5,
             .loss = 1.25,
             .lr = 0.1,
             .images_per_second = 900,
             .data_wait_ms = 0.5,
             .step_ms = 12,
             .grad_norm = 3},
            100);
  log.train({.step = 100, .epoch = 1, .loss = std::numeric_limits<double>::quiet_NaN(), .lr = 0.05}, 100);
  log.validation({.step = 100, .images = 640, .epoch = 1, .top1 = 0.5, .top5 = 0.75, .loss = 1.5});
  const std::vector<json> lines = lines_of(folder / "run/metrics.jsonl");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], (json{{"kind", "train"},
                            {"step", 50},
                            {"epoch", 0.5},
                            {"loss", 1.25},
                            {"lr", 0.1},
                            {"images_per_second", 900.0},
                            {"data_wait_ms", 0.5},
                            {"step_ms", 12.0},
                            {"grad_norm", 3.0},
                            {"loss_scale", 1.0}}));
  EXPECT_EQ(keys_of(lines[1]), keys_of(lines[0]));
  EXPECT_TRUE(lines[1]["loss"].is_null());
  EXPECT_EQ(lines[2], (json{{"kind", "val"},
                            {"step", 100},
                            {"epoch", 1.0},
                            {"top1", 0.5},
                            {"top5", 0.75},
                            {"loss", 1.5},
                            {"images", 640},
                            {"ema", false}}));
}

TEST(RunLog, WritesTextsRanksAndSummary) {
  const Folder folder;
  RunLog log(folder / "deep/run", 0, false);
  log.write_text("recipe.toml", "lr = 0.1\n");
  HostTopology topology;
  topology.places.resize(2);
  topology.places[0].host = "a";
  topology.places[0].device = "cpu";
  topology.places[1].rank = 1;
  topology.places[1].host = "b";
  log.write_ranks(topology);
  Summary summary;
  summary.steps = 9;
  log.finish(summary);
  EXPECT_EQ(slurp(folder / "deep/run/recipe.toml"), "lr = 0.1\n");
  EXPECT_EQ(slurp(folder / "deep/run/summary.json"), to_json(summary));
  const json ranks = json::parse(slurp(folder / "deep/run/ranks.json"));
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[0]["device"], "cpu");
  EXPECT_EQ(ranks[1]["rank"], 1);
  EXPECT_EQ(ranks[1]["host"], "b");
  for (const char* key : {"uuid", "numa_node"}) EXPECT_TRUE(ranks[0].contains(key)) << key;
}

TEST(RunLog, MovesEarlierRunsAside) {
  const Folder folder;
  for (const char* text : {"first", "second", "third"}) {
    const RunLog log(folder / "run", 0, false);
    log.write_text("recipe.toml", text);
  }
  EXPECT_EQ(slurp(folder / "run/recipe.toml"), "third");
  EXPECT_EQ(slurp(folder / "run.1/recipe.toml"), "first");
  EXPECT_EQ(slurp(folder / "run.2/recipe.toml"), "second");
  EXPECT_FALSE(std::filesystem::exists(folder / "run.3"));
}

TEST(RunLog, MovesEachKindOfLeftoverAsideButNotOtherFiles) {
  for (const char* name : {"metrics.jsonl", "summary.json", "checkpoints"}) {
    const Folder folder;
    std::filesystem::create_directories(folder / "run");
    spill(folder / "run" / name, "x");
    const RunLog log(folder / "run", 0, false);
    EXPECT_EQ(slurp(folder / "run.1" / name), "x") << name;
  }
  const Folder folder;
  std::filesystem::create_directories(folder / "run");
  spill(folder / "run/notes.txt", "x");
  const RunLog log(folder / "run", 0, false);
  EXPECT_FALSE(std::filesystem::exists(folder / "run.1"));
  EXPECT_EQ(slurp(folder / "run/notes.txt"), "x");
}

TEST(RunLog, AContinuedRunStartsAtItsCheckpoint) {
  const Folder folder;
  const auto line_of = [](std::int64_t step) {
    TrainLine line;
    line.step = step;
    return line;
  };
  ValLine validation;
  validation.step = 2;
  {
    RunLog log(folder / "run", 0, false);
    for (std::int64_t step = 1; step <= 4; ++step) log.train(line_of(step), 4);
    log.validation(validation);
  }
  const std::filesystem::path metrics = folder / "run/metrics.jsonl",
                              partial = folder / "run/checkpoints/a.h5.1-0.partial";
  spill(metrics, slurp(metrics) + "{\"kind\":\"train\",\"st");
  std::filesystem::create_directories(partial.parent_path());
  spill(partial, "half");
  ASSERT_TRUE(std::filesystem::exists(partial));
  {
    RunLog log(folder / "run", 0, true);
    EXPECT_FALSE(std::filesystem::exists(partial));
    log.rewind(2, false);
    EXPECT_EQ(lines_of(metrics).size(), 3u);
    log.train(line_of(3), 4);
  }
  const std::vector<json> lines = lines_of(metrics);
  ASSERT_EQ(lines.size(), 4u);
  for (const std::size_t i : {0u, 1u, 3u}) EXPECT_EQ(lines[i]["step"], i < 3 ? i + 1 : 3u) << i;
  EXPECT_EQ(lines[2]["kind"], "val");
  RunLog log(folder / "run", 0, true);
  log.rewind(2, true);
  EXPECT_EQ(lines_of(metrics).size(), 2u);
}

TEST(RunLog, AContinuedRunAppends) {
  const Folder folder;
  for (const std::int64_t step : {1, 2}) {
    RunLog log(folder / "run", 0, true);
    log.train({.step = step}, 2);
  }
  const std::vector<json> lines = lines_of(folder / "run/metrics.jsonl");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["step"], 1);
  EXPECT_EQ(lines[1]["step"], 2);
  EXPECT_FALSE(std::filesystem::exists(folder / "run.1"));
}

TEST(RunLog, TheSummaryOfAnEarlierAttemptIsNotThatOfAContinuedRun) {
  const Folder folder;
  for (const int rank : {0, 1}) {
    std::filesystem::create_directories(folder / "run");
    spill(folder / "run/summary.json", "earlier");
    const RunLog log(folder / "run", rank, true);
    EXPECT_EQ(std::filesystem::exists(folder / "run/summary.json"), rank != 0);
  }
}

TEST(RunLog, AFailureIsWrittenWhateverElseFails) {
  const Folder folder;
  const Log console;
  Summary summary;
  summary.steps = 3;
  RunLog log(folder / "run", 0, false);
  log.finish_failed(summary, "no peers", console);
  const json found = json::parse(slurp(folder / "run/summary.json"));
  EXPECT_EQ(found["status"], "failed");
  EXPECT_EQ(found["error"], "no peers");
  EXPECT_EQ(found["steps"], 3);
  std::filesystem::remove_all(folder / "run");
  spill(folder / "run", "no folder any more");
  log.finish_failed(summary, "no peers", console);
  EXPECT_EQ(slurp(folder / "run"), "no folder any more");
}

TEST(RunLog, OtherRanksWriteNothing) {
  const Folder folder;
  RunLog log(folder / "run", 1, false);
  log.train({.step = 1}, 2);
  log.validation({.step = 1});
  log.write_text("recipe.toml", "x");
  log.write_ranks({});
  log.finish({});
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
}

TEST(RunLog, APlaceThatCannotBeADirectoryIsAResourceError) {
  const Folder folder;
  spill(folder / "file", "x");
  const std::string message =
      testing::message_of<ResourceError>([&] { const RunLog log(folder / "file/run", 0, false); });
  EXPECT_NE(message.find((folder / "file/run").string()), std::string::npos) << message;
}

}  // namespace
}  // namespace renai
