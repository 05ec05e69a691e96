#pragma once
// Typed reading of TOML nodes with errors that name file, line and key.

#include <string>
#include <string_view>
#include <vector>

// Third-party, and included nowhere outside this room.
#include <toml++/toml.h>

namespace renai {

/// Reads values of one file. Every error is a UserError "model file F:LINE, key 'K'; why; remedy".
class TomlReader {
 public:
  explicit TomlReader(std::string source) : source_(std::move(source)) {}

  [[noreturn]] void fail(std::int64_t line, std::string_view key, const std::string& why,
                         const std::string& remedy) const;

  std::int64_t integer(const toml::node& node, std::string_view key, std::int64_t lowest, std::int64_t highest) const;
  float number(const toml::node& node, std::string_view key) const;
  bool boolean(const toml::node& node, std::string_view key) const;
  std::string text(const toml::node& node, std::string_view key) const;
  std::vector<std::string> texts(const toml::node& node, std::string_view key) const;
  /// A list of tables that is not empty.
  const toml::array& tables(const toml::node& node, std::string_view key) const;
  /// One integer for both axes, or [height, width].
  std::pair<std::int64_t, std::int64_t> extents(const toml::node& node, std::string_view key,
                                                std::int64_t lowest) const;
  /// Refuses keys outside `known`, naming the nearest one. `what` is what the table describes.
  void check_keys(const toml::table& table, const std::vector<std::string>& known, const std::string& what) const;

  static std::int64_t line(const toml::node& node) { return static_cast<std::int64_t>(node.source().begin.line); }

 private:
  std::string source_;
};

}  // namespace renai
