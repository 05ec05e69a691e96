#include "recipe_options.hpp"

#include <CLI/CLI.hpp>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <type_traits>
#include <vector>

#include "renai/base/error.hpp"
#include "renai/base/text.hpp"

namespace renai {
namespace {

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

/// The library reads "" as 0, clamps what is too large and wraps negative numbers; here each is a mistake.
template <typename T>
std::string number_problem(const std::string& text) {
  T value{};
  const char* first = text.data() + (text.starts_with('+') ? 1 : 0);
  const auto [end, error] = std::from_chars(first, text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size()) return {};
  const char* kind = std::is_floating_point_v<T> ? "a number"
                     : std::is_unsigned_v<T>     ? "a whole number from 0 on"
                                                 : "a whole number";
  return "'" + text + "' is not " + kind + (error == std::errc::result_out_of_range ? " in range" : "");
}

CLI::Option* find_option(CLI::App& command, const std::string& name) {
  return command.get_option_no_throw("--" + name);
}

}  // namespace

void add_recipe_options(CLI::App& command, Recipe& recipe, std::string& config) {
  command.add_option("--config", config, "TOML recipe with any of these options; the command line wins");
  Recipe::visit(recipe, [&command](const std::string& key, auto& value, const char* help, bool) {
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(value)>, bool>) {
      command.add_flag("--" + key + ",!--no-" + key, value, std::string(help) + (value ? " [on]" : " [off]"))
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    } else {
      CLI::Option* option = command.add_option("--" + key, value, help)
                                ->capture_default_str()
                                ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
      using T = std::remove_reference_t<decltype(value)>;
      if constexpr (!std::is_same_v<T, std::string>) {
        option->check([](const std::string& text) { return number_problem<T>(text); });
      }
    }
  });
}

void apply_config(CLI::App& command, const std::string& config) {
  if (config.empty()) return;
  if (!std::filesystem::is_regular_file(config)) {
    throw UserError("--config " + config, "the recipe file does not exist", "check the path");
  }
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_file(config);
  } catch (const CLI::Error& error) {
    throw UserError("recipe " + config, error.what(), "correct the file");
  }
  for (const CLI::ConfigItem& item : items) {
    if (item.name == "++" || item.name == "--") {
      throw UserError("recipe " + config, "it has a section '" + item.fullname() + "'",
                      "write all keys at the top level");
    }
    CLI::Option* option = item.parents.empty() ? find_option(command, item.name) : nullptr;
    if (option == nullptr || item.name == "config" || item.name == "help") {
      throw UserError("recipe " + config + ": key '" + item.fullname() + "'", "there is no such option",
                      suggest_name(item.name, option_names(command)));
    }
    if (item.inputs.size() != 1 || item.inputs.front().empty()) {
      throw UserError("recipe " + config + ": key '" + item.name + "'", "it does not have exactly one value",
                      "write " + item.name + " = VALUE");
    }
    if (option->count() > 0) continue;
    try {
      for (const std::string& value : item.inputs) option->add_result(value);
      option->run_callback();
    } catch (const CLI::Error& error) {
      throw UserError("recipe " + config + ": key '" + item.name + "'", error.what(), "correct the value");
    }
  }
}

void refuse_extras(const CLI::App& command) {
  const std::vector<std::string> extras = command.remaining();
  if (extras.empty()) return;
  const std::string& first = extras.front();
  if (first.rfind("--", 0) != 0) {
    throw UserError("'" + first + "'", "renai " + command.get_name() + " does not take this argument",
                    "see renai " + command.get_name() + " --help");
  }
  const std::string name =
      first.substr(2, first.find('=') == std::string::npos ? std::string::npos : first.find('=') - 2);
  throw UserError("option '--" + name + "'", "renai " + command.get_name() + " has no such option",
                  suggest_name(name, option_names(command)));
}

}  // namespace renai
