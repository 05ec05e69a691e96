// Learning-rate schedules beside PyTorch's schedulers: tests/golden/make_lr_golden.py wrote their rates.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>

#include "renai/train/lr_schedule.hpp"

namespace renai {
namespace {

Recipe recipe_of(const nlohmann::json& options) {
  Recipe recipe;
  std::size_t used = 0;
  Recipe::visit(recipe, [&](const char* key, auto& value, const char*, bool) {
    if (!options.contains(key)) return;
    value = options.at(key).get<std::remove_reference_t<decltype(value)>>();
    ++used;
  });
  EXPECT_EQ(used, options.size()) << "an option is unknown: " << options;
  return recipe;
}

TEST(LearningRateGolden, EverySchedulerOfPyTorchIsMet) {
  std::ifstream file(RENAI_GOLDEN_DIR "/lr_schedules.json");
  ASSERT_TRUE(file) << "the golden rates are missing";
  const nlohmann::json golden = nlohmann::json::parse(file);
  std::set<std::string> met;
  for (const nlohmann::json& entry : golden.at("cases")) {
    SCOPED_TRACE(entry.at("torch").get<std::string>());
    const Recipe recipe = recipe_of(entry.at("options"));
    ASSERT_NO_THROW(verify(recipe));
    const std::vector<double> values = entry.at("values");
    ASSERT_GE(values.size(), 40u);
    for (std::size_t step = 0; step < values.size(); ++step) {
      EXPECT_NEAR(learning_rate(recipe, static_cast<std::int64_t>(step), entry.at("total"), entry.at("batches")),
                  values[step], 1e-7 * values[step] + 1e-10)
          << "step " << step;
    }
    met.insert(recipe.lr_schedule);
  }
  EXPECT_EQ(met, (std::set<std::string>{"step", "multistep", "exponential", "polynomial", "cosine", "cosine-restarts",
                                        "onecycle"}));
}

}  // namespace
}  // namespace renai
