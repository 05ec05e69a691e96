#include "renai/base/option_word.hpp"

#include <algorithm>

#include "renai/base/error.hpp"
#include "renai/base/text.hpp"

namespace renai {

void refuse_word(const std::string& option, const std::string& value, std::span<const std::string> words) {
  // The nearest word may be nearest by its letters only: 'gpu' is not meant to be 'cpu'. All of them are few.
  std::string remedy = "use " + join(words, ", ");
  if (const std::string nearest = nearest_name(value, words); !nearest.empty()) {
    remedy = "did you mean '" + nearest + "'? Values: " + join(words, ", ");
  }
  throw UserError(option + " " + value, "unknown value", remedy);
}

void require_word(const std::string& option, const std::string& value, std::span<const std::string> words) {
  if (std::find(words.begin(), words.end(), value) == words.end()) refuse_word(option, value, words);
}

}  // namespace renai
