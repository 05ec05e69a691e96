#include "renai/plan/kernel_book.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "plan_case.hpp"
#include "random_book.hpp"
#include "renai/base/error.hpp"
#include "renai/graph/shape_inference.hpp"

namespace renai {
namespace {

std::vector<KernelEntry>& entries(KernelBook& book, GraphId id) { return book.entries[static_cast<std::size_t>(id)]; }

class BookDamage : public ::testing::Test {
 protected:
  /// Expects a refusal whose text holds `word`.
  void refused(const char* word, const std::function<void(KernelBook&)>& change) {
    KernelBook book = plan_.book;
    change(book);
    try {
      verify(book, plan_.graph, 6);
      ADD_FAILURE() << "accepted: " << word;
    } catch (const InternalError& error) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  }
  PlanCase plan_{PlanOptions{"resnet9", 2, true}};
};

TEST_F(BookDamage, IsRefused) {
  constexpr GraphId kDeep = GraphId::DEEP_FWD_BWD;
  EXPECT_NO_THROW(verify(plan_.book, plan_.graph, 6));
  EXPECT_THROW(verify(plan_.book, plan_.graph, 5), InternalError) << "sizes for six variants";
  const auto tensors = static_cast<TensorId>(plan_.graph.tensors().size());
  refused("backend's name", [](KernelBook& book) { book.backend.clear(); });
  refused("each graph id", [](KernelBook& book) { book.entries.pop_back(); });
  refused("has no entry", [&](KernelBook& book) { entries(book, kDeep).pop_back(); });
  refused("has no nodes", [&](KernelBook& book) { entries(book, kDeep)[3].nodes.clear(); });
  refused("without a kernel", [&](KernelBook& book) { entries(book, kDeep)[3].kernel.clear(); });
  refused("execution order", [&](KernelBook& book) { std::swap(entries(book, kDeep)[3], entries(book, kDeep)[4]); });
  refused("two entries", [&](KernelBook& book) { entries(book, kDeep)[3].nodes.push_back(4); });
  refused("does not exist", [&](KernelBook& book) { entries(book, kDeep)[3].nodes.push_back(100000); });
  refused("does not exist", [&](KernelBook& book) { entries(book, kDeep)[3].inputs.push_back(tensors); });
  refused("does not exist", [&](KernelBook& book) { entries(book, kDeep)[3].outputs.push_back(-1); });
  refused("negative size", [&](KernelBook& book) { entries(book, kDeep)[3].workspace_bytes.assign(6, -1); });
  refused("2 sizes", [&](KernelBook& book) { entries(book, kDeep)[3].workspace_bytes.assign(2, 1); });
  refused("5 sizes", [&](KernelBook& book) { book.tensors.push_back({"saved", {1, 1, 1, 1, 1}}); });
  refused("no name", [&](KernelBook& book) { book.tensors.push_back({"", {1, 1, 1, 1, 1, 1}}); });
  refused("alias of itself", [&](KernelBook& book) { book.aliases.push_back({3, 3}); });
  refused("alias twice", [&](KernelBook& book) { book.aliases.insert(book.aliases.end(), {{9, 8}, {9, 7}}); });
  refused("an alias refers", [&](KernelBook& book) { book.aliases.push_back({3, tensors}); });
  refused("padded_c", [&](KernelBook& book) { book.padded_c.assign(3, 8); });
}

TEST_F(BookDamage, OfElementTypesIsRefused) {
  KernelBook good = plan_.book;
  for (std::size_t i = 0; i < plan_.graph.tensors().size(); ++i) {
    const TensorRole role = plan_.graph.tensors()[i].role;
    good.dtypes.push_back(may_be_half(role) ? DType::bf16 : tensor_dtype(role));
  }
  EXPECT_NO_THROW(verify(good, plan_.graph, 6));
  const auto refused_type = [&](const char* word, TensorId id, DType dtype) {
    refused(word, [&](KernelBook& book) {
      book = good;
      book.dtypes[static_cast<std::size_t>(id)] = dtype;
    });
  };
  const ParamInfo& param = plan_.graph.params().front();
  refused_type("cannot be stored as bfloat16", param.weight, DType::bf16);
  refused_type("cannot be stored as float16", param.grad, DType::f16);
  for (std::size_t i = 0; i < plan_.graph.tensors().size(); ++i) {
    if (plan_.graph.tensors()[i].role != TensorRole::saved) continue;
    refused_type("biased_var' cannot be stored as float16", static_cast<TensorId>(i), DType::f16);
  }
  refused_type("cannot be stored as float64", plan_.graph.parts().logits, DType::f64);
  refused_type("another element type", good.aliases.front().out, DType::f16);
  refused("half weights cannot", [&](KernelBook& book) { book.half_dtype = DType::f32; });
  refused("dtypes has not", [&](KernelBook& book) { book.dtypes.assign(3, DType::f32); });
}

/// A graph of two branches: 0 and 2 in branch 0, 1 and 3 in branch 1, where 3 waits for 2.
ComputationGraph two_branches() {
  ComputationGraph::Parts parts;
  parts.nodes.resize(kGraphIdCount);
  for (int i = 0; i < 5; ++i) {
    parts.tensors.push_back({"t" + std::to_string(i), TensorRole::activation, -1, -1});
  }
  auto& nodes = parts.nodes[static_cast<std::size_t>(GraphId::SIMPLE_TASK_GRAPH)];
  for (std::int32_t i = 0; i < 4; ++i) {
    Node node;
    node.work = ComputeNode{"n" + std::to_string(i), OpKind::flatten, Pass::forward, NoParams{}, {0}, {i + 1}, -1};
    node.branch = i % 2;
    if (i == 3) node.waits = {2};
    nodes.push_back(node);
  }
  return ComputationGraph(std::move(parts));
}

KernelBook book_of(const std::vector<std::vector<std::int32_t>>& nodes) {
  KernelBook book;
  book.backend = "test";
  book.entries.resize(kGraphIdCount);
  for (const auto& list : nodes) {
    entries(book, GraphId::SIMPLE_TASK_GRAPH).push_back({list, "fused", {}, {}, {}});
  }
  return book;
}

TEST(KernelBook, FusesConsecutiveNodesOfOneBranch) {
  const ComputationGraph graph = two_branches();
  EXPECT_NO_THROW(verify(book_of({{0}, {1}, {2}, {3}}), graph, 1));
  EXPECT_NO_THROW(verify(book_of({{0, 2}, {1}, {3}}), graph, 1));
  EXPECT_THROW(verify(book_of({{0, 1}, {2}, {3}}), graph, 1), InternalError) << "two branches";
  EXPECT_THROW(verify(book_of({{0}, {1, 3}, {2}}), graph, 1), InternalError) << "1 would start before 2 has ended";
  EXPECT_THROW(verify(book_of({{0, 2}, {1}, {3}, {3}}), graph, 1), InternalError);
}

/// x -> a (branch 0), x -> b (a view, branch 1), a and b -> c.
TEST(KernelBook, InPlaceKernelsMustNotOverwriteWhatIsStillRead) {
  ComputationGraph::Parts parts;
  parts.nodes.resize(kGraphIdCount);
  for (const char* name : {"x", "a", "b", "c"}) parts.tensors.push_back({name, TensorRole::activation, -1, -1});
  auto& nodes = parts.nodes[static_cast<std::size_t>(GraphId::SIMPLE_TASK_GRAPH)];
  const auto add = [&](OpKind op, std::vector<TensorId> inputs, TensorId output, int branch,
                       std::vector<std::int32_t> waits) {
    Node node;
    node.work = ComputeNode{"n", op, Pass::forward, NoParams{}, std::move(inputs), {output}, -1};
    node.branch = branch;
    node.waits = std::move(waits);
    nodes.push_back(std::move(node));
  };
  add(OpKind::concat, {0}, 1, 0, {});
  add(OpKind::flatten, {0}, 2, 1, {});
  add(OpKind::concat, {1, 2}, 3, 0, {1});
  const ComputationGraph graph(std::move(parts));
  const auto accepts = [&](std::vector<StorageAlias> aliases) {
    KernelBook book = trivial_book(graph, ShapeTable(1, std::vector<Shape>(4, Shape{1, 1})));
    book.aliases = std::move(aliases);
    try {
      verify(book, graph, 1);
      return true;
    } catch (const InternalError&) {
      return false;
    }
  };
  EXPECT_TRUE(accepts({{2, 0}})) << "a view changes nothing";
  EXPECT_TRUE(accepts({{3, 1}})) << "the last reader may overwrite";
  EXPECT_TRUE(accepts({{2, 0}, {3, 2}})) << "the last reader of a view too";
  EXPECT_FALSE(accepts({{1, 0}})) << "the other branch may still read x";
  EXPECT_FALSE(accepts({{2, 0}, {1, 0}})) << "the view of x is read later";
  EXPECT_FALSE(accepts({{3, 1}, {2, 1}})) << "b would be written over a";
}

TEST(KernelBook, HashFollowsTheChoiceOfKernelsAndNotTheNumberOfRanks) {
  const PlanCase one, four(PlanOptions{"cnn-small", 4});
  const std::uint64_t hash = kernel_plan_hash(one.book);
  EXPECT_EQ(hash, kernel_plan_hash(four.book));
  KernelBook book = one.book;
  entries(book, GraphId::DEEP_FWD_BWD)[0].kernel += "2";
  EXPECT_NE(hash, kernel_plan_hash(book));
  book = one.book;
  book.backend = "other";
  EXPECT_NE(hash, kernel_plan_hash(book));
  book = one.book;
  book.tensors.push_back({"saved", {0, 0, 0, 0, 0, 8}});
  EXPECT_NE(hash, kernel_plan_hash(book));
  book = one.book;
  book.dtypes.assign(one.graph.tensors().size(), DType::f32);
  const std::uint64_t full = kernel_plan_hash(book);
  book.dtypes[static_cast<std::size_t>(one.graph.parts().logits)] = DType::bf16;
  EXPECT_NE(full, kernel_plan_hash(book));
  book = one.book;
  book.half_dtype = DType::f16;
  EXPECT_NE(hash, kernel_plan_hash(book));
}

TEST(KernelBook, PrintNamesKernelsNodesAndSizes) {
  PlanCase plan;
  plan.book.tensors.push_back({"packed", {1, 2, 3, 4, 5, 6}});
  plan.book.padded_c.assign(plan.graph.tensors().size(), 8);
  const std::string text = print(plan.book, plan.graph);
  for (const char* word : {"backend trivial", "graph DEEP_FWD_BWD", "trivial.conv2d.forward", "workspace [",
                           "book tensor 0 packed [1 2 3 4 5 6]", "alias %", "padded_c [8"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word;
  }
}

TEST(KernelBook, RandomBooksAreGood) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const testing_support::RandomCase random = testing_support::random_case(seed);
    EXPECT_NO_THROW(verify(random.book, random.graph, 6)) << seed;
  }
}

}  // namespace
}  // namespace renai
