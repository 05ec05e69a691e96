#include "naming.hpp"

#include <array>
#include <cstdio>

namespace renai::graph_detail {

std::string node_name(const std::string& stem, Pass pass) { return stem + "." + std::string(pass_name(pass)); }

std::string float_text(float value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.9g", static_cast<double>(value));
  return text.data();
}

std::string double_text(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.17g", value);
  return text.data();
}

std::string layer_label(const ComputeNode& node) {
  std::string stem = node.name;
  const std::string suffix = "." + std::string(pass_name(node.pass));
  if (stem.size() > suffix.size() && stem.ends_with(suffix)) stem.resize(stem.size() - suffix.size());
  return "layer '" + stem + "'";
}

}  // namespace renai::graph_detail
