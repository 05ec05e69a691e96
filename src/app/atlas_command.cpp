#include <cstdio>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "renai/base/text.hpp"
#include "renai/graph/region_name.hpp"
#include "renai/graph/shape_inference.hpp"
#include "renai/io/atomic_file.hpp"

namespace renai {
namespace {

struct Compiled {
  Blueprint blueprint;
  double capture_seconds = -1;
  std::int64_t executables = 0;
};

Compiled compile(const Recipe& recipe, const JobData& data, const Run& run, const BlueprintOptions& options,
                 bool capture) {
  Compiled compiled{make_blueprint(recipe, data.shape, *run.backend, *run.communicator, options)};
  compare_fingerprints(*run.control, fingerprint(compiled.blueprint.graph, compiled.blueprint.book,
                                                 compiled.blueprint.plans, compiled.blueprint.atlas));
  if (capture) compiled.capture_seconds = Engine(compiled.blueprint, run).capture_seconds();
  for (const CaptureKey& key : compiled.blueprint.atlas.captures()) {
    for (const KernelEntry& entry : compiled.blueprint.book.of(key.id))
      compiled.executables += entry.nodes.empty() ? 0 : 1;
  }
  return compiled;
}

AtlasReport report_of(const Compiled& compiled, const Run& run) {
  AtlasReport report;
  report.graph = &compiled.blueprint.graph;
  report.book = &compiled.blueprint.book;
  report.plans = compiled.blueprint.plans;
  report.atlas = &compiled.blueprint.atlas;
  report.capture_seconds = compiled.capture_seconds;
  report.device = run.device->info().model;
  return report;
}

std::string compare_row(const char* what, double with, double without, int decimals) {
  char text[160];
  std::snprintf(text, sizeof text, "  %-34s %14.*f %14.*f\n", what, decimals, with, decimals, without);
  return text;
}

/// With deduplication beside without: captures, recorded kernels, capture time, arena.
std::string compare_dedup(const Compiled& with, const Compiled& without) {
  std::string text = "deduplication                            with        without\n";
  text += compare_row("captures", static_cast<double>(with.blueprint.atlas.captures().size()),
                      static_cast<double>(without.blueprint.atlas.captures().size()), 0);
  text += compare_row("recorded kernels", static_cast<double>(with.executables),
                      static_cast<double>(without.executables), 0);
  text += compare_row("capture time (ms)", with.capture_seconds * 1e3, without.capture_seconds * 1e3, 1);
  text += compare_row("arena (MiB)", static_cast<double>(with.blueprint.plans.front().arena_bytes) / 1048576.0,
                      static_cast<double>(without.blueprint.plans.front().arena_bytes) / 1048576.0, 2);
  return text;
}

std::string compare_reuse(const Blueprint& blueprint) {
  const MemoryPlan& plan = blueprint.plans.front();
  char text[200];
  std::snprintf(text, sizeof text, "transient region %s, without slot reuse %s: %.3fx\n",
                format_bytes(plan.transient_bytes).c_str(), format_bytes(plan.transient_no_reuse_bytes).c_str(),
                static_cast<double>(plan.transient_bytes) /
                    static_cast<double>(std::max<std::int64_t>(plan.transient_no_reuse_bytes, 1)));
  return text;
}

}  // namespace

int command_atlas(World& world, const Recipe& recipe, const AtlasArguments& arguments) {
  verify(recipe);
  verify_ranks(recipe, world.world_size());
  compare_fingerprints(world.control(), recipe_fingerprint(recipe, ""));
  const JobData data = open_data(recipe, true);
  const Run run = world.choose(recipe);
  BlueprintOptions options;
  options.reuse_slots = !arguments.no_reuse;
  const bool capture = !arguments.no_capture;
  const Compiled compiled = compile(recipe, data, run, options, capture);
  const AtlasReport report = report_of(compiled, run);
  std::string extra;
  if (arguments.no_dedup) {
    options.dedup = false;
    extra = compare_dedup(compiled, compile(recipe, data, run, options, capture));
  }
  if (world.rank() != 0) return 0;
  if (!arguments.html.empty()) replace_text(arguments.html, to_html(report));
  if (arguments.json) {
    std::printf("%s\n", to_json(report).c_str());
  } else if (arguments.dot) {
    std::printf("%s\n", to_dot(report).c_str());
  } else {
    std::printf("%s\n%s\n%s%s",
                print_model(compiled.blueprint.graph, compiled.blueprint.specs.front().shape.shape()).c_str(),
                print_table(report).c_str(), compare_reuse(compiled.blueprint).c_str(), extra.c_str());
  }
  return 0;
}

}  // namespace renai
