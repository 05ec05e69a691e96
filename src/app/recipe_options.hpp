#pragma once
// Recipe options on a CLI11 command, and TOML recipe files.

#include <memory>
#include <string>

#include "renai/train/recipe.hpp"

namespace CLI {
class App;
}

namespace renai {

/// Adds every recipe option and --config to a command; `recipe` receives the values when the command line is parsed.
void add_recipe_options(CLI::App& command, Recipe& recipe, std::string& config);

/// Makes a whole number that its option's type cannot hold a mistake, in all options that a command has so far. All
/// numbers are decimal, with leading zeros or without.
void check_whole_numbers(CLI::App& command);

/// Applies a TOML file to options that the command line did not give: top-level keys by the options' names, switches as
/// true or false. What to_toml() writes reads back as the same recipe. Errors: UserError naming file, line and key,
/// nearest name offered.
void apply_config(CLI::App& command, const std::string& config);

/// One line an option that all ranks must give alike: not those of recipes, which are compared when files and defaults
/// have had their say, nor those that a rank may choose for itself, or that only what rank 0 prints depends on.
std::string shared_options(const CLI::App& command, bool has_recipe);

/// The words that name a command: "renai pack folder".
std::string command_words(const CLI::App& command);

/// Throws UserError for leftover arguments, offering the nearest option.
void refuse_extras(const CLI::App& command);

}  // namespace renai
