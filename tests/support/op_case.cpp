#include "op_case.hpp"

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "renai/base/error.hpp"

namespace renai::test {
namespace {

template <typename T>
T parse(const OpCase& op_case, const std::string& key, const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw UserError("case '" + op_case.op + " " + op_case.name + "'", key + "=" + text + " is not a number");
  }
  return value;
}

}  // namespace

std::int64_t OpCase::integer(const std::string& key, std::int64_t otherwise) const {
  const auto found = attributes.find(key);
  return found == attributes.end() ? otherwise : parse<std::int64_t>(*this, key, found->second);
}

std::int64_t OpCase::integer(const std::string& key) const {
  if (!has(key)) throw UserError("case '" + op + " " + name + "'", "it lacks " + key);
  return integer(key, 0);
}

float OpCase::real(const std::string& key, float otherwise) const {
  const auto found = attributes.find(key);
  return found == attributes.end() ? otherwise : parse<float>(*this, key, found->second);
}

std::string OpCase::text(const std::string& key, const std::string& otherwise) const {
  const auto found = attributes.find(key);
  return found == attributes.end() ? otherwise : found->second;
}

Shape OpCase::input_shape() const {
  if (!has("h")) return {integer("n"), integer("c")};
  return {integer("n"), integer("h"), integer("w"), integer("c")};
}

WindowParams OpCase::window() const {
  const auto axis = [&](const char* both, const char* one, std::int64_t otherwise) {
    return integer(one, integer(both, otherwise));
  };
  WindowParams window;
  window.kernel_h = axis("k", "kh", 1);
  window.kernel_w = axis("k", "kw", 1);
  window.stride_h = axis("stride", "stride_h", 1);
  window.stride_w = axis("stride", "stride_w", 1);
  window.pad_h = axis("pad", "pad_h", 0);
  window.pad_w = axis("pad", "pad_w", 0);
  window.dilation_h = axis("dilation", "dilation_h", 1);
  window.dilation_w = axis("dilation", "dilation_w", 1);
  return window;
}

std::vector<OpCase> read_op_cases(const std::string& folder, const std::string& op) {
  // A build that was made on another machine has that machine's folder in it.
  const char* elsewhere = std::getenv("RENAI_CASES_DIR");
  const std::string path = (elsewhere != nullptr ? std::string(elsewhere) : folder) + "/" + op + ".txt";
  std::ifstream file(path);
  if (!file) throw UserError("reading cases", "cannot open " + path);
  std::vector<OpCase> cases;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    OpCase op_case;
    op_case.op = op;
    if (!(words >> op_case.name)) continue;
    for (std::string word; words >> word;) {
      const auto equals = word.find('=');
      if (equals == std::string::npos || equals == 0) {
        throw UserError("reading cases", path + ":" + std::to_string(number) + ": '" + word + "' is not key=value");
      }
      op_case.attributes[word.substr(0, equals)] = word.substr(equals + 1);
    }
    cases.push_back(std::move(op_case));
  }
  return cases;
}

}  // namespace renai::test
