#include "../../../src/app/same_run.hpp"

#include <gtest/gtest.h>

#include <string>

#include "renai/base/error.hpp"
#include "renai/model/model_spec.hpp"
#include "renai/train/blueprint.hpp"

namespace renai {
namespace {

StateDict written_by(const Recipe& recipe) {
  StateDict state;
  state.texts["data"] = "d";
  state.texts["model"] = to_toml(model_of(recipe));
  state.texts["recipe"] = to_toml(recipe, true);
  return state;
}

/// The same from a program that had no such option yet.
StateDict without(StateDict state, const std::string& key) {
  std::string& text = state.texts["recipe"];
  const std::size_t start = ("\n" + text).find("\n" + key + " = ");
  EXPECT_NE(start, std::string::npos) << key;
  text.erase(start, text.find('\n', start) + 1 - start);
  return state;
}

std::string refusal(const Recipe& recipe, const StateDict& state) {
  try {
    require_same_run(recipe, state, "old.h5", "d");
  } catch (const UserError& error) {
    return error.what();
  }
  return {};
}

TEST(SameRun, TakesTheSameRecipeAndAnotherLength) {
  Recipe recipe;
  const StateDict state = written_by(recipe);
  EXPECT_EQ(refusal(recipe, state), "");
  recipe.epochs += 1;
  recipe.steps = 7;
  recipe.log_every = 1;
  EXPECT_EQ(refusal(recipe, state), "");
}

TEST(SameRun, RefusesAnotherValue) {
  Recipe recipe;
  const StateDict state = written_by(recipe);
  recipe.lr = 0.5;
  EXPECT_NE(refusal(recipe, state).find("lr = 0.1"), std::string::npos);
  EXPECT_NE(refusal(recipe, state).find("old.h5"), std::string::npos);
}

TEST(SameRun, AnOptionThatTheCheckpointDoesNotKnowHadItsDefault) {
  Recipe recipe;
  const StateDict state = without(written_by(recipe), "mixup");
  EXPECT_EQ(refusal(recipe, state), "");
  recipe.mixup = 0.5;
  EXPECT_NE(refusal(recipe, state).find("does not have mixup = 0.5"), std::string::npos) << refusal(recipe, state);
  Recipe averaged;
  averaged.ema = 0.9;
  EXPECT_NE(refusal(averaged, without(state, "ema")).find("does not have ema = 0.9"), std::string::npos);
}

}  // namespace
}  // namespace renai
