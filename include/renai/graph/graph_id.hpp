#pragma once
// The catalogue of captured graphs; src/README.md shows where they stand in a step.

#include <cstdint>
#include <string_view>

namespace renai {

enum class GraphId : std::uint8_t {
  TRANSFER_A,
  TRANSFER_B,
  FIRST_LAYER_FWD_A,
  FIRST_LAYER_FWD_B,
  DEEP_FWD_BWD,
  FIRST_LAYER_BWD_A,
  FIRST_LAYER_BWD_B,
  ZERO_GRAD,
  DEEP_COMM,
  FIRST_COMM,
  STATS_COMM,
  UPDATE_STATS,
  CAST_DEEP_GRAD,
  CAST_FIRST_GRAD,
  NAN_CHECK_AND_GRAD_SCALING,
  OPTIMIZER,
  LARS_FC_OPT,
  LARS_FIRST_CONV_OPT,
  LARS_DEEP_CONV_OPT,
  EMA_UPDATE,
  CAST_MAIN,
  CAST_EMA,
  UPDATE_BN_INF_PARAMS,
  ACCUM_METRICS,
  ACCUM_METRICS_TRAIN_LAST,
  ACCUM_METRICS_VAL_LAST,
  CLEAR_METRICS,
  VAL_RESULT_COMM,
  INF_MAIN_A,
  INF_MAIN_B,
  INF_EMA_A,
  INF_EMA_B,
  SIMPLE_TASK_GRAPH,
  COUNT
};

inline constexpr int kGraphIdCount = static_cast<int>(GraphId::COUNT);
static_assert(kGraphIdCount == 33);

/// Streams, in the order of the step diagram.
enum class StreamId : std::uint8_t { TRANSFER, COMPUTE, COMM, UPDATE, COUNT };
inline constexpr int kStreamCount = static_cast<int>(StreamId::COUNT);

/// Which family of variants uses a graph.
enum class GraphFamily : std::uint8_t { invariant, training, inference, caller };

std::string_view graph_id_name(GraphId id);
std::string_view stream_name(StreamId id);
GraphFamily graph_family(GraphId id);
/// True for graphs whose work does not depend on the input's shape (keyed by kShapeInvariant).
bool is_shape_invariant(GraphId id);
/// Default stream of a graph.
StreamId graph_stream(GraphId id);
/// True for graphs that hold collectives, whatever is in them: captured by all ranks together.
bool is_collective(GraphId id);

}  // namespace renai
