#include "renai/comm/ranks.hpp"

#include <gtest/gtest.h>

namespace renai {
namespace {

std::vector<int> odd_of(const std::vector<std::string>& texts) { return split_ranks(texts).odd; }

TEST(Ranks, AreNamed) {
  EXPECT_EQ(name_ranks(std::vector{3}), "rank 3");
  EXPECT_EQ(name_ranks(std::vector{1, 2, 5}), "ranks 1, 2, 5");
}

TEST(Ranks, TheLargestGroupIsRight) {
  EXPECT_EQ(odd_of({"a"}), std::vector<int>{});
  EXPECT_EQ(odd_of({"a", "a", "a"}), std::vector<int>{});
  EXPECT_EQ(odd_of({"a", "b", "b", "c"}), (std::vector{0, 3}));
  EXPECT_EQ(split_ranks(std::vector<std::string>{"a", "b", "b", "c"}).reference, 1);
}

TEST(Ranks, TheLowestRanksGroupWinsATie) {
  EXPECT_EQ(odd_of({"a", "b"}), std::vector{1});
  EXPECT_EQ(odd_of({"b", "a", "a", "b"}), (std::vector{1, 2}));
  EXPECT_EQ(split_ranks(std::vector<std::string>{"b", "a", "a", "b"}).reference, 0);
}

}  // namespace
}  // namespace renai
