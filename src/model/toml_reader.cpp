#include "toml_reader.hpp"

#include <algorithm>
#include <cmath>

#include "model_problem.hpp"
#include "renai/base/error.hpp"
#include "renai/base/text.hpp"

namespace renai {
namespace {

std::string type_text(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table: return "a table";
    case toml::node_type::array: return "a list";
    case toml::node_type::string: return "a text";
    case toml::node_type::integer: return "an integer";
    case toml::node_type::floating_point: return "a number";
    case toml::node_type::boolean: return "a boolean";
    default: return "a date or time";
  }
}

}  // namespace

void TomlReader::fail(std::int64_t line, std::string_view key, const std::string& why,
                      const std::string& remedy) const {
  std::string where = "model file " + source_;
  if (line > 0) where += ":" + std::to_string(line);
  if (!key.empty()) where += ", key '" + std::string(key) + "'";
  throw UserError(where, why, remedy);
}

std::int64_t TomlReader::integer(const toml::node& node, std::string_view key, std::int64_t lowest,
                                 std::int64_t highest) const {
  if (!node.is_integer())
    fail(line(node), key, "must be an integer, not " + type_text(node), "write a number without quotes and point");
  const std::int64_t value = node.as_integer()->get();
  if (value < lowest || value > highest) {
    const std::string least = std::to_string(lowest), most = std::to_string(highest);
    fail(line(node), key, "value " + std::to_string(value) + " is outside " + least + " to " + most,
         "give at least " + least + " and at most " + most);
  }
  return value;
}

float TomlReader::number(const toml::node& node, std::string_view key) const {
  double value = 0;
  if (node.is_integer()) {
    value = static_cast<double>(node.as_integer()->get());
  } else if (node.is_floating_point()) {
    value = node.as_floating_point()->get();
  } else {
    fail(line(node), key, "must be a number, not " + type_text(node), "write a number without quotes");
  }
  if (!std::isfinite(value) || std::abs(value) > 1e30) {
    fail(line(node), key, "must be a finite number", "give one between -1e30 and 1e30");
  }
  return static_cast<float>(value);
}

bool TomlReader::boolean(const toml::node& node, std::string_view key) const {
  if (!node.is_boolean())
    fail(line(node), key, "must be true or false, not " + type_text(node), "write true or false without quotes");
  return node.as_boolean()->get();
}

std::string TomlReader::text(const toml::node& node, std::string_view key) const {
  if (!node.is_string()) fail(line(node), key, "must be a text, not " + type_text(node), "put it into quotes");
  return node.as_string()->get();
}

std::vector<std::string> TomlReader::texts(const toml::node& node, std::string_view key) const {
  if (!node.is_array()) fail(line(node), key, "must be a list of texts, not " + type_text(node), "write [\"...\"]");
  std::vector<std::string> values;
  for (const toml::node& element : *node.as_array()) values.push_back(text(element, key));
  return values;
}

const toml::array& TomlReader::tables(const toml::node& node, std::string_view key) const {
  if (!node.is_array())
    fail(line(node), key, "must be a list of tables, not " + type_text(node),
         "write a [[" + std::string(key) + "]] table for each");
  const toml::array& list = *node.as_array();
  if (list.empty()) fail(line(node), key, "the list is empty", "give it at least one table");
  for (const toml::node& element : list) {
    if (!element.is_table())
      fail(line(element), key, "must hold tables, not " + type_text(element), "write each as {type = \"...\"}");
  }
  return list;
}

std::pair<std::int64_t, std::int64_t> TomlReader::extents(const toml::node& node, std::string_view key,
                                                          std::int64_t lowest) const {
  if (!node.is_array()) {
    const std::int64_t value = integer(node, key, lowest, kMaxAttribute);
    return {value, value};
  }
  const toml::array& list = *node.as_array();
  if (list.size() != 2) fail(line(node), key, "must be an integer or [height, width]", "give one number or two");
  return {integer(list[0], key, lowest, kMaxAttribute), integer(list[1], key, lowest, kMaxAttribute)};
}

void TomlReader::check_keys(const toml::table& table, const std::vector<std::string>& known,
                            const std::string& what) const {
  for (const auto& [key, value] : table) {
    const std::string name(key.str());
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const auto at = static_cast<std::int64_t>(key.source().begin.line);
    fail(at > 0 ? at : line(value), name, "unknown key of " + what, suggest_name(name, known));
  }
}

}  // namespace renai
