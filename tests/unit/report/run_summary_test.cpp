// What is read from a run directory.
#include "renai/report/run_summary.hpp"

#include <gtest/gtest.h>

#include "data_files.hpp"

namespace renai {
namespace {

using testing::Folder;
using testing::message_of;
using testing::spill;

constexpr const char* kMetrics =
    R"({"kind":"train","step":50,"epoch":0.5,"loss":1.25}
{"kind":"val","step":100,"epoch":1.0,"top1":0.875,"top5":0.96875,"loss":null,"images":640,"ema":false}
)";

/// A finished run with two checkpoints.
class RunDirectory : public ::testing::Test {
 protected:
  RunDirectory() {
    std::filesystem::create_directories(folder_ / "checkpoints");
    spill(folder_ / "recipe.toml", "lr = 0.1\n");
    spill(folder_ / "metrics.jsonl", kMetrics);
    spill(folder_ / "summary.json", R"({"status": "completed", "steps": 100, "train_loss": null})");
    for (const char* name : {"step-00000100.h5", "step-00000050.h5", "latest"}) {
      spill(folder_ / "checkpoints" / name, "");
    }
  }
  Folder folder_;
};

TEST_F(RunDirectory, IsKnownByItsFiles) {
  EXPECT_TRUE(is_run_directory(folder_.path()));
  std::filesystem::remove(folder_ / "recipe.toml");
  EXPECT_FALSE(is_run_directory(folder_.path()));
  EXPECT_FALSE(is_run_directory(folder_ / "nowhere"));
}

TEST_F(RunDirectory, TheSummaryListsFiguresValidationsAndCheckpoints) {
  EXPECT_EQ(summarize_run(folder_.path(), false),
            "run " + folder_.path().string() +
                "\n  status completed\n  steps 100\n  train_loss null\n"
                "validations\n  step 100  top-1 0.875  top-5 0.96875  images 640\n"
                "checkpoints\n  step-00000050.h5\n  step-00000100.h5\n");
}

TEST_F(RunDirectory, JsonIsTheFileItself) {
  EXPECT_EQ(summarize_run(folder_.path(), true), testing::slurp(folder_ / "summary.json"));
}

TEST_F(RunDirectory, ARunWithoutSummaryIsToldAsUnfinished) {
  std::filesystem::remove(folder_ / "summary.json");
  const std::string text = summarize_run(folder_.path(), false);
  EXPECT_NE(text.find("still running or was killed"), std::string::npos) << text;
  EXPECT_NE(text.find("step 100  top-1 0.875"), std::string::npos) << text;
  EXPECT_NE(text.find("step-00000050.h5"), std::string::npos) << text;
  const std::string message = message_of<DataError>([&] { summarize_run(folder_.path(), true); });
  EXPECT_NE(message.find((folder_ / "summary.json").string()), std::string::npos) << message;
}

TEST_F(RunDirectory, ALineThatAKilledRunDidNotEndIsLeftOut) {
  const std::string whole = summarize_run(folder_.path(), false);
  spill(folder_ / "metrics.jsonl", std::string(kMetrics) + "{\"kind\":\"va");
  EXPECT_EQ(summarize_run(folder_.path(), false), whole);
}

TEST_F(RunDirectory, JsonThatIsNotWhatARunWritesIsDamageToo) {
  for (const char* line :
       {"[1]", "7", "null", R"({"kind":"val"})", R"({"kind":"val","step":"x","top1":0,"top5":0,"images":1})",
        R"({"kind":"val","step":1,"top1":null,"top5":0,"images":1})",
        R"({"kind":"val","step":1,"top1":0,"top5":[],"images":1})"}) {
    spill(folder_ / "metrics.jsonl", std::string(kMetrics) + line + "\n");
    const std::string message = message_of<DataError>([&] { summarize_run(folder_.path(), false); });
    EXPECT_NE(message.find((folder_ / "metrics.jsonl").string() + ":3; "), std::string::npos) << message;
    EXPECT_NE(message.find("take that line out"), std::string::npos) << message;
  }
  spill(folder_ / "metrics.jsonl", std::string(kMetrics) + "{\"kind\":[1]}\n{\"kind\":\"of later versions\"}\n");
  EXPECT_NO_THROW(summarize_run(folder_.path(), false));
  spill(folder_ / "summary.json", "[1]");
  const std::string message = message_of<DataError>([&] { summarize_run(folder_.path(), false); });
  EXPECT_NE(message.find((folder_ / "summary.json").string()), std::string::npos) << message;
}

TEST_F(RunDirectory, DamageIsNamedWithFileAndLine) {
  spill(folder_ / "summary.json", "{\"status\": ");
  std::string message = message_of<DataError>([&] { summarize_run(folder_.path(), false); });
  EXPECT_NE(message.find((folder_ / "summary.json").string()), std::string::npos) << message;
  spill(folder_ / "summary.json", "{}");
  spill(folder_ / "metrics.jsonl", std::string(kMetrics) + "{\"kind\":\"va\n");
  message = message_of<DataError>([&] { summarize_run(folder_.path(), false); });
  EXPECT_NE(message.find((folder_ / "metrics.jsonl").string() + ":3"), std::string::npos) << message;
  std::filesystem::remove(folder_ / "metrics.jsonl");
  message = message_of<DataError>([&] { summarize_run(folder_.path(), false); });
  EXPECT_NE(message.find("metrics.jsonl"), std::string::npos) << message;
}

}  // namespace
}  // namespace renai
