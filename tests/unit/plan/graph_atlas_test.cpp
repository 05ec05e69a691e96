#include "renai/plan/graph_atlas.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "plan_case.hpp"
#include "renai/base/error.hpp"

namespace renai {
namespace {

struct Counts {
  int used, captures, reused;
  bool operator==(const Counts&) const = default;
};

Counts counts_of(const GraphAtlas& atlas) {
  return {atlas.used_slots(), static_cast<int>(atlas.captures().size()), atlas.reused_slots()};
}

/// The default recipe: cnn-small on 60,000 + 10,000 images, batch 128, eight shards, six variants.
/// All variants share 15 graphs on one rank (the digest among them); reductions add 3 on several ranks, and with one
/// shard on each rank the two merges are empty.
TEST(GraphAtlas, DefaultRecipeHasPinnedCounts) {
  const auto counts = [](int world_size, bool dedup) {
    const PlanCase plan(PlanOptions{"cnn-small", world_size});
    const GraphAtlas atlas = build_atlas(plan.graph, plan.specs, dedup);
    EXPECT_NO_THROW(verify(atlas, plan.graph));
    EXPECT_EQ(atlas.variant_count(), 6);
    return counts_of(atlas);
  };
  // Shared graphs s, 4 x 5 training and 2 x 2 inference slots; captures: s + 2 x 5 + 2 x 2.
  EXPECT_EQ(counts(1, true), (Counts{6 * 15 + 24, 15 + 14, 85}));
  EXPECT_EQ(counts(2, true), (Counts{6 * 18 + 24, 18 + 14, 100}));
  EXPECT_EQ(counts(8, true), (Counts{6 * 16 + 24, 16 + 14, 90}));
  EXPECT_EQ(counts(1, false), (Counts{114, 114, 0}));
}

/// Averages add EMA_UPDATE, and INF_EMA in two slots for both validation variants.
TEST(GraphAtlas, AveragesAddFiveCaptures) {
  PlanOptions options;
  options.ema_decay = 0.5;
  const PlanCase plan(options);
  EXPECT_EQ(counts_of(build_atlas(plan.graph, plan.specs)), (Counts{6 * 16 + 28, 16 + 18, 90}));
}

/// LARS adds its three graphs, Adam none.
TEST(GraphAtlas, OptimizersHavePinnedCounts) {
  for (const auto& [kind, shared] : {std::pair{OptimizerKind::lars, 18}, {OptimizerKind::adamw, 15}}) {
    PlanOptions options;
    options.optimizer = kind;
    const PlanCase plan(options);
    EXPECT_NO_THROW(verify(plan.request, plan.plans));
    const GraphAtlas atlas = build_atlas(plan.graph, plan.specs);
    EXPECT_NO_THROW(verify(atlas, plan.graph));
    EXPECT_EQ(counts_of(atlas), (Counts{6 * shared + 24, shared + 14, 5 * shared + 10}));
    const bool lars = kind == OptimizerKind::lars;
    EXPECT_EQ(atlas.slot(0, GraphId::LARS_FC_OPT).used, lars);
    EXPECT_EQ(plan.plans[0].has_region("second_moment"), !lars);
    if (!lars) continue;
    EXPECT_EQ(atlas.slot(0, GraphId::LARS_FC_OPT).stream, StreamId::COMPUTE);
    EXPECT_EQ(atlas.slot(0, GraphId::LARS_FIRST_CONV_OPT).stream, StreamId::UPDATE);
    EXPECT_EQ(atlas.slot(0, GraphId::LARS_DEEP_CONV_OPT).stream, StreamId::UPDATE);
    EXPECT_EQ(atlas.slot(0, GraphId::LARS_DEEP_CONV_OPT).shape, kShapeInvariant);
  }
}

TEST(GraphAtlas, AScheduleOfThreeResolutionsHasEightVariants) {
  const PlanCase plan(PlanOptions{"resnet9", 1, false, 1 << 20, {{32, 0}, {36, 1}, {40, 2}}});
  const GraphAtlas atlas = build_atlas(plan.graph, plan.specs);
  EXPECT_NO_THROW(verify(plan.request, plan.plans));
  EXPECT_EQ(atlas.variant_count(), 8);
  EXPECT_EQ(counts_of(atlas), (Counts{8 * 15 + 6 * 5 + 4, 15 + 6 * 5 + 4, 7 * 15}));
}

TEST(GraphAtlas, EqualShapesShareACapture) {
  PlanOptions options;
  options.train_samples = 128;  // One batch: no partial one.
  options.val_samples = 128;
  const PlanCase plan(options);
  const GraphAtlas atlas = build_atlas(plan.graph, plan.specs);
  EXPECT_EQ(counts_of(atlas), (Counts{114, 15 + 5 + 2, 114 - 22}));
  EXPECT_EQ(atlas.slot(0, GraphId::DEEP_FWD_BWD).capture, atlas.slot(3, GraphId::DEEP_FWD_BWD).capture);
}

TEST(GraphAtlas, SlotsFollowTheFamilies) {
  const PlanCase plan(PlanOptions{"cnn-small", 2});
  const GraphAtlas atlas = build_atlas(plan.graph, plan.specs);
  EXPECT_TRUE(atlas.slot(0, GraphId::DEEP_FWD_BWD).used);
  EXPECT_FALSE(atlas.slot(4, GraphId::DEEP_FWD_BWD).used);
  EXPECT_FALSE(atlas.slot(0, GraphId::INF_MAIN_A).used);
  EXPECT_TRUE(atlas.slot(5, GraphId::INF_MAIN_B).used);
  EXPECT_FALSE(atlas.slot(0, GraphId::LARS_FC_OPT).used);
  EXPECT_EQ(atlas.slot(3, GraphId::OPTIMIZER).shape, kShapeInvariant);
  EXPECT_EQ(atlas.slot(3, GraphId::SIMPLE_TASK_GRAPH).shape, kShapeInvariant) << "digests work on regions";
  EXPECT_EQ(atlas.slot(1, GraphId::DEEP_FWD_BWD).shape, (ShapeId{12, 28, 28, 1}));
  EXPECT_EQ(atlas.slot(1, GraphId::DEEP_COMM).stream, StreamId::COMM);
  std::set<GraphId> collective;
  for (const CaptureKey& key : atlas.captures()) {
    if (key.collective) collective.insert(key.id);
  }
  EXPECT_EQ(collective, (std::set<GraphId>{GraphId::DEEP_COMM, GraphId::FIRST_COMM, GraphId::STATS_COMM,
                                           GraphId::VAL_RESULT_COMM}));
}

TEST(GraphAtlas, VerifierRefusesDamage) {
  const PlanCase plan(PlanOptions{"cnn-small", 2});
  const GraphAtlas good = build_atlas(plan.graph, plan.specs);
  const auto refused = [&](const char* what, auto change) {
    GraphAtlas::Parts parts;
    parts.specs = good.specs();
    parts.captures = good.captures();
    for (int variant = 0; variant < good.variant_count(); ++variant) {
      parts.slots.emplace_back();
      for (int id = 0; id < kGraphIdCount; ++id) {
        parts.slots.back()[static_cast<std::size_t>(id)] = good.slot(variant, static_cast<GraphId>(id));
      }
    }
    change(parts);
    EXPECT_THROW(verify(GraphAtlas(std::move(parts)), plan.graph), InternalError) << what;
  };
  constexpr auto kDeep = static_cast<std::size_t>(GraphId::DEEP_FWD_BWD);
  constexpr auto kLars = static_cast<std::size_t>(GraphId::LARS_FC_OPT);
  refused("an empty slot", [](auto& parts) { parts.slots[0][kDeep].used = false; });
  refused("a slot without a graph", [](auto& parts) { parts.slots[0][kLars].used = true; });
  refused("training in validation", [](auto& parts) { parts.slots[4][kDeep] = parts.slots[0][kDeep]; });
  refused("another plan", [](auto& parts) { parts.slots[1][kDeep].plan = 0; });
  refused("another shape", [](auto& parts) { parts.slots[1][kDeep].shape.n = 1; });
  refused("another stream", [](auto& parts) { parts.slots[1][kDeep].stream = StreamId::COMM; });
  refused("no capture", [](auto& parts) { parts.slots[1][kDeep].capture = -1; });
  refused("a capture beyond the list", [](auto& parts) { parts.slots[1][kDeep].capture = 1000; });
  refused("a foreign capture", [](auto& parts) { parts.slots[1][kDeep].capture = parts.slots[0][kDeep].capture; });
  refused("an unused capture", [](auto& parts) { parts.captures.push_back(parts.captures[0]); });
  refused("a capture without a plan", [](auto& parts) { parts.captures[0].plan = 77; });
  refused("a wrong mark", [](auto& parts) { parts.captures[0].collective = true; });
}

TEST(Fingerprint, EverySectionFollowsWhatItNames) {
  const auto sections = [](const PlanCase& plan) {
    const GraphAtlas atlas = build_atlas(plan.graph, plan.specs);
    std::map<std::string, std::string> map;
    for (auto& [name, text] : fingerprint(plan.graph, plan.book, plan.plans, atlas).sections) map[name] = text;
    return map;
  };
  const auto base = sections(PlanCase());
  EXPECT_EQ(base, sections(PlanCase())) << "equal inputs give equal fingerprints";
  for (const char* name : {"topology", "shapes", "kernels", "plans", "atlas"}) EXPECT_TRUE(base.contains(name)) << name;
  const auto differing = [&](const PlanOptions& options) {
    std::set<std::string> names;
    for (const auto& [name, text] : sections(PlanCase(options))) {
      if (base.at(name) != text) names.insert(name);
    }
    return names;
  };
  PlanOptions options;
  options.global_batch = 64;
  EXPECT_TRUE(differing(options).contains("shapes"));
  EXPECT_TRUE(differing(options).contains("plans"));
  EXPECT_FALSE(differing(options).contains("topology"));
  options = PlanOptions{};
  options.bucket_bytes = 1;
  EXPECT_TRUE(differing(options).contains("topology"));
  options = PlanOptions{};
  options.workspaces = false;
  EXPECT_TRUE(differing(options).contains("kernels"));
  EXPECT_FALSE(differing(options).contains("atlas"));
}

class Reports : public ::testing::Test {
 protected:
  Reports() : atlas_(build_atlas(plan_.graph, plan_.specs)) {
    report_.graph = &plan_.graph;
    report_.book = &plan_.book;
    report_.plans = plan_.plans;
    report_.atlas = &atlas_;
    report_.capture_seconds = 0.25;
    report_.device = "a <device> & more";
  }
  PlanCase plan_{PlanOptions{"cnn-small", 2, true}};
  GraphAtlas atlas_;
  AtlasReport report_;
};

TEST_F(Reports, TableNamesEveryGraphAndTheCounts) {
  const std::string text = print_table(report_);
  for (int i = 0; i < kGraphIdCount; ++i) {
    EXPECT_NE(text.find(graph_id_name(static_cast<GraphId>(i))), std::string::npos);
  }
  EXPECT_NE(text.find("slots 198, filled 132, captures 32 (4 collective), reused 100"), std::string::npos) << text;
  EXPECT_NE(text.find("capture time 0.250 s"), std::string::npos);
  EXPECT_NE(text.find("arena (peak)"), std::string::npos);
  report_.plans = {};
  report_.capture_seconds = -1;
  EXPECT_EQ(print_table(report_).find("capture time"), std::string::npos);
}

TEST_F(Reports, JsonHoldsTheWholeAtlas) {
  const auto json = nlohmann::json::parse(to_json(report_));
  EXPECT_EQ(json["counts"]["captures"], 32);
  EXPECT_EQ(json["slots"].size(), 6u);
  EXPECT_EQ(json["slots"][0].size(), 33u);
  EXPECT_EQ(json["graphs"].size(), 33u);
  EXPECT_TRUE(json["slots"][0][static_cast<std::size_t>(GraphId::INF_MAIN_A)].is_null());
  EXPECT_EQ(json["memory"]["arena_bytes"], plan_.plans[0].arena_bytes);
  EXPECT_EQ(json["plans"].size(), 6u);
  EXPECT_EQ(json["device"], "a <device> & more");
}

TEST_F(Reports, DotHasAClusterForEachGraphAndBalancedBraces) {
  const std::string text = to_dot(report_);
  for (int i = 0; i < kGraphIdCount; ++i) {
    const auto id = static_cast<GraphId>(i);
    EXPECT_EQ(text.find("label=\"" + std::string(graph_id_name(id)) + " (") != std::string::npos,
              !plan_.graph.empty(id));
  }
  EXPECT_EQ(std::count(text.begin(), text.end(), '{'), std::count(text.begin(), text.end(), '}'));
}

TEST_F(Reports, HtmlStandsAloneAndEscapesNames) {
  const std::string text = to_html(report_);
  EXPECT_EQ(text.rfind("<!DOCTYPE html>", 0), 0u);
  EXPECT_NE(text.find("a &lt;device&gt; &amp; more"), std::string::npos);
  EXPECT_EQ(text.find("http://"), std::string::npos) << "nothing is loaded from elsewhere";
  EXPECT_EQ(text.find("https://"), std::string::npos);
  EXPECT_EQ(text.find("<script"), std::string::npos);
  const auto count = [&](const std::string& word) {
    int found = 0;
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("<svg "), 4) << "grid, arena, and the transients of each family";
  EXPECT_EQ(count("<svg "), count("</svg>"));
  EXPECT_EQ(count(": empty</title>"), 198 - 132);
}

}  // namespace
}  // namespace renai
