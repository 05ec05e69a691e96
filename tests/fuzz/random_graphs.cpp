// The planner on random graphs with random branch schedules, six variants each.

#include <gtest/gtest.h>

#include <cstdlib>

#include "arena_replay.hpp"
#include "random_book.hpp"
#include "renai/base/error.hpp"

namespace renai {
namespace {

using namespace testing_support;

std::string replay_all(const RandomCase& random, const std::vector<MemoryPlan>& plans, RandomSource& source) {
  for (std::size_t spec = 0; spec < plans.size(); ++spec) {
    std::string problem = ArenaReplay(random.request(), plans[spec], spec, source).run();
    if (!problem.empty()) return problem;
  }
  return "";
}

bool verifies(const PlanRequest& request, const std::vector<MemoryPlan>& plans) {
  try {
    verify(request, plans);
    return true;
  } catch (const InternalError&) {
    return false;
  }
}

/// Moves one transient to another one's place, in all variants alike. Returns false when there are not two.
bool move_one(const PlanRequest& request, std::vector<MemoryPlan>& plans, RandomSource& source) {
  std::vector<std::size_t> placed;
  for (std::size_t t = 0; t < plans[0].tensors.size(); ++t) {
    const bool fixed = t < request.graph->tensors().size() && !is_transient(request.graph->tensors()[t].role);
    if (!fixed && plans[0].tensors[t].placed()) placed.push_back(t);
  }
  if (placed.size() < 2) return false;
  const std::size_t from = source.pick(placed), to = source.pick(placed);
  for (MemoryPlan& plan : plans) {
    if (plan.tensors[from].placed()) plan.tensors[from].offset_bytes = plans[0].tensors[to].offset_bytes;
  }
  return true;
}

/// 10,000 graphs; RENAI_RANDOM_GRAPHS sets another count.
TEST(RandomGraphs, NoTwoLiveTensorsOverlapAndOffsetsAgree) {
  const char* wanted = std::getenv("RENAI_RANDOM_GRAPHS");
  const int count = wanted != nullptr ? std::atoi(wanted) : 10000;
  int reused = 0, caught = 0, harmless = 0, refused = 0, overwritten = 0;
  for (int seed = 0; seed < count; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const RandomCase random = random_case(static_cast<std::uint64_t>(seed));
    const PlanRequest request = random.request();
    std::vector<MemoryPlan> plans = build_memory_plans(request);
    ASSERT_NO_THROW(verify(request, plans));
    RandomSource source(static_cast<std::uint64_t>(seed) + 1000000007u);
    ASSERT_EQ(replay_all(random, plans, source), "");
    for (const MemoryPlan& plan : plans) {
      ASSERT_LE(plan.transient_bytes, plan.transient_no_reuse_bytes);
      for (std::size_t t = 0; t < plan.tensors.size(); ++t) {
        if (!plan.tensors[t].placed()) continue;
        for (const MemoryPlan& other : plans) {
          if (!other.tensors[t].placed()) continue;
          ASSERT_EQ(plan.tensors[t].offset_bytes, other.tensors[t].offset_bytes);
        }
      }
    }
    reused += plans[0].transient_bytes < plans[0].transient_no_reuse_bytes ? 1 : 0;
    // Whatever the replay finds in a damaged plan, the verifier must have refused.
    if (!move_one(request, plans, source)) continue;
    if (verifies(request, plans)) {
      ASSERT_EQ(replay_all(random, plans, source), "") << "the verifier accepted a plan that overwrites live bytes";
      ++harmless;
      continue;
    }
    ++caught;
    if (seed % 10 != 0) continue;
    ++refused;  // The replay itself must be able to fail: one random order finds most of what is refused.
    overwritten += replay_all(random, plans, source).empty() ? 0 : 1;
  }
  EXPECT_GT(reused, count * 9 / 10);
  EXPECT_GT(caught, count / 4);
  EXPECT_GT(overwritten, refused / 2);
  RecordProperty("reused", reused);
  RecordProperty("damaged_plans_refused", caught);
  RecordProperty("damaged_plans_harmless", harmless);
}

}  // namespace
}  // namespace renai
