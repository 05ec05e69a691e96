#include "renai/train/freeze.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>

#include "renai/base/error.hpp"
#include "renai/base/text.hpp"

namespace renai {
namespace {

constexpr const char* kFirst = "first";
constexpr std::int64_t kLastEpoch = 1'000'000;

std::string layer_of(const ParamInfo& param) { return param.name.substr(0, param.name.rfind('.')); }

bool stands_for(const std::string& name, const ParamInfo& param) {
  if (name == kFirst) return param.first_layer;
  const std::string layer = layer_of(param);
  return layer == name || layer.starts_with(name + ".");
}

/// N of "stageN", the model file's key `stage`; nothing for other names.
std::optional<int> stage_of(const std::string& name) {
  constexpr std::string_view kStage = "stage";
  int stage = -1;
  if (!name.starts_with(kStage)) return std::nullopt;
  const auto [rest, error] = std::from_chars(name.data() + kStage.size(), name.data() + name.size(), stage);
  if (error != std::errc{} || rest != name.data() + name.size() || stage < 0) return std::nullopt;
  return stage;
}

/// What a name stands for: layers before stages.
std::vector<bool> members_of(const std::string& name, std::span<const ParamInfo> params) {
  std::vector<bool> members;
  for (const ParamInfo& param : params) members.push_back(stands_for(name, param));
  const std::optional<int> stage = stage_of(name);
  if (!stage || std::find(members.begin(), members.end(), true) != members.end()) return members;
  for (std::size_t i = 0; i < params.size(); ++i) members[i] = params[i].stage == *stage;
  return members;
}

/// "first", and every layer with parameters and every stage above it.
std::vector<std::string> known_names(std::span<const ParamInfo> params) {
  std::set<std::string> names;
  for (const ParamInfo& param : params) {
    if (param.first_layer) names.insert(kFirst);
    const std::string layer = layer_of(param);
    for (std::size_t dot = layer.find('.'); dot != std::string::npos; dot = layer.find('.', dot + 1)) {
      names.insert(layer.substr(0, dot));
    }
    names.insert(layer);
  }
  return {names.begin(), names.end()};
}

class Planner {
 public:
  explicit Planner(std::span<const ParamInfo> params) : params_(params) {}

  /// Reads one option: `set(group, epoch)` notes what it says about a group.
  template <typename Set>
  void read(const std::string& option, const std::string& text, const Set& set) {
    if (text.empty()) return;
    const std::string given = option + " " + text;
    std::set<std::string> seen;
    for (std::size_t start = 0; start <= text.size();) {
      const std::size_t end = std::min(text.find(',', start), text.size());
      const std::string part = text.substr(start, end - start);
      start = end + 1;
      const std::size_t at = part.find('@');
      std::int64_t epoch = -1;
      if (at != std::string::npos) {
        const auto [rest, error] = std::from_chars(part.data() + at + 1, part.data() + part.size(), epoch);
        if (error != std::errc{} || rest != part.data() + part.size()) epoch = -1;
      }
      if (at == 0 || epoch < 0 || epoch > kLastEpoch) {
        throw UserError(given, "'" + part + "' is not NAME@EPOCH", "write for example first@2 or layer1@3,layer2@5");
      }
      const std::string name = part.substr(0, at);
      if (!seen.insert(name).second) throw UserError(given, "it names '" + name + "' twice", "give one epoch");
      set(plan_.groups[group_named(given, name)], epoch);
    }
  }

  FreezePlan take() {
    if (plan_.groups.empty()) return std::move(plan_);
    for (std::size_t i = 0; i < params_.size(); ++i) {
      if (!params_[i].first_layer) continue;
      plan_.first_layer_groups.push_back(plan_.group_of_param[i]);
    }
    refuse_never_trained();
    refuse_all_frozen();
    return std::move(plan_);
  }

 private:
  std::size_t group_named(const std::string& given, const std::string& name) {
    for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
      if (plan_.groups[g].name == name) return g;
    }
    plan_.groups.push_back({name});
    plan_.group_of_param.resize(params_.size(), 0);
    bool found = false;
    const std::vector<bool> members = members_of(name, params_);
    for (std::size_t i = 0; i < params_.size(); ++i) {
      if (!members[i]) continue;
      found = true;
      int& group = plan_.group_of_param[i];
      if (group > 0) {
        throw UserError(given,
                        "'" + name + "' and '" + plan_.groups[static_cast<std::size_t>(group) - 1].name +
                            "' both stand for parameter '" + params_[i].name + "'",
                        "name each layer once");
      }
      group = static_cast<int>(plan_.groups.size());
    }
    if (!found) {
      throw UserError(given, "no layer with parameters is called '" + name + "'",
                      suggest_name(name, known_names(params_)));
    }
    return plan_.groups.size() - 1;
  }

  void refuse_never_trained() const {
    for (const FreezeGroup& group : plan_.groups) {
      // From epoch 0 on is what keeps a part of --init-from as it is.
      if (group.until == 0 || group.after > group.until) continue;
      throw UserError("--freeze-until and --freeze-after",
                      "'" + group.name + "' is frozen before epoch " + std::to_string(group.until) +
                          " and from epoch " + std::to_string(group.after) + " on: it would never be trained",
                      "let --freeze-after name a later epoch than --freeze-until");
    }
  }

  /// What is frozen changes at the epochs of the options only.
  void refuse_all_frozen() const {
    std::set<std::int64_t> epochs{0};
    for (const FreezeGroup& group : plan_.groups) epochs.insert({group.until, group.after});
    for (const std::int64_t epoch : epochs) {
      if (epoch > kLastEpoch) continue;
      const bool all = std::all_of(plan_.group_of_param.begin(), plan_.group_of_param.end(),
                                   [&](int group) { return plan_.frozen(group, epoch); });
      if (!all) continue;
      throw UserError("--freeze-until and --freeze-after",
                      "in epoch " + std::to_string(epoch) + " every parameter would be frozen",
                      "leave at least one layer to train");
    }
  }

  std::span<const ParamInfo> params_;
  FreezePlan plan_;
};

}  // namespace

bool FreezePlan::first_layer_frozen(std::int64_t epoch) const {
  return !first_layer_groups.empty() && std::all_of(first_layer_groups.begin(), first_layer_groups.end(),
                                                    [&](int group) { return frozen(group, epoch); });
}

FreezePlan make_freeze_plan(const Recipe& recipe, std::span<const ParamInfo> params) {
  Planner planner(params);
  planner.read("--freeze-until", recipe.freeze_until,
               [](FreezeGroup& group, std::int64_t epoch) { group.until = epoch; });
  planner.read("--freeze-after", recipe.freeze_after,
               [](FreezeGroup& group, std::int64_t epoch) { group.after = epoch; });
  return planner.take();
}

std::string print(const FreezePlan& plan) {
  std::string text;
  const auto add = [&text](const std::string& words) { text += (text.empty() ? "" : ", ") + words; };
  for (const FreezeGroup& group : plan.groups) {
    if (group.until > 0) add(group.name + " before epoch " + std::to_string(group.until));
    if (group.after <= kLastEpoch) add(group.name + " from epoch " + std::to_string(group.after) + " on");
  }
  return text;
}

}  // namespace renai
