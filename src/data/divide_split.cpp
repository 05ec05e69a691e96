#include "divide_split.hpp"

#include <cmath>
#include <cstdio>
#include <memory>

#include "renai/base/digest.hpp"
#include "renai/base/error.hpp"

namespace renai {
namespace {

using Places = std::vector<std::int64_t>;

std::string print_fraction(double fraction) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.17g", fraction);
  return text;
}

/// The samples of `whole` at `places`.
SplitSource select(const std::string& name, const SplitSource& whole, std::shared_ptr<const Places> places) {
  SplitSource part{name, static_cast<std::int64_t>(places->size()), nullptr};
  part.read = [read = whole.read, places = std::move(places)](std::int64_t first, std::span<std::int32_t> labels,
                                                              std::span<std::byte> images) {
    const std::size_t sample_bytes = images.size() / labels.size();
    const auto* at = places->data() + first;
    for (std::size_t i = 0; i < labels.size();) {
      std::size_t count = 1;
      while (i + count < labels.size() && at[i + count] == at[i] + static_cast<std::int64_t>(count)) ++count;
      read(at[i], labels.subspan(i, count), images.subspan(i * sample_bytes, count * sample_bytes));
      i += count;
    }
  };
  return part;
}

}  // namespace

void check_division(const SplitDivision& division) {
  if (division.fraction != 0 && division.every != 0) {
    throw UserError("--val-fraction and --val-every", "both divide the training samples", "give one of them");
  }
  if (!(division.fraction >= 0 && division.fraction < 1)) {
    throw UserError("--val-fraction " + print_fraction(division.fraction), "it is a share of the training samples",
                    "use a value between 0 and 1, such as 0.1");
  }
  if (division.every == 1 || division.every < 0) {
    throw UserError("--val-every " + std::to_string(division.every), "one of N samples goes to validation",
                    "use 2 or more, such as 10");
  }
}

std::string division_settings(const SplitDivision& division) {
  return setting("val-fraction", print_fraction(division.fraction)) +
         setting("val-every", std::to_string(division.every)) + setting("split-seed", std::to_string(division.seed));
}

bool is_validation(const SplitDivision& division, std::string_view name, std::int64_t place) {
  if (division.every > 0) return place % division.every == division.every - 1;
  // The hash's upper 53 bits as a number in [0, 1).
  return static_cast<double>(hash64(name, division.seed) >> 11) * 0x1.0p-53 < division.fraction;
}

void divide_training_split(PackSource& source, const SplitDivision& division) {
  check_division(division);
  if (division.fraction == 0 && division.every == 0) return;
  if (source.splits.size() > 1) {
    throw UserError("dividing the training samples", "the set has validation samples of its own",
                    "leave out --val-fraction and --val-every");
  }
  auto train = std::make_shared<Places>(), val = std::make_shared<Places>();
  const SplitSource whole = source.splits.front();
  for (std::int64_t i = 0; i < whole.samples; ++i) {
    (is_validation(division, std::to_string(i), i) ? val : train)->push_back(i);
  }
  if (train->empty() || val->empty()) {
    throw UserError("dividing " + std::to_string(whole.samples) + " training samples",
                    train->empty() ? "none would be left" : "none would go to validation",
                    "choose another share, or another --split-seed");
  }
  source.splits = {select("train", whole, train), select("val", whole, val)};
}

}  // namespace renai
