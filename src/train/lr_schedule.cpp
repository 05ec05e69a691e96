#include "renai/train/lr_schedule.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <sstream>
#include <string_view>
#include <type_traits>

#include "renai/base/check.hpp"
#include "renai/base/error.hpp"
#include "renai/base/text.hpp"

namespace renai {
namespace {

/// Where in the run a rate is asked for.
struct Moment {
  std::int64_t step = 0, total = 0, batches = 1, warmup = 0;

  double epoch() const { return static_cast<double>(step) / static_cast<double>(batches); }
  std::int64_t steps_after_warmup() const { return std::max<std::int64_t>(total - warmup, 1); }
  /// Share of the steps after warm-up that have passed, at most 1.
  double progress() const {
    return std::clamp(static_cast<double>(step - warmup) / static_cast<double>(steps_after_warmup()), 0.0, 1.0);
  }
};

std::int64_t steps_of(double epochs, std::int64_t batches) {
  return static_cast<std::int64_t>(std::llround(epochs * static_cast<double>(batches)));
}

/// Half a cosine from `first` at t = 0 to `last` at t = 1.
double anneal(double first, double last, double t) {
  return last + (first - last) * 0.5 * (1.0 + std::cos(std::numbers::pi * t));
}

// ---- Lists in options -----------------------------------------------------------------------------------------------

UserError list_error(const char* option, const std::string& text, const std::string& why) {
  const bool points = std::string_view(option) == "--lr-points";
  return {
      std::string(option) + " " + text, why,
      points ? "write FACTOR@EPOCH,FACTOR@EPOCH,... such as 0@0,1@5,0@24" : "write EPOCH,EPOCH,... such as 30,60,80"};
}

/// Calls f(part) for each part between commas. Nothing is allocated: the rate is computed in every step.
template <typename F>
void for_each_part(const std::string& text, F&& f) {
  const std::string_view view = text;
  for (std::size_t start = 0; start <= view.size();) {
    const std::size_t end = std::min(view.find(',', start), view.size());
    f(view.substr(start, end - start));
    start = end + 1;
  }
}

double read_number(const char* option, const std::string& text, std::string_view word) {
  double value = 0;
  const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || rest != word.data() + word.size() || !std::isfinite(value)) {
    throw list_error(option, text, "'" + std::string(word) + "' is not a number");
  }
  if (value < 0 || value > 1e6) throw list_error(option, text, "its numbers lie between 0 and 1000000");
  return value;
}

struct RatePoint {
  double factor = 0, epoch = 0;
};

RatePoint read_point(const std::string& text, std::string_view part) {
  const std::size_t at = part.find('@');
  if (at == std::string_view::npos) {
    throw list_error("--lr-points", text, "'" + std::string(part) + "' is not FACTOR@EPOCH");
  }
  return {read_number("--lr-points", text, part.substr(0, at)), read_number("--lr-points", text, part.substr(at + 1))};
}

/// Factor of --lr at an epoch: linear between the points, constant outside.
double factor_at(const std::string& points, double epoch) {
  RatePoint before{0, -1};
  bool first = true, found = false;
  double factor = 0;
  for_each_part(points, [&](std::string_view part) {
    if (found) return;
    const RatePoint point = read_point(points, part);
    if (epoch < point.epoch) {
      const double t = first ? 1.0 : (epoch - before.epoch) / (point.epoch - before.epoch);
      factor = first ? point.factor : before.factor + (point.factor - before.factor) * t;
      found = true;
    } else {
      factor = point.factor;
    }
    before = point;
    first = false;
  });
  return factor;
}

// ---- Schedules after warm-up ----------------------------------------------------------------------------------------

double constant(const Recipe& r, const Moment&) { return r.lr; }

double step_decay(const Recipe& r, const Moment& m) {
  return r.lr * std::pow(r.lr_gamma, std::floor(m.epoch() / r.lr_step_epochs));
}

double multistep(const Recipe& r, const Moment& m) {
  int reached = 0;
  for_each_part(r.lr_milestones, [&](std::string_view part) {
    if (m.step >= steps_of(read_number("--lr-milestones", r.lr_milestones, part), m.batches)) ++reached;
  });
  return r.lr * std::pow(r.lr_gamma, reached);
}

double exponential(const Recipe& r, const Moment& m) {
  return r.lr * std::pow(r.lr_gamma, static_cast<double>(m.step - m.warmup) / static_cast<double>(m.batches));
}

double polynomial(const Recipe& r, const Moment& m) {
  return r.lr_min + (r.lr - r.lr_min) * std::pow(1.0 - m.progress(), r.lr_power);
}

double cosine(const Recipe& r, const Moment& m) { return anneal(r.lr, r.lr_min, m.progress()); }

/// Cycles have whole numbers of steps, so a restart never slips by one through rounding.
double cosine_restarts(const Recipe& r, const Moment& m) {
  std::int64_t length = std::max<std::int64_t>(steps_of(r.lr_cycle_epochs, m.batches), 1);
  std::int64_t passed = std::max<std::int64_t>(m.step - m.warmup, 0);
  if (r.lr_cycle_mult == 1) passed %= length;
  while (passed >= length) {
    passed -= length;
    length *= r.lr_cycle_mult;
  }
  return anneal(r.lr, r.lr_min, static_cast<double>(passed) / static_cast<double>(length));
}

double stable_decay(const Recipe& r, const Moment& m) {
  const std::int64_t decay = std::min(steps_of(r.lr_decay_epochs, m.batches), m.steps_after_warmup());
  const std::int64_t left = std::max<std::int64_t>(m.total - m.step, 0);
  if (left >= decay) return r.lr;
  return r.lr_min + (r.lr - r.lr_min) * static_cast<double>(left) / static_cast<double>(decay);
}

double one_cycle(const Recipe& r, const Moment& m) {
  const double first = r.lr / r.lr_div_factor;
  const double last = first / r.lr_final_div_factor;
  const auto steps = static_cast<double>(m.steps_after_warmup());
  const auto passed = static_cast<double>(m.step - m.warmup);
  const double top = r.lr_pct_start * steps - 1.0;
  if (passed <= top) return top > 0 ? anneal(first, r.lr, passed / top) : r.lr;
  if (passed >= steps - 1.0) return last;
  return anneal(r.lr, last, (passed - top) / (steps - 1.0 - top));
}

double piecewise(const Recipe& r, const Moment& m) { return r.lr * factor_at(r.lr_points, m.epoch()); }

/// Options that only some schedules read.
struct OwnOption {
  std::string_view name;
  std::vector<std::string> schedules;
};

const std::vector<OwnOption>& own_options() {
  static const std::vector<OwnOption> kOptions{{"lr-step-epochs", {"step"}},
                                               {"lr-gamma", {"step", "multistep", "exponential"}},
                                               {"lr-milestones", {"multistep"}},
                                               {"lr-power", {"polynomial"}},
                                               {"lr-min", {"polynomial", "cosine", "cosine-restarts", "wsd"}},
                                               {"lr-cycle-epochs", {"cosine-restarts"}},
                                               {"lr-cycle-mult", {"cosine-restarts"}},
                                               {"lr-decay-epochs", {"wsd"}},
                                               {"lr-pct-start", {"onecycle"}},
                                               {"lr-div-factor", {"onecycle"}},
                                               {"lr-final-div-factor", {"onecycle"}},
                                               {"lr-points", {"piecewise"}}};
  return kOptions;
}

/// Calls f(i, value) for option i of own_options().
template <typename Self, typename F>
void visit_own(Self& recipe, F&& f) {
  Recipe::visit(recipe, [&](const char* key, auto& value, const char*, bool) {
    for (std::size_t i = 0; i < own_options().size(); ++i) {
      if (own_options()[i].name == key) f(i, value);
    }
  });
}

/// The values of those options, in the order of own_options().
std::vector<std::string> own_values(const Recipe& recipe) {
  std::vector<std::string> values(own_options().size());
  visit_own(recipe, [&values](std::size_t i, const auto& value) {
    std::ostringstream text;
    text << value;
    values[i] = text.str();
  });
  return values;
}

/// A value that is not the default and would change nothing is a misunderstanding.
void refuse_unused(const Recipe& recipe) {
  const std::vector<std::string> given = own_values(recipe), defaults = own_values(Recipe{});
  for (std::size_t i = 0; i < given.size(); ++i) {
    const OwnOption& option = own_options()[i];
    const auto& readers = option.schedules;
    if (given[i] == defaults[i] || std::find(readers.begin(), readers.end(), recipe.lr_schedule) != readers.end()) {
      continue;
    }
    throw UserError("--" + std::string(option.name) + " " + given[i],
                    "it has no meaning for --lr-schedule " + recipe.lr_schedule,
                    "leave it out, or use --lr-schedule " + join(readers, " or "));
  }
}

struct Schedule {
  const char* name;
  double (*rate)(const Recipe&, const Moment&);
};

constexpr Schedule kSchedules[] = {{"constant", constant},
                                   {"step", step_decay},
                                   {"multistep", multistep},
                                   {"exponential", exponential},
                                   {"polynomial", polynomial},
                                   {"cosine", cosine},
                                   {"cosine-restarts", cosine_restarts},
                                   {"wsd", stable_decay},
                                   {"onecycle", one_cycle},
                                   {"piecewise", piecewise}};

const Schedule& schedule_of(const Recipe& recipe) {
  for (const Schedule& schedule : kSchedules) {
    if (recipe.lr_schedule == schedule.name) return schedule;
  }
  RENAI_CHECK(false, "an unknown schedule passed verify()");
  return kSchedules[0];
}

/// The rate that warm-up leads to.
double warmup_goal(const Recipe& r, const Moment& m) {
  if (r.lr_schedule == "onecycle") return r.lr / r.lr_div_factor;
  if (r.lr_schedule == "piecewise") return piecewise(r, {m.warmup, m.total, m.batches, m.warmup});
  return r.lr;
}

}  // namespace

std::int64_t total_steps(const Recipe& recipe, std::int64_t batches) {
  if (recipe.steps > 0) return recipe.steps;
  return static_cast<std::int64_t>(std::ceil(recipe.epochs * static_cast<double>(batches)));
}

std::int64_t warmup_steps(const Recipe& recipe, std::int64_t batches) {
  return steps_of(recipe.warmup_epochs, batches);
}

std::vector<std::string> lr_schedule_names() {
  std::vector<std::string> names;
  for (const Schedule& schedule : kSchedules) names.emplace_back(schedule.name);
  return names;
}

float learning_rate(const Recipe& recipe, std::int64_t step, std::int64_t total_steps, std::int64_t batches) {
  const Moment moment{step, total_steps, batches, warmup_steps(recipe, batches)};
  if (step < moment.warmup) {
    const double goal = warmup_goal(recipe, moment);
    return static_cast<float>(goal * static_cast<double>(step + 1) / static_cast<double>(moment.warmup));
  }
  return static_cast<float>(schedule_of(recipe).rate(recipe, moment));
}

void verify_schedule(const Recipe& r) {
  if (r.lr_schedule == "multistep" && r.lr_milestones.empty()) {
    throw UserError("--lr-schedule multistep", "its milestones are not given", "add for example --lr-milestones 30,60");
  }
  if (r.lr_schedule == "piecewise" && r.lr_points.empty()) {
    throw UserError("--lr-schedule piecewise", "its points are not given", "add for example --lr-points 0@0,1@5,0@24");
  }
  double last = -1;
  if (!r.lr_milestones.empty()) {
    for_each_part(r.lr_milestones, [&](std::string_view part) {
      const double epoch = read_number("--lr-milestones", r.lr_milestones, part);
      if (epoch <= last) throw list_error("--lr-milestones", r.lr_milestones, "epochs must rise");
      last = epoch;
    });
  }
  last = -1;
  if (!r.lr_points.empty()) {
    for_each_part(r.lr_points, [&](std::string_view part) {
      const RatePoint point = read_point(r.lr_points, part);
      if (point.epoch <= last) throw list_error("--lr-points", r.lr_points, "epochs must rise");
      last = point.epoch;
    });
  }
  refuse_unused(r);
}

void forget_schedule(Recipe& recipe) {
  const Recipe defaults;
  recipe.lr_schedule = defaults.lr_schedule;
  visit_own(recipe, [&defaults](std::size_t i, auto& value) {
    visit_own(defaults, [&](std::size_t j, const auto& by_default) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, std::remove_cvref_t<decltype(by_default)>>) {
        if (i == j) value = by_default;
      }
    });
  });
}

}  // namespace renai
