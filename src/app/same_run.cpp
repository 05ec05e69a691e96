#include "same_run.hpp"

#include <algorithm>
#include <vector>

#include "renai/base/error.hpp"
#include "renai/base/lines.hpp"
#include "renai/model/model_spec.hpp"
#include "renai/train/blueprint.hpp"

namespace renai {
namespace {

void require_same_text(const StateDict& state, const std::string& file, const std::string& key, const std::string& own,
                       const char* what) {
  const auto stored = state.texts.find(key);
  if (stored == state.texts.end() || stored->second == own) return;
  throw UserError("continuing from " + file, std::string(what) + " differs from the one it was trained with",
                  "give the same one, or start anew from its weights with --init-from");
}

}  // namespace

void require_same_run(const Recipe& recipe, const StateDict& state, const std::string& file,
                      const std::string& data_digest) {
  require_same_text(state, file, "data", data_digest, "the data set");
  require_same_text(state, file, "model", to_toml(model_of(recipe)), "the model");
  const auto stored = state.texts.find("recipe");
  if (stored == state.texts.end()) return;
  const std::string text = to_toml(recipe, true);
  const std::vector<std::string> own = lines_of(text);
  for (const std::string& line : lines_of(stored->second)) {
    const std::string key = line.substr(0, line.find(' '));
    const bool may_change = key == "steps" || key == "epochs";
    const bool known = ("\n" + text).find("\n" + key + " = ") != std::string::npos;
    if (!may_change && known && std::find(own.begin(), own.end(), line) == own.end()) {
      throw UserError("continuing from " + file, "its recipe says " + line + ", which differs from this run",
                      "give the same option, or start anew from its weights with --init-from");
    }
  }
  const std::vector<std::string> defaults = lines_of(to_toml(Recipe{}, true));
  for (const std::string& line : own) {
    const std::string key = line.substr(0, line.find(' '));
    const bool known = ("\n" + stored->second).find("\n" + key + " = ") != std::string::npos;
    if (!known && std::find(defaults.begin(), defaults.end(), line) == defaults.end()) {
      throw UserError("continuing from " + file, "its recipe does not have " + line,
                      "leave the option away, or start anew from its weights with --init-from");
    }
  }
}

}  // namespace renai
