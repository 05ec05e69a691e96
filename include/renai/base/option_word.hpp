#pragma once
// Options whose values are a few words.

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace renai {

/// Errors: UserError: `option` (with its dashes) has no value `value`; the nearest of the words, and all of them.
[[noreturn]] void refuse_word(const std::string& option, const std::string& value, std::span<const std::string> words);
/// Errors: as refuse_word() unless `value` is one of the words.
void require_word(const std::string& option, const std::string& value, std::span<const std::string> words);

/// The one of `values` that `name_of` gives the name `text`. Errors: as refuse_word().
template <typename Enum, typename NameOf>
Enum named_value(const std::string& option, const std::string& text, std::initializer_list<Enum> values,
                 NameOf&& name_of) {
  std::vector<std::string> names;
  for (const Enum value : values) {
    names.emplace_back(name_of(value));
    if (names.back() == text) return value;
  }
  refuse_word(option, text, names);
}

}  // namespace renai
