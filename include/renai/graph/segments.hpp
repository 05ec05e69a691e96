#pragma once
// Segments: parameters grouped by (gradient bucket, treatment by the optimizer), in the order of their regions.

#include <cstdint>
#include <string>
#include <vector>

#include "renai/graph/computation_graph.hpp"

namespace renai {

/// Parameters of one bucket that the optimizer treats alike.
struct Segment {
  std::string name;    ///< "deep0.decay", "first.nodecay"; with LARS "deep0.conv", "deep0.fc", "first.exempt"
  std::string bucket;  ///< "deep0", "first"
  int bucket_index = 0;
  bool decay = true;
  LarsGroup lars = LarsGroup::none;
  std::vector<std::int32_t> params;  ///< Indices into graph.params(), rising.
};

/// "deep<b>" for b below `deep_buckets`, then "first".
std::string bucket_name(int bucket, int deep_buckets);

/// The segments that are not empty: by bucket, in each the order of `LarsGroup`, the decaying one first.
std::vector<Segment> parameter_segments(const std::vector<ParamInfo>& params, int deep_buckets);
std::vector<Segment> parameter_segments(const ComputationGraph& graph);

}  // namespace renai
