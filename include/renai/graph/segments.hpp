#pragma once
// Segments: parameters grouped by (gradient bucket, treatment by the optimizer, freeze group), in the order of their
// regions.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "renai/graph/computation_graph.hpp"

namespace renai {

/// Parameters of one bucket that the optimizer treats alike, of one freeze group.
struct Segment {
  std::string name;  ///< "deep0.decay", "first.nodecay"; with LARS "deep0.conv", "deep0.fc", "first.exempt"; of freeze
                     ///< group 1 "deep0.decay_g1"
  std::string bucket;  ///< "deep0", "first"
  int bucket_index = 0;
  bool decay = true;
  LarsGroup lars = LarsGroup::none;
  int freeze_group = 0;
  std::vector<std::int32_t> params;  ///< Indices into graph.params(), rising.
};

/// "deep<b>" for b below `deep_buckets`, then "first".
std::string bucket_name(int bucket, int deep_buckets);

/// The segments that are not empty: by bucket, in each the order of `LarsGroup`, the decaying one first, in each by
/// freeze group.
std::vector<Segment> parameter_segments(const std::vector<ParamInfo>& params, int deep_buckets);
std::vector<Segment> parameter_segments(const ComputationGraph& graph);

/// Graphs that update parameters.
inline constexpr std::array kUpdateGraphs{GraphId::OPTIMIZER, GraphId::LARS_FC_OPT, GraphId::LARS_FIRST_CONV_OPT,
                                          GraphId::LARS_DEEP_CONV_OPT};
/// Length of `scalars`: kScalarCount, and with Adam and AdamW what adam_scalars says for each freeze group.
int scalar_count(const ComputationGraph& graph);
/// Freeze group that each part of ZERO_GRAD or of a graph of kUpdateGraphs works on.
std::vector<int> freeze_group_of_parts(const ComputationGraph& graph, GraphId id);

}  // namespace renai
