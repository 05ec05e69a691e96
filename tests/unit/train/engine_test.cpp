// Engine: what it owns, and what it tells the communicator of it.
#include "renai/train/engine.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "train_case.hpp"

namespace renai {
namespace {

using testing::OneRank;
using testing::small_recipe;
using testing::TrainSet;

/// One rank whose messages could be given up: it remembers the memory that it is told of.
class RememberingCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  std::string name() const override { return "remembering"; }
  std::int64_t tree_reduce_scratch_bytes(std::int64_t) const override { return 0; }
  void tree_reduce(float*, std::int64_t, std::byte*, Stream&, std::string) override {
    told_before_use = !memory.empty();
  }
  void all_gather(std::byte*, std::int64_t, Stream&, std::string) override {}
  void use_memory(const std::weak_ptr<const void>& used) override { memory.push_back(used); }

  std::vector<std::weak_ptr<const void>> memory;
  bool told_before_use = true;
};

TEST(Engine, TheArenaCanOutliveTheEngineForMessagesThatAreGivenUp) {
  const TrainSet set(16, 8, 1);
  OneRank rank;
  RememberingCommunicator communicator;
  auto run = rank.run();
  run.communicator = &communicator;
  const Blueprint blueprint = make_blueprint(small_recipe("mlp", 8, 1), set.shape(), *run.backend, communicator);
  std::shared_ptr<const void> kept;
  {
    const Engine engine(blueprint, run);
    ASSERT_EQ(communicator.memory.size(), 1u);
    EXPECT_TRUE(communicator.told_before_use);
    kept = communicator.memory.front().lock();
    ASSERT_NE(kept, nullptr);
    EXPECT_EQ(static_cast<const Buffer*>(kept.get())->data(), engine.arena());
  }
  EXPECT_EQ(static_cast<const Buffer*>(kept.get())->size_bytes(), blueprint.plans.front().arena_bytes);
  kept.reset();
  EXPECT_TRUE(communicator.memory.front().expired());
}

}  // namespace
}  // namespace renai
