// Options whose values are a few words.
#include "renai/base/option_word.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "renai/base/error.hpp"

namespace renai {
namespace {

enum class Fruit { apple, pear };
std::string_view fruit_name(Fruit fruit) { return fruit == Fruit::apple ? "apple" : "pear"; }

std::string refusal(const std::string& text) {
  try {
    named_value("--fruit", text, {Fruit::apple, Fruit::pear}, fruit_name);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(OptionWord, ANameIsItsValue) {
  EXPECT_EQ(named_value("--fruit", "apple", {Fruit::apple, Fruit::pear}, fruit_name), Fruit::apple);
  EXPECT_EQ(named_value("--fruit", "pear", {Fruit::apple, Fruit::pear}, fruit_name), Fruit::pear);
}

TEST(OptionWord, ARefusalHasTheNearestWordAndAllOfThem) {
  EXPECT_EQ(refusal("aple"), "--fruit aple; unknown value; did you mean 'apple'? Values: apple, pear");
  EXPECT_EQ(refusal("stone"), "--fruit stone; unknown value; use apple, pear");
}

TEST(OptionWord, AWordOfTheListIsTaken) {
  const std::vector<std::string> words{"on", "off"};
  EXPECT_NO_THROW(require_word("--light", "off", words));
  EXPECT_THROW(require_word("--light", "", words), UserError);
}

}  // namespace
}  // namespace renai
