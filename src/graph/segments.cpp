#include "renai/graph/segments.hpp"

namespace renai {

std::string bucket_name(int bucket, int deep_buckets) {
  return bucket < deep_buckets ? "deep" + std::to_string(bucket) : "first";
}

std::vector<Segment> parameter_segments(const std::vector<ParamInfo>& params, int deep_buckets) {
  std::vector<Segment> segments;
  for (int bucket = 0; bucket <= deep_buckets; ++bucket) {
    for (const bool decay : {true, false}) {
      Segment segment;
      segment.bucket = bucket_name(bucket, deep_buckets);
      segment.name = segment.bucket + (decay ? ".decay" : ".nodecay");
      segment.bucket_index = bucket;
      segment.decay = decay;
      for (std::size_t i = 0; i < params.size(); ++i) {
        if (params[i].bucket == bucket && params[i].decay == decay)
          segment.params.push_back(static_cast<std::int32_t>(i));
      }
      if (!segment.params.empty()) segments.push_back(std::move(segment));
    }
  }
  return segments;
}

std::vector<Segment> parameter_segments(const ComputationGraph& graph) {
  return parameter_segments(graph.params(), graph.deep_buckets());
}

}  // namespace renai
