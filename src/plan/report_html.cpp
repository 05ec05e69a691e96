// The atlas as one self-contained page: counts, the grid, the arena, and the transients over time, drawn as SVG.

#include <algorithm>
#include <array>
#include <cstdio>

#include "renai/base/text.hpp"
#include "report_parts.hpp"

namespace renai {
namespace {

using namespace plan_detail;

constexpr std::string_view kStyle = R"(
body{font:14px/1.45 system-ui,-apple-system,"Segoe UI",sans-serif;color:#1d2530;background:#fbfbfa;margin:2rem auto;max-width:76rem;padding:0 1rem}
h1{font-size:1.5rem;margin:0 0 .2rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}p{margin:.3rem 0;color:#4a5563}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.2rem .8rem .2rem 0;text-align:left}td.n{text-align:right}
svg{display:block;max-width:100%;height:auto}svg text{font:11px system-ui,-apple-system,"Segoe UI",sans-serif;fill:#1d2530}
.cards{display:flex;flex-wrap:wrap;gap:.8rem;margin:1rem 0}.card{border:1px solid #dfe3e8;border-radius:6px;background:#fff;padding:.5rem .9rem}
.card b{display:block;font-size:1.25rem}.key{display:inline-block;width:.8rem;height:.8rem;border-radius:2px;margin:0 .35rem 0 1rem;vertical-align:-1px}
)";

/// One colour for each stream, in the order of StreamId.
constexpr std::array<std::string_view, kStreamCount> kStreamColour{"#4c8eda", "#3f9c6c", "#d98032", "#8a6cc0"};
constexpr std::string_view kEmptyColour = "#eef0f2", kReuseOpacity = "0.38";

constexpr std::string_view kActivationColour = "#3f9c6c", kGradientColour = "#d98032", kWorkspaceColour = "#8a6cc0",
                           kSavedColour = "#4c8eda";

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

struct Box {
  double x = 0, y = 0, w = 0, h = 0;
};

/// A rectangle with a tooltip.
std::string rect(const Box& box, std::string_view fill, const std::string& title, std::string_view more = "") {
  return "<rect x=\"" + number(box.x) + "\" y=\"" + number(box.y) + "\" width=\"" + number(box.w) + "\" height=\"" +
         number(box.h) + "\" fill=\"" + std::string(fill) + "\" " + std::string(more) + "><title>" +
         escape_markup(title) + "</title></rect>\n";
}

std::string text_at(double x, double y, std::string_view text, std::string_view more = "") {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" " + std::string(more) + ">" + escape_markup(text) +
         "</text>\n";
}

std::string svg(double width, double height, const std::string& body, std::string_view label) {
  return "<svg viewBox=\"0 0 " + number(width) + " " + number(height) + "\" width=\"" + number(width) + "\" height=\"" +
         number(height) + "\" role=\"img\" aria-label=\"" + escape_markup(label) + "\">\n" + body + "</svg>\n";
}

std::string key(std::string_view colour, std::string_view text) {
  return "<span class=\"key\" style=\"background:" + std::string(colour) + "\"></span>" + escape_markup(text);
}

std::string cards(const AtlasReport& report) {
  const AtlasCounts counts = count_atlas(*report.atlas);
  std::string html = "<div class=\"cards\">";
  const auto card = [&](const std::string& value, const std::string& what) {
    html += "<div class=\"card\"><b>" + escape_markup(value) + "</b>" + escape_markup(what) + "</div>";
  };
  card(std::to_string(counts.slots), "slots");
  card(std::to_string(counts.used), "filled");
  card(std::to_string(counts.captures), "captures");
  card(std::to_string(counts.reused), "reuse a capture");
  if (report.capture_seconds >= 0) card(number(report.capture_seconds * 1000) + " ms", "capture time");
  if (!report.plans.empty()) {
    card(format_bytes(report.plans[0].arena_bytes), "arena");
    card(number(100 * reuse_ratio(report.plans[0])) + " %", "of the transients without slot reuse");
  }
  return html + "</div>\n";
}

/// Variants as rows, graph ids as columns.
std::string grid(const AtlasReport& report) {
  constexpr double kLeft = 130, kTop = 205, kCell = 28;
  const GraphAtlas& atlas = *report.atlas;
  std::string body;
  for (int i = 0; i < kGraphIdCount; ++i) {
    const auto id = static_cast<GraphId>(i);
    const double x = kLeft + kCell * i + kCell / 2 + 4;
    body +=
        text_at(x, kTop - 8, graph_id_name(id), "transform=\"rotate(-90 " + number(x) + " " + number(kTop - 8) + ")\"");
    for (int variant = 0; variant < atlas.variant_count(); ++variant) {
      const CompileSpec& spec = atlas.specs()[static_cast<std::size_t>(variant)];
      const AtlasSlot& slot = atlas.slot(variant, id);
      const double y = kTop + kCell * variant;
      const Box box{kLeft + kCell * i + 1, y + 1, kCell - 2, kCell - 2};
      const std::string place = spec.name + " x " + std::string(graph_id_name(id));
      if (!slot.used) {
        body += rect(box, kEmptyColour, place + ": empty");
        continue;
      }
      const bool reuse = is_reuse(atlas, variant, id);
      const std::string title = place + ": capture " + std::to_string(slot.capture) +
                                (reuse ? " (reused)" : " (made here)") + ", " + slot.shape.str() + ", stream " +
                                std::string(stream_name(slot.stream)) + ", " +
                                std::to_string(report.graph->nodes(id).size()) + " nodes";
      body += rect(box, kStreamColour[static_cast<std::size_t>(slot.stream)], title,
                   reuse ? "fill-opacity=\"" + std::string(kReuseOpacity) + "\"" : "");
      body += text_at(box.x + box.w / 2, y + kCell / 2 + 4, std::to_string(slot.capture),
                      "text-anchor=\"middle\" pointer-events=\"none\"");
    }
  }
  for (int variant = 0; variant < atlas.variant_count(); ++variant) {
    body += text_at(kLeft - 8, kTop + kCell * variant + kCell / 2 + 4,
                    atlas.specs()[static_cast<std::size_t>(variant)].name, "text-anchor=\"end\"");
  }
  std::string html = "<h2>Atlas</h2>\n<p>";
  for (int stream = 0; stream < kStreamCount; ++stream) {
    html += key(kStreamColour[static_cast<std::size_t>(stream)], stream_name(static_cast<StreamId>(stream)));
  }
  html += "; pale: reuses the capture of an earlier variant; numbers: captures</p>\n";
  return html + svg(kLeft + kCell * kGraphIdCount + 4, kTop + kCell * atlas.variant_count() + 4, body,
                    "variants by graph ids");
}

std::string variants(const GraphAtlas& atlas) {
  std::string html = "<h2>Variants</h2>\n<table><tr><th>name</th><th>kind</th><th>N x H x W x C</th></tr>\n";
  for (const CompileSpec& spec : atlas.specs()) {
    html += "<tr><td>" + escape_markup(spec.name) + "</td><td>" +
            (spec.kind == VariantKind::training ? "training" : "validation") + "</td><td>" + spec.shape.str() +
            "</td></tr>\n";
  }
  return html + "</table>\n";
}

/// The arena from left to right, then its regions as a table.
std::string arena(const MemoryPlan& plan) {
  constexpr double kWidth = 1100, kHeight = 56;
  constexpr std::array<std::string_view, 6> kColours{"#4c8eda", "#3f9c6c", "#d98032", "#8a6cc0", "#c25b7a", "#6b8791"};
  const double scale = plan.arena_bytes > 0 ? kWidth / static_cast<double>(plan.arena_bytes) : 0;
  std::string body, rows;
  std::size_t next = 0;
  for (const Region& region : outer_regions(plan)) {
    const std::string_view colour = kColours[next++ % kColours.size()];
    const Box box{static_cast<double>(region.offset_bytes) * scale, 2, static_cast<double>(region.size_bytes) * scale,
                  kHeight - 20};
    const std::string title =
        region.name + ": " + format_bytes(region.size_bytes) + " at " + std::to_string(region.offset_bytes);
    body += rect(box, colour, title);
    if (box.w > 7.0 * static_cast<double>(region.name.size())) {
      body += text_at(box.x + 4, kHeight - 6, region.name);
    }
    rows += "<tr><td>" + key(colour, region.name) + "</td><td class=\"n\">" + format_bytes(region.size_bytes) +
            "</td><td class=\"n\">" + std::to_string(region.offset_bytes) + "</td></tr>\n";
  }
  return "<h2>Arena</h2>\n<p>One allocation of " + format_bytes(plan.arena_bytes) +
         "; every variant has the same places.</p>\n" + svg(kWidth, kHeight, body, "regions of the arena") +
         "<table><tr><th>region</th><th>size</th><th>offset</th></tr>\n" + rows + "</table>\n";
}

std::string_view life_colour(const Life& life) {
  if (life.workspace) return kWorkspaceColour;
  if (life.role == TensorRole::saved) return kSavedColour;
  return life.role == TensorRole::activation_grad ? kGradientColour : kActivationColour;
}

/// Transients of one plan: time from left to right (kernels of one pass), address upwards.
std::string transients(const AtlasReport& report, const MemoryPlan& plan) {
  constexpr double kWidth = 1100, kHeight = 320;
  const LifeChart chart = chart_lives(report, plan);
  if (chart.lives.empty() || plan.transient_bytes == 0) return "";
  const Region& region = plan.region("transient");
  const double x_scale = kWidth / std::max(1, chart.steps);
  const double y_scale = kHeight / static_cast<double>(plan.transient_bytes);
  std::string body = rect({0, 0, kWidth, kHeight}, "#ffffff", "free", "stroke=\"#dfe3e8\"");
  for (const Life& life : chart.lives) {
    const double height = static_cast<double>(life.size_bytes) * y_scale;
    const double bottom = static_cast<double>(life.offset_bytes - region.offset_bytes) * y_scale;
    const std::string title = life.name + ": " + format_bytes(life.size_bytes) + " at +" +
                              std::to_string(life.offset_bytes - region.offset_bytes) + ", kernels " +
                              std::to_string(life.first) + " to " + std::to_string(life.last);
    body += rect({life.first * x_scale, kHeight - bottom - height, (life.last - life.first + 1) * x_scale, height},
                 life_colour(life), title, "fill-opacity=\"0.75\" stroke=\"#fff\" stroke-width=\"0.5\"");
  }
  return "<h2>Transients of " + escape_markup(plan.spec.name) + " (" + plan.spec.shape.str() + ")</h2>\n<p>" +
         key(kActivationColour, "activations") + key(kGradientColour, "activation gradients") +
         key(kSavedColour, "saved for backward") + key(kWorkspaceColour, "workspaces") + "; " +
         std::to_string(chart.steps) + " kernels from left to right, " + format_bytes(plan.transient_bytes) +
         " from bottom to top (" + format_bytes(plan.transient_no_reuse_bytes) + " without slot reuse)</p>\n" +
         svg(kWidth, kHeight, body, "transients over time");
}

}  // namespace

std::string to_html(const AtlasReport& report) {
  const std::string name = escape_markup(report.graph->model().name);
  std::string html = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>renai atlas: " + name +
                     "</title>\n<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><style>" +
                     std::string(kStyle) + "</style></head><body>\n<h1>Atlas of " + name + "</h1>\n<p>backend " +
                     escape_markup(report.book->backend) +
                     (report.device.empty() ? std::string{} : ", " + escape_markup(report.device)) + "; kernel plan " +
                     hex64(kernel_plan_hash(*report.book)) + "</p>\n";
  html += cards(report) + grid(report) + variants(*report.atlas);
  if (!report.plans.empty()) html += arena(report.plans[0]);
  bool training = false, validation = false;  // One drawing for each family: its first variant.
  for (const MemoryPlan& plan : report.plans) {
    bool& drawn = plan.spec.kind == VariantKind::training ? training : validation;
    if (!drawn) html += transients(report, plan);
    drawn = true;
  }
  return html + "</body></html>\n";
}

}  // namespace renai
