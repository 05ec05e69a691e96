// Malformed model files: each mistake is one UserError with file, line, key and a way out.
#include <gtest/gtest.h>

#include "renai/base/error.hpp"
#include "renai/model/model_spec.hpp"

namespace renai {
namespace {

struct Malformed {
  const char* name;
  const char* text;
  std::vector<const char*> parts;  ///< What the message must contain.
};

const char* const kTail = R"(
[[layers]]
type = "flatten"
[[layers]]
type = "linear"
)";

/// `layer` between a header of one line and an end that makes the model whole; the layer starts at line 2.
std::string with_layer(const std::string& layer) { return "name = \"m\"\n" + layer + kTail; }

std::vector<Malformed> layers() {
  return {
      {"unknown_type",
       "[[layers]]\ntype = \"conv2\"\nout = 4\nkernel = 3",
       {":3", "'type'", "conv2", "did you mean 'conv2d'?"}},
      {"missing_type", "[[layers]]\nout = 4", {":2", "'type'", "missing"}},
      {"unknown_key",
       "[[layers]]\ntype = \"conv2d\"\nout = 4\nkernal = 3\nkernel = 3",
       {":5", "'kernal'", "did you mean 'kernel'?"}},
      {"key_of_another_type", "[[layers]]\ntype = \"relu\"\nslope = 0.1", {":4", "'slope'", "relu"}},
      {"missing_kernel", "[[layers]]\ntype = \"conv2d\"\nout = 4", {":2", "'kernel'", "missing"}},
      {"missing_out", "[[layers]]\ntype = \"conv2d\"\nkernel = 3", {":2", "'out'", "missing"}},
      {"zero_out", "[[layers]]\ntype = \"conv2d\"\nkernel = 3\nout = 0", {":5", "'out'", "0"}},
      {"zero_kernel", "[[layers]]\ntype = \"conv2d\"\nout = 4\nkernel = 0", {":5", "'kernel'", "0"}},
      {"negative_padding",
       "[[layers]]\ntype = \"conv2d\"\nout = 4\nkernel = 3\npadding = [0, -1]",
       {":6", "'padding'", "-1"}},
      {"three_extents", "[[layers]]\ntype = \"max_pool\"\nkernel = [2, 2, 2]", {":4", "'kernel'", "[height, width]"}},
      {"text_for_number",
       "[[layers]]\ntype = \"conv2d\"\nout = \"4\"\nkernel = 3",
       {":4", "'out'", "integer", "a text"}},
      {"number_for_boolean",
       "[[layers]]\ntype = \"conv2d\"\nout = 4\nkernel = 3\nbias = 1",
       {":6", "'bias'", "true or false"}},
      {"huge_value", "[[layers]]\ntype = \"conv2d\"\nout = 4000000000000\nkernel = 3", {":4", "'out'", "outside"}},
      {"groups", "[[layers]]\ntype = \"conv2d\"\nout = 4\nkernel = 3\ngroups = 3", {":6", "'groups'", "not divisible"}},
      {"pool_padding", "[[layers]]\ntype = \"max_pool\"\nkernel = 2\npadding = 2", {":5", "'padding'", "half"}},
      {"epsilon", "[[layers]]\ntype = \"batch_norm\"\neps = -1.0", {":4", "'eps'", "above 0"}},
      {"not_a_number", "[[layers]]\ntype = \"batch_norm\"\neps = nan", {":4", "'eps'", "finite"}},
      {"bn_momentum", "[[layers]]\ntype = \"batch_norm\"\nmomentum = 1.5", {":4", "'momentum'", "at most 1"}},
      {"dropout", "[[layers]]\ntype = \"dropout\"\np = 1.0", {":4", "'p'", "below 1"}},
      {"slope", "[[layers]]\ntype = \"leaky_relu\"\nslope = 0.0", {":4", "'slope'", "above 0"}},
      {"unknown_input", "[[layers]]\ntype = \"relu\"\ninputs = [\"inptu\"]", {":4", "'inputs'", "inptu", "'input'"}},
      {"add_with_one_input", "[[layers]]\ntype = \"add\"\ninputs = [\"input\"]", {":2", "'inputs'", "takes 2"}},
      {"add_without_inputs", "[[layers]]\ntype = \"add\"", {":2", "'inputs'", "missing"}},
      {"concat_with_one_input",
       "[[layers]]\ntype = \"concat\"\ninputs = [\"input\"]",
       {":2", "'inputs'", "at least 2"}},
      {"relu_with_two_inputs",
       "[[layers]]\ntype = \"relu\"\ninputs = [\"input\", \"input\"]",
       {":2", "'inputs'", "takes 1"}},
      {"block_input_outside", "[[layers]]\ntype = \"relu\"\ninputs = [\"block_input\"]", {":4", "outside any block"}},
      {"repeated_name",
       "[[layers]]\nname = \"a\"\ntype = \"relu\"\n[[layers]]\nname = \"a\"\ntype = \"relu\"",
       {":5", "'name'", "already taken"}},
      {"reserved_name", "[[layers]]\nname = \"input\"\ntype = \"relu\"", {":2", "'name'", "meaning of its own"}},
      {"slash_in_name", "[[layers]]\nname = \"a/b\"\ntype = \"relu\"", {":2", "'name'", "a/b"}},
      {"unread_layer",
       "[[layers]]\nname = \"a\"\ntype = \"relu\"\n[[layers]]\ntype = \"relu\"\ninputs = [\"input\"]",
       {":2", "no layer reads the output of 'a'"}},
      {"head_in_the_middle", "[[layers]]\ntype = \"linear\"", {":2", "'out'", "missing", "last layer"}},
      {"negative_stage", "[[layers]]\ntype = \"relu\"\nstage = -1", {":4", "'stage'", "-1"}},
      {"repeat_zero", "[[layers]]\nrepeat = 0\nlayers = [{type = \"relu\"}]", {":3", "'repeat'", "0"}},
      {"repeat_of_a_layer", "[[layers]]\ntype = \"relu\"\nrepeat = 2", {":4", "'repeat'", "group"}},
      {"too_many_layers",
       "[[layers]]\nrepeat = 1000\nlayers = [{repeat = 1000, layers = [{repeat = 1000, layers = [{type = "
       "\"relu\"}]}]}]",
       {"more than 10000 layers"}},
      {"empty_group", "[[layers]]\nrepeat = 2\nlayers = []", {":4", "'layers'", "empty"}},
      {"residual_without_layers", "[[layers]]\ntype = \"residual\"", {":2", "'layers'", "missing"}},
      {"residual_key",
       "[[layers]]\ntype = \"residual\"\nprojetion = []\nlayers = [{type = \"relu\"}]",
       {":4", "'projetion'", "did you mean 'projection'?"}},
      {"residual_activation",
       "[[layers]]\ntype = \"residual\"\nactivation = \"relu7\"\nlayers = [{type = \"relu\"}]",
       {":4", "'activation'", "relu7", "did you mean 'relu'?"}},
  };
}

const std::vector<Malformed>& files() {
  static const std::vector<Malformed> kFiles{
      {"syntax", "name = \"m\"\nlayers = [", {"m.toml:2", "not valid TOML"}},
      {"duplicate_key", "name = \"m\"\nname = \"n\"\n", {"m.toml:2", "not valid TOML"}},
      {"empty", "", {"'name'", "missing"}},
      {"no_layers", "name = \"m\"", {"'layers'", "missing"}},
      {"layers_of_another_type", "name = \"m\"\nlayers = 3", {":2", "'layers'", "list of tables"}},
      {"list_of_numbers", "name = \"m\"\nlayers = [1]", {":2", "'layers'", "tables"}},
      {"unknown_key", "name = \"m\"\nresolutoin = 3\n", {":2", "'resolutoin'", "did you mean 'resolution'?"}},
      {"init", "name = \"m\"\ninit = \"kaiming_norm\"\n", {":2", "'init'", "did you mean 'kaiming_normal'?"}},
      {"resolution", "name = \"m\"\nresolution = 0\n", {":2", "'resolution'", "0"}},
      {"bytes", "name = \"\xff\xfe\"", {":1", "not valid TOML"}},
  };
  return kFiles;
}

void expect_refused(const std::string& text, const Malformed& item) {
  SCOPED_TRACE(item.name);
  try {
    parse_model(text, "m.toml");
    ADD_FAILURE() << "accepted:\n" << text;
  } catch (const UserError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("m.toml"), std::string::npos) << what;
    EXPECT_NE(error.remedy(), "") << what;
    for (const char* part : item.parts)
      EXPECT_NE(what.find(part), std::string::npos) << "no " << part << " in: " << what;
  }
}

TEST(Malformed, Layers) {
  for (const Malformed& item : layers()) expect_refused(with_layer(item.text), item);
}

TEST(Malformed, Files) {
  for (const Malformed& item : files()) expect_refused(item.text, item);
}

TEST(Malformed, TheFrameOfTheTableIsSound) {
  EXPECT_NO_THROW(parse_model(with_layer("[[layers]]\ntype = \"relu\""), "m.toml"));
}

TEST(Malformed, DeepNestingIsRefused) {
  std::string text = "{type = \"relu\"}";
  for (int i = 0; i < 40; ++i) text = "{layers = [" + text + "]}";
  EXPECT_THROW(parse_model("name = \"m\"\nlayers = [" + text + "]", "m.toml"), UserError);
}

}  // namespace
}  // namespace renai
