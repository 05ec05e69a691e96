// Traces: what is written, and what trace_diff says.
#include "renai/train/trace.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "data_files.hpp"

namespace renai {
namespace {

using testing::Folder;
using testing::message_of;
using testing::slurp;
using testing::spill;

using Header = std::vector<std::pair<std::string, std::string>>;
const Header kHeader{{"model", "lenet5"}, {"seed", "1"}};

TraceStep step_of(std::int64_t step) {
  TraceStep line;
  line.step = step;
  line.epoch = step / 2;
  line.loss = 2.0f - 0.25f * static_cast<float>(step);
  for (std::size_t r = 0; r < 4; ++r) line.digest.regions[r] = {static_cast<std::uint64_t>(step), r};
  line.sample_ids = {step, step + 1};
  return line;
}

void write_trace(const std::filesystem::path& path, const Header& header = kHeader, std::int64_t steps = 4,
                 const std::function<void(TraceStep&)>& change = {}) {
  TraceWriter writer(path, header);
  for (std::int64_t step = 0; step < steps; ++step) {
    TraceStep line = step_of(step);
    if (change) change(line);
    writer.write(line);
    if (step == 1) writer.write_validation(step, 1.5, 3, 10);
  }
}

class TraceDiff : public ::testing::Test {
 protected:
  TraceDifference diff() const { return trace_diff(folder_ / "a", folder_ / "b"); }
  Folder folder_;
};

TEST_F(TraceDiff, EqualTracesAreIdentical) {
  write_trace(folder_ / "a");
  write_trace(folder_ / "b");
  EXPECT_EQ(slurp(folder_ / "a"), slurp(folder_ / "b"));
  EXPECT_TRUE(diff().identical);
  EXPECT_EQ(diff().text, "identical over 4 steps");
}

TEST_F(TraceDiff, NamesTheFirstStepAndRegionThatDiffer) {
  struct Case {
    const char* region;
    std::size_t index;
  };
  for (const Case& one : {Case{"weights", 0}, {"optimizer", 1}, {"bn_running", 2}, {"grad", 3}}) {
    write_trace(folder_ / "a");
    write_trace(folder_ / "b", kHeader, 4, [&](TraceStep& line) {
      if (line.step >= 2) line.digest.regions[one.index].high ^= 64;
    });
    const TraceDifference found = diff();
    EXPECT_FALSE(found.identical);
    EXPECT_EQ(found.text.rfind("first difference at step 2: '" + std::string(one.region) + "'", 0), 0u) << found.text;
  }
}

TEST_F(TraceDiff, TheGradientIsNamedBeforeTheWeightsThatItChanged) {
  write_trace(folder_ / "a");
  write_trace(folder_ / "b", kHeader, 4, [](TraceStep& line) {
    for (Digest128& region : line.digest.regions) region.low += line.step == 3 ? 1 : 0;
  });
  EXPECT_EQ(diff().text.rfind("first difference at step 3: 'grad'", 0), 0u) << diff().text;
}

TEST_F(TraceDiff, ComparesTheBitsOfTheLoss) {
  write_trace(folder_ / "a", kHeader, 2, [](TraceStep& line) { line.loss = 0.0f; });
  write_trace(folder_ / "b", kHeader, 2, [](TraceStep& line) { line.loss = -0.0f; });
  EXPECT_EQ(diff().text, "first difference at step 0: 'loss': \"00000000\" against \"80000000\"");
  const auto not_a_number = [](TraceStep& line) { line.loss = std::numeric_limits<float>::quiet_NaN(); };
  write_trace(folder_ / "a", kHeader, 2, not_a_number);
  write_trace(folder_ / "b", kHeader, 2, not_a_number);
  EXPECT_TRUE(diff().identical) << diff().text;
}

TEST_F(TraceDiff, NamesTheOrderOfSamples) {
  write_trace(folder_ / "a");
  write_trace(folder_ / "b", kHeader, 4, [](TraceStep& line) {
    if (line.step == 1) std::swap(line.sample_ids[0], line.sample_ids[1]);
  });
  EXPECT_EQ(diff().text.rfind("first difference at step 1: 'ids_digest'", 0), 0u) << diff().text;
}

TEST_F(TraceDiff, NamesAValidationThatDiffers) {
  for (const double hits : {3.0, 4.0}) {
    TraceWriter writer(folder_ / (hits == 3.0 ? "a" : "b"), kHeader);
    writer.write(step_of(0));
    writer.write_validation(0, 1.5, hits, 10);
  }
  EXPECT_FALSE(diff().identical);
  EXPECT_EQ(diff().text.rfind("first difference at the validation after step 0: 'top1_hits'", 0), 0u) << diff().text;
}

TEST_F(TraceDiff, HeaderDifferencesStandFirst) {
  write_trace(folder_ / "a", {{"model", "lenet5"}, {"seed", "1"}, {"old", "x"}});
  write_trace(folder_ / "b", {{"model", "lenet5"}, {"seed", "2"}, {"new", "y"}}, 4, [](TraceStep& line) {
    if (line.step == 1) line.digest.regions[0].low += 9;
  });
  const std::string expected =
      "header differs in 'seed': \"1\" against \"2\"\n"
      "header differs in 'old': \"x\" against \"(absent)\"\n"
      "header differs in 'new': (absent) against \"y\"\n"
      "first difference at step 1: 'weights'";
  EXPECT_EQ(diff().text.substr(0, expected.size()), expected);
  EXPECT_FALSE(diff().identical);
}

TEST_F(TraceDiff, OtherHeadersWithEqualStepsAreIdenticalAndSaySo) {
  write_trace(folder_ / "a", {{"world_size", "1"}});
  write_trace(folder_ / "b", {{"world_size", "4"}});
  EXPECT_TRUE(diff().identical);
  EXPECT_EQ(diff().text, "header differs in 'world_size': \"1\" against \"4\"\nidentical over 4 steps");
}

TEST_F(TraceDiff, AShorterTraceIsNotIdentical) {
  write_trace(folder_ / "a", kHeader, 4);
  write_trace(folder_ / "b", kHeader, 3);
  EXPECT_FALSE(diff().identical);
  EXPECT_EQ(diff().text, "one trace ends before step 3; identical over 3 steps until there");
  EXPECT_EQ(trace_diff(folder_ / "b", folder_ / "a").text, diff().text);
}

TEST_F(TraceDiff, TracesWithoutStepsProveNothing) {
  write_trace(folder_ / "a", kHeader, 0);
  write_trace(folder_ / "b", kHeader, 0);
  EXPECT_FALSE(diff().identical);
}

TEST_F(TraceDiff, DamagedFilesAreNamedWithTheLine) {
  write_trace(folder_ / "a");
  const std::string good = slurp(folder_ / "a");
  const std::string at = (folder_ / "b").string();
  struct Case {
    std::string bytes, names;
  };
  for (const Case& one : {Case{good.substr(0, good.size() - 20), at + ":6"},
                          {"{\"kind\":\"header\"}\nno JSON\n", at + ":2"},
                          {"{\"kind\":\"header\"}\n[1]\n", at + ":2"},
                          {"{\"kind\":\"header\"}\n{\"step\":1}\n", at + ":2"},
                          {"", at},
                          {good.substr(good.find('\n') + 1), "no header"}}) {
    spill(folder_ / "b", one.bytes);
    const std::string second = message_of<DataError>([&] { diff(); });
    EXPECT_NE(second.find(one.names), std::string::npos) << second;
    EXPECT_THROW(trace_diff(folder_ / "b", folder_ / "a"), DataError);
  }
  const std::string missing = message_of<UserError>([&] { trace_diff(folder_ / "a", folder_ / "none"); });
  EXPECT_NE(missing.find((folder_ / "none").string()), std::string::npos) << missing;
}

/// Lines that are JSON and none of a trace's, and what is said of them.
struct OddLine {
  const char* text;
  const char* why;
};
constexpr OddLine kOddLines[] = {
    {R"({"kind":"step"})", "it names no step"},
    {R"({"kind":"val","loss":"00"})", "it names no step"},
    {R"({"kind":"step","step":null})", "its step is null"},
    {R"({"kind":"step","step":"3"})", "its step is \"3\""},
    {R"({"kind":"step","step":[3]})", "its step is [3]"},
    {R"({"kind":"step","step":1.5})", "its step is 1.5"},
    {R"({"kind":"step","step":-1})", "its step is -1"},
    {R"({"kind":"step","step":18446744073709551615})", "its step is 18446744073709551615"},
    {R"({"kind":"header","model":"lenet5"})", "a second header"},
    {R"({"kind":"other","step":1})", "not a line of a trace"},
    {R"({"kind":7,"step":1})", "not a line of a trace"},
    {R"({"kind":{},"step":1})", "not a line of a trace"},
    {R"({"step":1})", "not a line of a trace"},
    {"[1]", "not a line of a trace"},
    {"null", "not a line of a trace"},
    {"", "not a line of a trace"},
};

TEST_F(TraceDiff, OddLinesAreDamageThatIsNamed) {
  write_trace(folder_ / "a");
  const std::string good = slurp(folder_ / "a");
  for (const OddLine& odd : kOddLines) {
    spill(folder_ / "b", good + odd.text + "\n");
    const std::string message = message_of<DataError>([&] { diff(); });
    EXPECT_NE(message.find((folder_ / "b").string() + ":7; "), std::string::npos) << odd.text << message;
    EXPECT_NE(message.find(odd.why), std::string::npos) << odd.text << message;
  }
}

TEST(TraceWriter, RefusesToGoOnBehindOddLines) {
  const Folder folder;
  write_trace(folder / "whole");
  const std::string good = slurp(folder / "whole");
  for (const OddLine& odd : kOddLines) {
    const std::string odd_trace = good + odd.text + "\n";
    spill(folder / "odd", odd_trace);
    const std::string message = message_of<DataError>([&] { TraceWriter(folder / "odd", kHeader, 3); });
    EXPECT_NE(message.find((folder / "odd").string() + ":7; "), std::string::npos) << odd.text << message;
    EXPECT_NE(message.find(odd.why), std::string::npos) << odd.text << message;
    EXPECT_NE(message.find("move that file away"), std::string::npos) << message;
    EXPECT_EQ(slurp(folder / "odd"), odd_trace);
  }
}

TEST(TraceWriter, GoesOnBehindALineThatAKilledRunDidNotEnd) {
  const Folder folder;
  write_trace(folder / "whole");
  const std::string good = slurp(folder / "whole");
  for (const std::size_t cut : {std::size_t{1}, std::size_t{20}, good.size() - good.rfind('{') - 1}) {
    spill(folder / "torn", good.substr(0, good.size() - cut));
    {
      TraceWriter writer(folder / "torn", kHeader, 3);
      writer.write(step_of(3));
    }
    EXPECT_EQ(slurp(folder / "torn"), good) << cut;
  }
}

TEST(TraceWriter, AValidationThatComesAgainStandsOnce) {
  const Folder folder;
  write_trace(folder / "a", kHeader, 2);
  const std::string good = slurp(folder / "a");
  { TraceWriter writer(folder / "a", kHeader, 2); }
  EXPECT_EQ(slurp(folder / "a"), good);
  {
    TraceWriter writer(folder / "a", kHeader, 1, true);
    writer.write_validation(1, 1.5, 3, 10);
  }
  const std::string again = slurp(folder / "a");
  EXPECT_EQ(again.find("\"val\""), again.rfind("\"val\""));
  EXPECT_NE(again.find("\"val\""), std::string::npos);
}

TEST(TracePlace, IsNotThatOfAnotherFile) {
  const Folder folder;
  const std::filesystem::path run = folder / "run";
  const auto refusal = [&](const std::filesystem::path& path) {
    return message_of<UserError>([&] { require_trace_place(path, run); });
  };
  EXPECT_NO_THROW(require_trace_place(folder / "none", run));
  EXPECT_NO_THROW(require_trace_place("/dev/null", run));
  EXPECT_NO_THROW(require_trace_place(run / "trace", run));
  write_trace(folder / "trace");
  EXPECT_NO_THROW(require_trace_place(folder / "trace", run));
  for (const char* left : {"", "{\"ki"}) {
    spill(folder / "killed", left);
    EXPECT_NO_THROW(require_trace_place(folder / "killed", run));
  }
  for (const char* other : {"{\"format\": 1}", "x", "name = \"my-net\"\n"}) {
    spill(folder / "other", other);
    EXPECT_NE(refusal(folder / "other").find("that file is there and is no trace"), std::string::npos) << other;
  }
  // Before the run has written them, too, and however they are named.
  for (const char* name :
       {"metrics.jsonl", "summary.json", "../run/atlas.json", "./recipe.toml", "checkpoints/latest"}) {
    EXPECT_NE(refusal(run / name).find("a file of its own"), std::string::npos) << name;
  }
}

TEST(TraceWriter, NamesTheFileThatCannotBeWritten) {
  const Folder folder;
  const std::string message = message_of<ResourceError>([&] { TraceWriter(folder / "no/folder/trace", kHeader); });
  EXPECT_NE(message.find((folder / "no/folder/trace").string()), std::string::npos) << message;
}

}  // namespace
}  // namespace renai
