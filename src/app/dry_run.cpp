#include "dry_run.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "renai/graph/shape_inference.hpp"
#include "renai/train/freeze.hpp"
#include "renai/train/lr_schedule.hpp"

namespace renai {
namespace {

constexpr std::int64_t kColumns = 64;
constexpr int kRows = 10;  ///< Above the axis.
constexpr std::int64_t kSamplesOfAColumn = 32;

/// Least and greatest rate of a column's steps.
struct Span {
  double least = 0, most = 0;
};

Span column_span(const Recipe& recipe, std::int64_t total, std::int64_t batches, std::int64_t column) {
  const std::int64_t first = column * total / kColumns;
  const std::int64_t count = std::max<std::int64_t>((column + 1) * total / kColumns - first, 1);
  const std::int64_t samples = std::min(count, kSamplesOfAColumn);
  const auto rate = [&](std::int64_t step) { return static_cast<double>(learning_rate(recipe, step, total, batches)); };
  Span span{rate(first), rate(first)};
  for (std::int64_t i = 1; i < samples; ++i) {
    const double value = rate(first + i * (count - 1) / (samples - 1));
    span = {std::min(span.least, value), std::max(span.most, value)};
  }
  return span;
}

std::array<Span, kColumns> column_spans(const Recipe& recipe, std::int64_t total, std::int64_t batches) {
  std::array<Span, kColumns> spans;
  for (std::int64_t i = 0; i < kColumns; ++i) {
    spans[static_cast<std::size_t>(i)] = column_span(recipe, total, batches, i);
  }
  return spans;
}

double highest(std::span<const Span> spans) {
  return std::max_element(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.most < b.most; })
      ->most;
}

/// Format of %.*g without the surprises of a stream's state.
std::string number(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

std::string right(const std::string& text, std::size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

std::string print_batches(const Recipe& recipe, const BatchSplit& split) {
  std::string text = std::to_string(split.full_batches) + " of " + std::to_string(recipe.global_batch) + " samples";
  if (split.last_rows > 0)
    text += " and one of " + std::to_string(split.last_rows * recipe.logical_shards * recipe.accumulate);
  if (recipe.accumulate > 1) text += ", in " + std::to_string(recipe.accumulate) + " micro-batches a shard";
  if (split.dropped > 0) text += ", " + std::to_string(split.dropped) + " samples left out";
  return text;
}

std::string print_phases(std::span<const ResolutionPhase> phases) {
  std::string text;
  for (const ResolutionPhase& phase : phases) {
    text += (text.empty() ? "" : ", ") + std::to_string(phase.size) + " from epoch " + std::to_string(phase.epoch);
  }
  return text;
}

}  // namespace

std::string plot_learning_rate(const Recipe& recipe, std::int64_t total, std::int64_t batches) {
  const std::array<Span, kColumns> spans = column_spans(recipe, total, batches);
  const double top = highest(spans);
  const auto row_of = [top](double rate) { return top > 0 ? static_cast<int>(std::lround(kRows * rate / top)) : 0; };
  std::string text;
  for (int row = kRows; row >= 0; --row) {
    const bool labelled = row == kRows || row == kRows / 2 || row == 0;
    text += "  " + right(labelled ? number(top * row / kRows, 4) : "", 10) + (row == 0 ? " +" : " |");
    std::string line;
    for (const Span& span : spans) {
      const bool marked = row >= row_of(span.least) && row <= row_of(span.most);
      line += marked ? '*' : row == 0 ? '-' : ' ';
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  const std::string last = std::to_string(total - 1);
  return text + "  " + right("step", 10) + "  0" + right(last, kColumns - 1) + "\n";
}

std::string print_schedule(const Recipe& recipe, const BatchSplit& split, std::span<const ResolutionPhase> phases) {
  const std::int64_t batches = split.batches();
  const std::int64_t total = total_steps(recipe, batches);
  const auto line = [](const char* what, const std::string& value) {
    char text[32];
    std::snprintf(text, sizeof text, "  %-14s ", what);
    return text + value + "\n";
  };
  std::string text = "schedule:\n";
  text += line("epoch", std::to_string(batches) + " steps: " + print_batches(recipe, split));
  text += line("steps", std::to_string(total) + " (" +
                            number(static_cast<double>(total) / static_cast<double>(batches), 6) + " epochs)");
  text += line("warm-up", std::to_string(std::min(warmup_steps(recipe, batches), total)) + " steps");
  text += line("resolution", print_phases(phases));
  if (total == 0) return text;
  const auto rate = [&](std::int64_t step) {
    return number(static_cast<double>(learning_rate(recipe, step, total, batches)), 6);
  };
  text +=
      line("learning rate", recipe.lr_schedule + ": first " + rate(0) + ", highest " +
                                number(highest(column_spans(recipe, total, batches)), 6) + ", last " + rate(total - 1));
  return text + "\n" + plot_learning_rate(recipe, total, batches);
}

std::string print_plan(const Recipe& recipe, const Blueprint& blueprint, const DataShape& data,
                       const AtlasReport& report) {
  const BatchSplit split =
      split_batches(data.train_samples, recipe.global_batch, recipe.logical_shards, true, recipe.accumulate);
  std::string frozen = print(make_freeze_plan(recipe, blueprint.graph.params()));
  if (!frozen.empty() && has_second_moments(blueprint.graph.options().optimizer)) {
    frozen += "; the corrections of " + recipe.optimizer + " count the steps in which a layer is trained";
  }
  return to_toml(recipe) + "\n" + print_model(blueprint.graph, blueprint.specs.front().shape.shape()) + "\n" +
         print_table(report) + "\n" + (frozen.empty() ? "" : "frozen: " + frozen + "\n\n") +
         print_schedule(recipe, split, resolution_phases(recipe, blueprint.graph.model(), data));
}

}  // namespace renai
