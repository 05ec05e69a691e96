// tree_sum against its definition.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "renai/base/error.hpp"
#include "renai/base/philox.hpp"
#include "renai/comm/communicator.hpp"

namespace renai {
namespace {

/// Both signs and magnitudes over 25 binades: any other order gives other bits somewhere.
std::vector<std::vector<float>> make_vectors(int count, std::int64_t elems) {
  std::vector<std::vector<float>> vectors(static_cast<std::size_t>(count));
  for (std::size_t v = 0; v < vectors.size(); ++v) {
    for (std::int64_t i = 0; i < elems; ++i) {
      const auto words =
          random_block(11, RandomPurpose::test, static_cast<std::uint64_t>(i), static_cast<std::uint32_t>(v));
      vectors[v].push_back(std::ldexp(uniform01(words[0]) - 0.5f, static_cast<int>(words[1] % 25) - 12));
    }
  }
  return vectors;
}

float definition(const std::vector<std::vector<float>>& vectors, std::size_t first, std::size_t count, std::size_t i) {
  if (count == 1) return vectors[first][i];
  return definition(vectors, first, count / 2, i) + definition(vectors, first + count / 2, count / 2, i);
}

std::vector<const float*> pointers(const std::vector<std::vector<float>>& vectors) {
  std::vector<const float*> result;
  for (const auto& vector : vectors) result.push_back(vector.data());
  return result;
}

TEST(TreeSum, IsTheBalancedTree) {
  for (const int count : {1, 2, 4, 8, 16, 32, 64}) {
    for (const std::int64_t elems : {0, 1, 3, 511, 512, 513, 1500}) {
      const auto vectors = make_vectors(count, elems);
      std::vector<float> out(static_cast<std::size_t>(elems) + 1, 42.0f);
      tree_sum(pointers(vectors).data(), count, elems, out.data());
      for (std::size_t i = 0; i < static_cast<std::size_t>(elems); ++i) {
        const float expected = definition(vectors, 0, static_cast<std::size_t>(count), i);
        ASSERT_EQ(std::memcmp(&out[i], &expected, sizeof(float)), 0) << count << " vectors, element " << i;
      }
      EXPECT_EQ(out.back(), 42.0f) << "wrote past the end";
    }
  }
}

TEST(TreeSum, TheDataTellOrdersApart) {
  const auto vectors = make_vectors(8, 1500);
  std::size_t differ = 0;
  for (std::size_t i = 0; i < 1500; ++i) {
    float chain = 0.0f;
    for (const auto& vector : vectors) chain += vector[i];
    differ += chain != definition(vectors, 0, 8, i) ? 1u : 0u;
  }
  EXPECT_GT(differ, 100u);
}

TEST(TreeSum, MayOverwriteAnyInput) {
  for (const int count : {1, 2, 4, 8, 16}) {
    for (int target = 0; target < count; ++target) {
      auto vectors = make_vectors(count, 700);
      std::vector<float> expected(700);
      for (std::size_t i = 0; i < 700; ++i) expected[i] = definition(vectors, 0, static_cast<std::size_t>(count), i);
      auto& own = vectors[static_cast<std::size_t>(target)];
      tree_sum(pointers(vectors).data(), count, 700, own.data());
      EXPECT_TRUE(std::memcmp(own.data(), expected.data(), 700 * sizeof(float)) == 0) << count << target;
    }
  }
}

TEST(TreeSum, HalvesAddUpToTheWhole) {
  // What lets ranks hold subtrees: the sum over ranks of partial trees is the tree over all leaves.
  const auto vectors = make_vectors(16, 300);
  std::vector<float> whole(300), again(300);
  tree_sum(pointers(vectors).data(), 16, 300, whole.data());
  for (const int ranks : {2, 4, 8}) {
    std::vector<std::vector<float>> roots(static_cast<std::size_t>(ranks), std::vector<float>(300));
    const auto leaves = pointers(vectors);
    for (int rank = 0; rank < ranks; ++rank) {
      tree_sum(leaves.data() + rank * (16 / ranks), 16 / ranks, 300, roots[static_cast<std::size_t>(rank)].data());
    }
    tree_sum(pointers(roots).data(), ranks, 300, again.data());
    EXPECT_EQ(std::memcmp(again.data(), whole.data(), 300 * sizeof(float)), 0) << ranks;
  }
}

TEST(TreeSum, RefusesOtherCounts) {
  float value = 1.0f;
  const float* vectors[3] = {&value, &value, &value};
  float out = 0.0f;
  EXPECT_THROW(tree_sum(vectors, 3, 1, &out), InternalError);
  EXPECT_THROW(tree_sum(vectors, 0, 1, &out), InternalError);
}

}  // namespace
}  // namespace renai
