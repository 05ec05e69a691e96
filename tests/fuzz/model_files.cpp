// Random mutations of valid model files: never a crash, never anything but a UserError, and what is accepted is sound.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "renai/base/error.hpp"
#include "renai/base/philox.hpp"
#include "renai/model/model_spec.hpp"

namespace renai {
namespace {

constexpr int kRounds = 20000;

const char* const kSeedText = R"(name = "seed"
input_channels = 3
[[layers]]
name = "conv1"
type = "conv2d"
out = 16
kernel = [3, 5]
padding = 1
bias = false
[[layers]]
name = "body"
repeat = 2
[[layers.layers]]
type = "residual"
name = "block"
activation = "silu"
layers = [{type = "conv2d", name = "conv", out = 16, kernel = 3, padding = 1}, {type = "batch_norm", eps = 1e-3}]
projection = [{type = "conv2d", out = 16, kernel = 1}]
[[layers]]
type = "concat"
inputs = ["previous", "conv1"]
[[layers]]
type = "dropout"
p = 0.2
[[layers]]
type = "avg_pool"
kernel = 2
[[layers]]
type = "flatten"
[[layers]]
type = "linear"
name = "fc"
)";

const std::array<const char*, 24> kTokens{"=",
                                          "[",
                                          "]",
                                          "{",
                                          "}",
                                          "\"",
                                          "\n",
                                          ",",
                                          "[[layers]]",
                                          "type = ",
                                          "inputs = ",
                                          "repeat = 999",
                                          "9e99",
                                          "nan",
                                          "-1",
                                          "0",
                                          "true",
                                          "\"add\"",
                                          "\"residual\"",
                                          "\"block_input\"",
                                          "layers = ",
                                          "\\u0000",
                                          "1979-05-27",
                                          "'''"};

/// Pseudo-random stream of one round.
class Dice {
 public:
  explicit Dice(std::uint64_t round) : round_(round) {}
  std::size_t below(std::size_t limit) {
    return random_block(11, RandomPurpose::test, round_, draw_++)[0] % std::max<std::size_t>(limit, 1);
  }

 private:
  std::uint64_t round_;
  std::uint32_t draw_ = 0;
};

/// A small change of a value: files that stay valid TOML get past the syntax to the checks of the model.
void change_digit(std::string& text, std::size_t from, Dice& dice) {
  const std::size_t at = text.find_first_of("0123456789", from);
  if (at != std::string::npos) text[at] = static_cast<char>('0' + dice.below(10));
}

std::string mutate(std::string text, Dice& dice) {
  const std::size_t edits = 1 + dice.below(3);
  for (std::size_t i = 0; i < edits && !text.empty(); ++i) {
    const std::size_t at = dice.below(text.size());
    const std::size_t length = 1 + dice.below(24);
    switch (dice.below(9)) {
      case 0: text[at] = static_cast<char>(dice.below(256)); break;
      case 1: text.erase(at, length); break;
      case 2: text.insert(at, kTokens[dice.below(kTokens.size())]); break;
      case 3: text.insert(at, text.substr(dice.below(text.size()), length)); break;
      case 4: text.replace(at, length, kTokens[dice.below(kTokens.size())]); break;
      case 5: text.resize(at); break;
      default: change_digit(text, at, dice); break;
    }
  }
  return text;
}

TEST(FuzzModelFiles, MutationsAreRefusedOrSound) {
  const std::vector<std::string> seeds{kSeedText, to_toml(load_model("cnn-small")), to_toml(load_model("resnet9"))};
  int accepted = 0, refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    Dice dice(static_cast<std::uint64_t>(round));
    const std::string text = mutate(seeds[static_cast<std::size_t>(round) % seeds.size()], dice);
    SCOPED_TRACE("round " + std::to_string(round));
    try {
      const ModelSpec spec = parse_model(text, "fuzz.toml");
      ++accepted;
      ASSERT_NO_THROW(verify(spec)) << text;
      const std::string again = to_toml(spec);
      ASSERT_EQ(to_toml(parse_model(again, "again.toml")), again) << text;
    } catch (const UserError& error) {
      ++refused;
      ASSERT_NE(std::string(error.what()).find("fuzz.toml"), std::string::npos) << error.what();
    }
  }
  // The mutations reach both sides.
  EXPECT_GT(accepted, kRounds / 100);
  EXPECT_GT(refused, kRounds / 10);
}

TEST(FuzzModelFiles, EveryPrefixIsRefusedOrSound) {
  const std::string text = kSeedText;
  ASSERT_NO_THROW(parse_model(text, "seed.toml"));
  for (std::size_t length = 0; length < text.size(); ++length) {
    try {
      verify(parse_model(std::string_view(text).substr(0, length), "prefix.toml"));
    } catch (const UserError&) {
    }
  }
}

}  // namespace
}  // namespace renai
