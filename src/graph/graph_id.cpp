#include "renai/graph/graph_id.hpp"

#include <array>

#include "renai/base/check.hpp"

namespace renai {
namespace {

struct GraphIdRow {
  GraphId id;
  std::string_view name;
  GraphFamily family;
  StreamId stream;
  bool collective;
};

constexpr auto kInvariant = GraphFamily::invariant;
constexpr auto kTraining = GraphFamily::training;
constexpr auto kInference = GraphFamily::inference;

/// One row for each id, in the order of the enumeration.
constexpr std::array<GraphIdRow, kGraphIdCount> kRows{{
    {GraphId::TRANSFER_A, "TRANSFER_A", kInvariant, StreamId::TRANSFER, false},
    {GraphId::TRANSFER_B, "TRANSFER_B", kInvariant, StreamId::TRANSFER, false},
    {GraphId::FIRST_LAYER_FWD_A, "FIRST_LAYER_FWD_A", kTraining, StreamId::COMPUTE, false},
    {GraphId::FIRST_LAYER_FWD_B, "FIRST_LAYER_FWD_B", kTraining, StreamId::COMPUTE, false},
    {GraphId::DEEP_FWD_BWD, "DEEP_FWD_BWD", kTraining, StreamId::COMPUTE, false},
    {GraphId::FIRST_LAYER_BWD_A, "FIRST_LAYER_BWD_A", kTraining, StreamId::COMPUTE, false},
    {GraphId::FIRST_LAYER_BWD_B, "FIRST_LAYER_BWD_B", kTraining, StreamId::COMPUTE, false},
    {GraphId::ZERO_GRAD, "ZERO_GRAD", kInvariant, StreamId::UPDATE, false},
    {GraphId::DEEP_COMM, "DEEP_COMM", kInvariant, StreamId::COMM, true},
    {GraphId::FIRST_COMM, "FIRST_COMM", kInvariant, StreamId::COMM, true},
    {GraphId::STATS_COMM, "STATS_COMM", kInvariant, StreamId::COMM, true},
    {GraphId::UPDATE_STATS, "UPDATE_STATS", kInvariant, StreamId::UPDATE, false},
    {GraphId::CAST_DEEP_GRAD, "CAST_DEEP_GRAD", kInvariant, StreamId::UPDATE, false},
    {GraphId::CAST_FIRST_GRAD, "CAST_FIRST_GRAD", kInvariant, StreamId::UPDATE, false},
    {GraphId::NAN_CHECK_AND_GRAD_SCALING, "NAN_CHECK_AND_GRAD_SCALING", kInvariant, StreamId::UPDATE, false},
    {GraphId::OPTIMIZER, "OPTIMIZER", kInvariant, StreamId::UPDATE, false},
    {GraphId::LARS_FC_OPT, "LARS_FC_OPT", kInvariant, StreamId::COMPUTE, false},
    {GraphId::LARS_FIRST_CONV_OPT, "LARS_FIRST_CONV_OPT", kInvariant, StreamId::UPDATE, false},
    {GraphId::LARS_DEEP_CONV_OPT, "LARS_DEEP_CONV_OPT", kInvariant, StreamId::UPDATE, false},
    {GraphId::EMA_UPDATE, "EMA_UPDATE", kInvariant, StreamId::UPDATE, false},
    {GraphId::CAST_MAIN, "CAST_MAIN", kInvariant, StreamId::UPDATE, false},
    {GraphId::CAST_EMA, "CAST_EMA", kInvariant, StreamId::UPDATE, false},
    {GraphId::UPDATE_BN_INF_PARAMS, "UPDATE_BN_INF_PARAMS", kInvariant, StreamId::UPDATE, false},
    {GraphId::ACCUM_METRICS, "ACCUM_METRICS", kInvariant, StreamId::UPDATE, false},
    {GraphId::ACCUM_METRICS_TRAIN_LAST, "ACCUM_METRICS_TRAIN_LAST", kInvariant, StreamId::UPDATE, false},
    {GraphId::ACCUM_METRICS_VAL_LAST, "ACCUM_METRICS_VAL_LAST", kInvariant, StreamId::UPDATE, false},
    {GraphId::CLEAR_METRICS, "CLEAR_METRICS", kInvariant, StreamId::UPDATE, false},
    {GraphId::VAL_RESULT_COMM, "VAL_RESULT_COMM", kInvariant, StreamId::COMM, true},
    {GraphId::INF_MAIN_A, "INF_MAIN_A", kInference, StreamId::COMPUTE, false},
    {GraphId::INF_MAIN_B, "INF_MAIN_B", kInference, StreamId::COMPUTE, false},
    {GraphId::INF_EMA_A, "INF_EMA_A", kInference, StreamId::COMPUTE, false},
    {GraphId::INF_EMA_B, "INF_EMA_B", kInference, StreamId::COMPUTE, false},
    {GraphId::SIMPLE_TASK_GRAPH, "SIMPLE_TASK_GRAPH", GraphFamily::caller, StreamId::COMPUTE, false},
}};

constexpr bool rows_in_order() {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<std::size_t>(kRows[i].id) != i) return false;
  }
  return true;
}
static_assert(rows_in_order());

const GraphIdRow& row(GraphId id) {
  RENAI_CHECK(id < GraphId::COUNT, "graph id out of range");
  return kRows[static_cast<std::size_t>(id)];
}

}  // namespace

std::string_view graph_id_name(GraphId id) { return row(id).name; }

std::string_view stream_name(StreamId id) {
  constexpr std::array<std::string_view, kStreamCount> kNames{"TRANSFER", "COMPUTE", "COMM", "UPDATE"};
  RENAI_CHECK(id < StreamId::COUNT, "stream id out of range");
  return kNames[static_cast<std::size_t>(id)];
}

GraphFamily graph_family(GraphId id) { return row(id).family; }

bool is_shape_invariant(GraphId id) { return row(id).family == GraphFamily::invariant; }

StreamId graph_stream(GraphId id) { return row(id).stream; }

bool is_collective(GraphId id) { return row(id).collective; }

}  // namespace renai
