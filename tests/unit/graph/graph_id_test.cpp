// The table of the 33 graph ids, pinned.

#include "renai/graph/graph_id.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>

namespace renai {
namespace {

struct Row {
  const char* name;
  char family;  ///< i invariant, t training, n inference, c caller
  const char* stream;
  bool collective;
};

constexpr std::array<Row, 33> kTable{{
    {"TRANSFER_A", 'i', "TRANSFER", false},
    {"TRANSFER_B", 'i', "TRANSFER", false},
    {"FIRST_LAYER_FWD_A", 't', "COMPUTE", false},
    {"FIRST_LAYER_FWD_B", 't', "COMPUTE", false},
    {"DEEP_FWD_BWD", 't', "COMPUTE", false},
    {"FIRST_LAYER_BWD_A", 't', "COMPUTE", false},
    {"FIRST_LAYER_BWD_B", 't', "COMPUTE", false},
    {"ZERO_GRAD", 'i', "UPDATE", false},
    {"DEEP_COMM", 'i', "COMM", true},
    {"FIRST_COMM", 'i', "COMM", true},
    {"STATS_COMM", 'i', "COMM", true},
    {"UPDATE_STATS", 'i', "UPDATE", false},
    {"CAST_DEEP_GRAD", 'i', "UPDATE", false},
    {"CAST_FIRST_GRAD", 'i', "UPDATE", false},
    {"NAN_CHECK_AND_GRAD_SCALING", 'i', "UPDATE", false},
    {"OPTIMIZER", 'i', "UPDATE", false},
    {"LARS_FC_OPT", 'i', "COMPUTE", false},
    {"LARS_FIRST_CONV_OPT", 'i', "UPDATE", false},
    {"LARS_DEEP_CONV_OPT", 'i', "UPDATE", false},
    {"EMA_UPDATE", 'i', "UPDATE", false},
    {"CAST_MAIN", 'i', "UPDATE", false},
    {"CAST_EMA", 'i', "UPDATE", false},
    {"UPDATE_BN_INF_PARAMS", 'i', "UPDATE", false},
    {"ACCUM_METRICS", 'i', "UPDATE", false},
    {"ACCUM_METRICS_TRAIN_LAST", 'i', "UPDATE", false},
    {"ACCUM_METRICS_VAL_LAST", 'i', "UPDATE", false},
    {"CLEAR_METRICS", 'i', "UPDATE", false},
    {"VAL_RESULT_COMM", 'i', "COMM", true},
    {"INF_MAIN_A", 'n', "COMPUTE", false},
    {"INF_MAIN_B", 'n', "COMPUTE", false},
    {"INF_EMA_A", 'n', "COMPUTE", false},
    {"INF_EMA_B", 'n', "COMPUTE", false},
    {"SIMPLE_TASK_GRAPH", 'c', "COMPUTE", false},
}};

char family_letter(GraphFamily family) {
  switch (family) {
    case GraphFamily::invariant: return 'i';
    case GraphFamily::training: return 't';
    case GraphFamily::inference: return 'n';
    case GraphFamily::caller: return 'c';
  }
  return '?';
}

TEST(GraphId, TableIsPinned) {
  ASSERT_EQ(kGraphIdCount, 33);
  for (std::size_t i = 0; i < kTable.size(); ++i) {
    const auto id = static_cast<GraphId>(i);
    SCOPED_TRACE(kTable[i].name);
    EXPECT_EQ(graph_id_name(id), kTable[i].name);
    EXPECT_EQ(family_letter(graph_family(id)), kTable[i].family);
    EXPECT_EQ(stream_name(graph_stream(id)), kTable[i].stream);
    EXPECT_EQ(is_collective(id), kTable[i].collective);
    EXPECT_EQ(is_shape_invariant(id), kTable[i].family == 'i');
  }
}

TEST(GraphId, FamiliesHaveTheCataloguesCounts) {
  int invariant = 0, training = 0, inference = 0;
  std::set<std::string> names;
  for (int i = 0; i < kGraphIdCount; ++i) {
    const auto id = static_cast<GraphId>(i);
    names.insert(std::string(graph_id_name(id)));
    invariant += graph_family(id) == GraphFamily::invariant;
    training += graph_family(id) == GraphFamily::training;
    inference += graph_family(id) == GraphFamily::inference;
  }
  EXPECT_EQ(names.size(), 33u);
  EXPECT_EQ(invariant, 23);
  EXPECT_EQ(training, 5);
  EXPECT_EQ(inference, 4);
}

}  // namespace
}  // namespace renai
