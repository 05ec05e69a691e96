// split_batches: a table of epochs, and the properties that hold for all of them.
#include "renai/tensor/batch_split.hpp"

#include <gtest/gtest.h>

#include <string>

#include "renai/base/error.hpp"

namespace renai {
namespace {

struct Case {
  std::int64_t samples, batch;
  int shards;
  bool training;
  BatchSplit expected;  // full batches, shard rows, last rows, dropped
};

TEST(SplitBatches, Table) {
  const Case cases[] = {
      {60000, 64, 8, true, {937, 8, 4, 0}},  // 32 samples remain
      {10000, 64, 8, false, {156, 8, 2, 0}},
      {97, 64, 8, true, {1, 8, 4, 1}},
      {97, 64, 8, false, {1, 8, 5, 0}},  // 33 rows of 40
      {1009, 64, 8, true, {15, 8, 6, 1}},
      {1009, 64, 8, false, {15, 8, 7, 0}},
      {1, 64, 1, true, {0, 64, 1, 0}},
      {7, 64, 1, true, {0, 64, 7, 0}},
      {7, 64, 8, false, {0, 8, 1, 0}},
      {64, 64, 8, true, {1, 8, 0, 0}},
      {8, 8, 8, true, {1, 1, 0, 0}},
      {71, 64, 8, true, {1, 8, 0, 7}},  // seven samples do not give every shard one
      {71, 64, 8, false, {1, 8, 1, 0}},
  };
  // K = 3 parts of V = 4 shards are like 12 shards.
  EXPECT_EQ(split_batches(100, 24, 4, true, 3), (BatchSplit{4, 2, 0, 4}));
  EXPECT_EQ(split_batches(110, 24, 4, true, 3), (BatchSplit{4, 2, 1, 2}));
  EXPECT_THROW(split_batches(100, 32, 4, true, 3), UserError);
  EXPECT_THROW(split_batches(11, 24, 4, true, 3), UserError);
  EXPECT_THROW(split_batches(100, 24, 4, true, 0), UserError);
  for (const Case& c : cases) {
    EXPECT_EQ(split_batches(c.samples, c.batch, c.shards, c.training), c.expected)
        << c.samples << " samples, batch " << c.batch << ", V " << c.shards
        << (c.training ? ", training" : ", validation");
  }
}

TEST(SplitBatches, EverySampleIsUsedOrCountedAsDropped) {
  for (const int v : {1, 2, 4, 8, 16}) {
    for (std::int64_t batch = v; batch <= 5 * v; batch += v) {
      for (std::int64_t samples = v; samples <= 6 * batch + 1; ++samples) {
        const BatchSplit training = split_batches(samples, batch, v, true);
        EXPECT_EQ(training.full_batches * batch + training.last_rows * v + training.dropped, samples);
        EXPECT_LT(training.dropped, v);
        EXPECT_LT(training.last_rows, training.shard_rows);
        const BatchSplit validation = split_batches(samples, batch, v, false);
        const std::int64_t places = validation.full_batches * batch + validation.last_rows * v;
        EXPECT_GE(places, samples);
        EXPECT_LT(places - samples, v);
        EXPECT_EQ(validation.dropped, 0);
        EXPECT_GE(training.batches(), 1);
      }
    }
  }
}

template <typename E>
std::string refusal(std::int64_t samples, std::int64_t batch, int shards, bool training) {
  try {
    split_batches(samples, batch, shards, training);
  } catch (const E& error) {
    return error.what();
  }
  return "not refused";
}

TEST(SplitBatches, RefusalsNameWhatWorks) {
  EXPECT_NE(refusal<UserError>(100, 64, 3, true).find("power of two"), std::string::npos);
  EXPECT_NE(refusal<UserError>(100, 64, 0, true).find("power of two"), std::string::npos);
  EXPECT_NE(refusal<UserError>(100, 64, -8, true).find("power of two"), std::string::npos);
  EXPECT_NE(refusal<UserError>(100, 60, 8, true).find("56 and 64"), std::string::npos);
  EXPECT_NE(refusal<UserError>(100, 4, 8, true).find("nearest batches that work are 8"), std::string::npos);
  EXPECT_NE(refusal<UserError>(100, 0, 8, true).find("at least one sample"), std::string::npos);
  EXPECT_NE(refusal<UserError>(100, -64, 8, true).find("at least one sample"), std::string::npos);
  EXPECT_NE(refusal<UserError>(7, 64, 8, true).find("smaller than --logical-shards 8"), std::string::npos);
  EXPECT_NE(refusal<DataError>(0, 64, 8, true).find("training set is empty"), std::string::npos);
  EXPECT_NE(refusal<DataError>(0, 64, 8, false).find("validation set is empty"), std::string::npos);
}

}  // namespace
}  // namespace renai
