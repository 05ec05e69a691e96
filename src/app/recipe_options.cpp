#include "recipe_options.hpp"

#include <toml++/toml.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <set>
#include <system_error>
#include <type_traits>
#include <vector>

#include "renai/base/error.hpp"
#include "renai/base/text.hpp"
#include "renai/base/text_file.hpp"

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

/// A check that also takes away leading zeros: the library reads 010 as eight.
template <typename T>
CLI::Validator whole_number() {
  const auto read = [](std::string& text) {
    std::string problem = number_problem<T>(text);
    const std::size_t digits = text.starts_with('+') || text.starts_with('-') ? 1 : 0;
    while (problem.empty() && text.size() > digits + 1 && text[digits] == '0') text.erase(digits, 1);
    return problem;
  };
  return {read, ""};
}

/// What a recipe file may call an option: no words of the command line only, and a switch by its own name alone.
bool is_recipe_key(const std::string& name) {
  return name != "config" && name != "help" && name != "version" && !name.starts_with("no-");
}

/// Reads one recipe file into options without a value. Every error is a UserError "recipe F:LINE...; why; remedy".
class RecipeFile {
 public:
  RecipeFile(CLI::App& command, std::string path) : command_(command), path_(std::move(path)) {}

  void apply() const {
    const std::string text = read_named_text("--config " + path_, path_, "check the path");
    toml::table root;
    try {
      root = toml::parse(text, path_);
    } catch (const toml::parse_error& error) {
      throw UserError(at(error.source()), "not valid TOML: " + std::string(error.description()), "correct the file");
    }
    for (const auto& [key, node] : root) apply_key(std::string(key.str()), node);
  }

 private:
  std::string at(const toml::source_region& source) const {
    const std::string line = source.begin.line > 0 ? ":" + std::to_string(source.begin.line) : "";
    return "recipe " + path_ + line;
  }

  CLI::Option* find(const std::string& key) const {
    return is_recipe_key(key) ? command_.get_option_no_throw("--" + key) : nullptr;
  }

  std::string remedy_for_unknown(const std::string& key) const {
    if (key.starts_with("no-") && find(key.substr(3)) != nullptr) return "write " + key.substr(3) + " = false";
    std::vector<std::string> names = option_names(command_);
    std::erase_if(names, [](const std::string& name) { return !is_recipe_key(name); });
    return suggest_name(key, names);
  }

  void apply_key(const std::string& key, const toml::node& node) const {
    if (node.is_array_of_tables() || (node.is_table() && !node.as_table()->is_inline())) {
      throw UserError(at(node.source()), "it has a section '" + key + "'", "write all keys at the top level");
    }
    const std::string where = at(node.source()) + ": key '" + key + "'";
    CLI::Option* option = find(key);
    if (option == nullptr) throw UserError(where, "there is no such option", remedy_for_unknown(key));
    if (!node.is_string() && !node.is_number() && !node.is_boolean()) {
      throw UserError(where, "it does not have exactly one value", "write " + key + " = VALUE");
    }
    const bool is_switch = option->get_expected_min() == 0;
    if (is_switch && !node.is_boolean()) {
      throw UserError(where, "'" + value_text(node) + "' is neither true nor false",
                      "write " + key + " = true or " + key + " = false");
    }
    if (option->count() > 0) return;
    try {
      option->add_result(value_text(node));
      option->run_callback();
    } catch (const CLI::Error& error) {
      throw UserError(where, error.what(), "correct the value");
    }
  }

  /// The value as the command line would give it; numbers keep every bit.
  static std::string value_text(const toml::node& node) {
    if (node.is_string()) return node.as_string()->get();
    if (node.is_boolean()) return node.as_boolean()->get() ? "true" : "false";
    if (node.is_integer()) return std::to_string(node.as_integer()->get());
    char text[32];
    const auto end = std::to_chars(text, text + sizeof text, node.as_floating_point()->get());
    return {text, end.ptr};
  }

  CLI::App& command_;
  std::string path_;
};

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
      if constexpr (std::is_integral_v<T>) {
        option->transform(whole_number<T>());
      } else if constexpr (!std::is_same_v<T, std::string>) {
        option->check([](const std::string& text) { return number_problem<T>(text); });
      }
    }
  });
}

void check_whole_numbers(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    const std::string type = option->get_type_name();
    if (type.starts_with("UINT")) {
      option->transform(whole_number<std::uint64_t>());
    } else if (type.starts_with("INT")) {
      option->transform(whole_number<std::int64_t>());
    }
  }
}

void apply_config(CLI::App& command, const std::string& config) {
  if (config.empty()) return;
  RecipeFile(command, config).apply();
}

std::string shared_options(const CLI::App& command, bool has_recipe) {
  // Of checkpoints, data and threads the effect is compared.
  std::set<std::string> others{"help",    "config",   "json", "html",       "dot",
                               "picture", "timeline", "data", "checkpoint", "threads"};
  const Recipe recipe;
  if (has_recipe) Recipe::visit(recipe, [&others](const char* key, auto&&...) { others.insert(key); });
  std::string text = "command = " + command.get_parent()->get_name() + " " + command.get_name() + "\n";
  for (const CLI::Option* option : command.get_options()) {
    const std::vector<std::string>& names = option->get_lnames();
    if (names.empty() || others.contains(names.front())) continue;
    const std::string given = option->count() > 0 ? join(option->results(), " ") : option->get_default_str();
    text += names.front() + " = " + (given.empty() ? "not given" : given) + "\n";
  }
  return text;
}

std::string command_words(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? "renai" : command_words(*parent) + " " + command.get_name();
}

void refuse_extras(const CLI::App& command) {
  const std::vector<std::string> extras = command.remaining();
  if (extras.empty()) return;
  const std::string& first = extras.front();
  if (first.rfind("--", 0) != 0) {
    throw UserError("'" + first + "'", command_words(command) + " does not take this argument",
                    "see " + command_words(command) + " --help");
  }
  const std::string name =
      first.substr(2, first.find('=') == std::string::npos ? std::string::npos : first.find('=') - 2);
  throw UserError("option '--" + name + "'", command_words(command) + " has no such option",
                  suggest_name(name, option_names(command)));
}

}  // namespace renai
