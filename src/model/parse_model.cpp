// User models: TOML text to ModelSpec.

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "layer_attributes.hpp"
#include "model_problem.hpp"
#include "renai/base/error.hpp"
#include "renai/base/text.hpp"
#include "reserved_names.hpp"
#include "toml_reader.hpp"

namespace renai {
namespace {

constexpr int kMaxDepth = 16;
constexpr std::int64_t kMaxRepeat = 1000;

/// Where a list of layers stands: what its names are prefixed with and what its first layer reads.
struct Scope {
  std::string prefix;
  const Scope* outer = nullptr;
  std::string block_input;
  std::optional<int> stage;
  int depth = 0;

  std::string path(const std::string& name) const { return prefix.empty() ? name : prefix + "." + name; }
};

class ModelParser {
 public:
  explicit ModelParser(std::string source) : reader_(source) { spec_.source = std::move(source); }

  ModelSpec parse(std::string_view text);

 private:
  void read_header(const toml::table& root);
  void read_list(const toml::array& list, const Scope& scope);
  void read_entry(const toml::table& table, const std::string& name, const Scope& scope);
  void read_group(const toml::table& table, const std::string& name, const Scope& scope);
  void read_residual(const toml::table& table, const std::string& name, const Scope& scope);
  void read_layer(const toml::table& table, LayerKind kind, const std::string& name, const Scope& scope);
  void read_attributes(const toml::table& table, LayerSpec& layer) const;
  void read_attribute(const toml::node& node, std::string_view key, LayerSpec& layer) const;
  std::string resolve_input(const toml::node& at, const std::string& input, const Scope& scope) const;
  void append(LayerSpec layer, std::int64_t line);
  Scope inner_scope(const toml::table& table, const std::string& name, const Scope& scope) const;
  void check_result() const;

  TomlReader reader_;
  ModelSpec spec_;
  std::string last_{kNetworkInput};
  std::set<std::string, std::less<>> names_;
  std::map<std::string, std::string, std::less<>> outputs_;  ///< Of blocks and groups that were read: their last layer.
  std::vector<std::int64_t> lines_;                          ///< Of each layer of spec_.
};

std::vector<std::string> type_names() {
  std::vector<std::string> names;
  for (const LayerAttributes& entry : layer_attributes()) names.emplace_back(entry.name);
  names.emplace_back("residual");
  return names;
}

bool is_activation(LayerKind kind) { return kind >= LayerKind::relu && kind <= LayerKind::tanh; }

void ModelParser::read_header(const toml::table& root) {
  reader_.check_keys(root, {"name", "input_channels", "resolution", "classes", "init", "layers"}, "a model");
  const toml::node* name = root.get("name");
  if (name == nullptr) reader_.fail(1, "name", "the key is missing", "give the model a name");
  spec_.name = reader_.text(*name, "name");
  if (spec_.name.empty()) reader_.fail(TomlReader::line(*name), "name", "the text is empty", "give a name");
  const auto read = [&](const char* key, std::int64_t& value) {
    if (const toml::node* node = root.get(key)) value = reader_.integer(*node, key, 1, kMaxAttribute);
  };
  read("input_channels", spec_.input_channels);
  read("resolution", spec_.resolution);
  read("classes", spec_.classes);
  if (const toml::node* node = root.get("init")) {
    const std::string rule = reader_.text(*node, "init");
    const auto found = find_init_rule(rule);
    const std::vector<std::string> known = init_rule_names();
    if (!found) reader_.fail(TomlReader::line(*node), "init", "unknown rule '" + rule + "'", suggest_name(rule, known));
    spec_.init = *found;
  }
  if (root.get("layers") == nullptr) {
    reader_.fail(1, "layers", "the key is missing", "list the layers as [[layers]] tables");
  }
}

void ModelParser::read_list(const toml::array& list, const Scope& scope) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    const toml::table& table = *list[i].as_table();
    // Without a name of its own an entry is called by its position, as in a sequence.
    std::string name = std::to_string(i);
    if (const toml::node* node = table.get("name")) {
      name = reader_.text(*node, "name");
      if (name.empty()) reader_.fail(TomlReader::line(*node), "name", "the text is empty", "give a name");
    }
    Scope own = scope;
    own.outer = scope.outer;
    if (const toml::node* node = table.get("stage")) {
      own.stage = static_cast<int>(reader_.integer(*node, "stage", 0, kMaxAttribute));
    } else if (!own.stage) {
      own.stage = static_cast<int>(i);
    }
    read_entry(table, name, own);
  }
}

void ModelParser::read_entry(const toml::table& table, const std::string& name, const Scope& scope) {
  const toml::node* type_node = table.get("type");
  if (type_node == nullptr) {
    if (table.get("layers") != nullptr) {
      read_group(table, name, scope);
      outputs_[scope.path(name)] = last_;
      return;
    }
    reader_.fail(TomlReader::line(table), "type", "the key is missing",
                 "a layer needs a type; a group needs a list of layers");
  }
  const std::string type = reader_.text(*type_node, "type");
  if (type == "residual") {
    read_residual(table, name, scope);
    outputs_[scope.path(name)] = last_;
    return;
  }
  const auto kind = find_layer_kind(type);
  if (!kind) {
    const std::vector<std::string> known = type_names();
    reader_.fail(TomlReader::line(*type_node), "type", "unknown type '" + type + "'", suggest_name(type, known));
  }
  read_layer(table, *kind, name, scope);
}

Scope ModelParser::inner_scope(const toml::table& table, const std::string& name, const Scope& scope) const {
  if (scope.depth + 1 > kMaxDepth) {
    reader_.fail(TomlReader::line(table), "layers", "more than " + std::to_string(kMaxDepth) + " levels of blocks",
                 "nest fewer");
  }
  return {scope.path(name), &scope, last_, scope.stage, scope.depth + 1};
}

void ModelParser::read_group(const toml::table& table, const std::string& name, const Scope& scope) {
  reader_.check_keys(table, {"name", "stage", "repeat", "layers"}, "a group of layers");
  const toml::array& list = reader_.tables(*table.get("layers"), "layers");
  const toml::node* repeat_node = table.get("repeat");
  if (repeat_node == nullptr) return read_list(list, inner_scope(table, name, scope));
  const std::int64_t repeat = reader_.integer(*repeat_node, "repeat", 1, kMaxRepeat);
  for (std::int64_t i = 0; i < repeat; ++i) {
    const std::string one = name + "." + std::to_string(i);
    read_list(list, inner_scope(table, one, scope));
    outputs_[scope.path(one)] = last_;
  }
}

void ModelParser::read_residual(const toml::table& table, const std::string& name, const Scope& scope) {
  reader_.check_keys(table, {"type", "name", "stage", "layers", "projection", "activation"}, "a residual block");
  const toml::node* layers = table.get("layers");
  if (layers == nullptr) {
    reader_.fail(TomlReader::line(table), "layers", "the key is missing", "list the layers of the residual branch");
  }
  const Scope block = inner_scope(table, name, scope);
  read_list(reader_.tables(*layers, "layers"), block);
  const std::string branch = last_;
  std::string shortcut = block.block_input;
  if (const toml::node* projection = table.get("projection")) {
    last_ = block.block_input;
    Scope inner = inner_scope(table, name + ".projection", scope);
    inner.outer = &block;
    read_list(reader_.tables(*projection, "projection"), inner);
    shortcut = last_;
  }
  LayerSpec sum;
  sum.name = block.path("add");
  sum.kind = LayerKind::add;
  sum.inputs = {shortcut, branch};
  sum.stage = *scope.stage;
  append(std::move(sum), TomlReader::line(table));

  LayerSpec activation;
  activation.kind = LayerKind::relu;
  if (const toml::node* node = table.get("activation")) {
    const std::string kind_name = reader_.text(*node, "activation");
    if (kind_name == "none") return;
    const auto kind = find_layer_kind(kind_name);
    if (!kind || !is_activation(*kind)) {
      std::vector<std::string> known{"none"};
      for (const LayerAttributes& entry : layer_attributes()) {
        if (is_activation(entry.kind)) known.emplace_back(entry.name);
      }
      reader_.fail(TomlReader::line(*node), "activation", "unknown activation '" + kind_name + "'",
                   suggest_name(kind_name, known));
    }
    activation.kind = *kind;
  }
  activation.name = block.path(layer_kind_name(activation.kind));
  activation.inputs = {last_};
  activation.stage = *scope.stage;
  append(std::move(activation), TomlReader::line(table));
}

std::string ModelParser::resolve_input(const toml::node& at, const std::string& input, const Scope& scope) const {
  if (input == kPrevious) return last_;
  if (input == kNetworkInput) return input;
  if (input == kBlockInput) {
    if (scope.outer == nullptr) {
      reader_.fail(TomlReader::line(at), "inputs", "'block_input' stands outside any block", "use 'input'");
    }
    return scope.block_input;
  }
  for (const Scope* level = &scope; level != nullptr; level = level->outer) {
    const std::string path = level->path(input);
    if (names_.contains(path)) return path;
    if (const auto block = outputs_.find(path); block != outputs_.end()) return block->second;
  }
  std::vector<std::string> known{std::string(kNetworkInput), std::string(kPrevious)};
  known.insert(known.end(), names_.begin(), names_.end());
  for (const auto& block : outputs_) known.push_back(block.first);
  reader_.fail(TomlReader::line(at), "inputs", "no earlier layer is named '" + input + "'", suggest_name(input, known));
}

void ModelParser::read_layer(const toml::table& table, LayerKind kind, const std::string& name, const Scope& scope) {
  const LayerAttributes& attributes = attributes_of(kind);
  std::vector<std::string> known{"type", "name", "inputs", "stage"};
  known.insert(known.end(), attributes.keys.begin(), attributes.keys.end());
  const std::string what = layer_kind_name(kind);
  if (const toml::node* node = table.get("repeat")) {
    reader_.fail(TomlReader::line(*node), "repeat", "a single layer cannot be repeated",
                 "put it in a group: repeat = N with a list of layers");
  }
  reader_.check_keys(table, known, "the type " + what);
  if (!attributes.required.empty() && table.get(attributes.required) == nullptr) {
    reader_.fail(TomlReader::line(table), attributes.required, "the key is missing; the type " + what + " needs it",
                 "add it");
  }
  LayerSpec layer;
  layer.name = scope.path(name);
  layer.kind = kind;
  layer.stage = *scope.stage;
  if (const toml::node* node = table.get("inputs")) {
    for (const std::string& input : reader_.texts(*node, "inputs")) {
      layer.inputs.push_back(resolve_input(*node, input, scope));
    }
  } else {
    layer.inputs = {last_};
  }
  read_attributes(table, layer);
  append(std::move(layer), TomlReader::line(table));
}

void ModelParser::read_attributes(const toml::table& table, LayerSpec& layer) const {
  for (const std::string_view key : attributes_of(layer.kind).keys) {
    if (const toml::node* node = table.get(key)) read_attribute(*node, key, layer);
  }
  const bool pool = layer.kind == LayerKind::max_pool || layer.kind == LayerKind::avg_pool;
  if (pool && table.get("stride") == nullptr) {
    layer.stride_h = layer.kernel_h;
    layer.stride_w = layer.kernel_w;
  }
  const auto problem = find_attribute_problem(layer);
  if (!problem) return;
  const toml::node* node = table.get(problem->attribute);
  reader_.fail(TomlReader::line(node != nullptr ? *node : static_cast<const toml::node&>(table)), problem->attribute,
               problem->why, problem->remedy);
}

void ModelParser::read_attribute(const toml::node& node, std::string_view key, LayerSpec& layer) const {
  if (key == "out") {
    if (layer.kind == LayerKind::linear && node.is_string() && node.as_string()->get() == "classes") {
      layer.out = 0;
    } else {
      layer.out = reader_.integer(node, key, 1, kMaxAttribute);
    }
  } else if (key == "kernel") {
    std::tie(layer.kernel_h, layer.kernel_w) = reader_.extents(node, key, 1);
  } else if (key == "stride") {
    std::tie(layer.stride_h, layer.stride_w) = reader_.extents(node, key, 1);
  } else if (key == "size") {
    std::tie(layer.size_h, layer.size_w) = reader_.extents(node, key, 1);
  } else if (key == "padding") {
    std::tie(layer.pad_h, layer.pad_w) = reader_.extents(node, key, 0);
  } else if (key == "dilation") {
    std::tie(layer.dilation_h, layer.dilation_w) = reader_.extents(node, key, 1);
  } else if (key == "groups") {
    layer.groups = reader_.integer(node, key, 1, kMaxAttribute);
  } else if (key == "bias") {
    layer.bias = reader_.boolean(node, key);
  } else if (key == "ceil_mode") {
    layer.ceil_mode = reader_.boolean(node, key);
  } else if (key == "count_include_pad") {
    layer.count_include_pad = reader_.boolean(node, key);
  } else if (key == "zero_init") {
    layer.zero_init = reader_.boolean(node, key);
  } else if (key == "eps") {
    layer.eps = reader_.number(node, key);
  } else if (key == "momentum") {
    layer.bn_momentum = reader_.number(node, key);
  } else if (key == "slope") {
    layer.slope = reader_.number(node, key);
  } else {
    layer.p = reader_.number(node, key);
  }
}

void ModelParser::append(LayerSpec layer, std::int64_t line) {
  if (spec_.layers.size() >= kMaxLayers) {
    reader_.fail(line, "layers", "the model has more than " + std::to_string(kMaxLayers) + " layers", "leave some out");
  }
  if (!names_.insert(layer.name).second) {
    reader_.fail(line, "name", "'" + layer.name + "' is already taken by an earlier layer", "choose another");
  }
  last_ = layer.name;
  lines_.push_back(line);
  spec_.layers.push_back(std::move(layer));
}

void ModelParser::check_result() const {
  const auto problem = find_problem(spec_);
  if (!problem) return;
  const std::int64_t line = problem->layer < lines_.size() ? lines_[problem->layer] : 1;
  reader_.fail(line, problem->attribute, problem->why, problem->remedy);
}

ModelSpec ModelParser::parse(std::string_view text) {
  toml::table root;
  try {
    root = toml::parse(text, spec_.source);
  } catch (const toml::parse_error& error) {
    reader_.fail(static_cast<std::int64_t>(error.source().begin.line), {},
                 "not valid TOML: " + std::string(error.description()), "correct the file");
  }
  read_header(root);
  read_list(reader_.tables(*root.get("layers"), "layers"), Scope{});
  check_result();
  return spec_;
}

}  // namespace

ModelSpec parse_model(std::string_view toml_text, const std::string& source) {
  return ModelParser(source).parse(toml_text);
}

}  // namespace renai
