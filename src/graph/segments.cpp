#include "renai/graph/segments.hpp"

#include <algorithm>
#include <array>

#include "renai/graph/region_name.hpp"

namespace renai {
namespace {

struct Group {
  const char* name;
  LarsGroup lars;
  bool decay;  ///< Of `LarsGroup::none`.
};
constexpr std::array kGroups{Group{"decay", LarsGroup::none, true}, Group{"nodecay", LarsGroup::none, false},
                             Group{"conv", LarsGroup::conv, true}, Group{"fc", LarsGroup::linear, true},
                             Group{"exempt", LarsGroup::exempt, false}};

bool belongs(const ParamInfo& param, const Group& group) {
  return param.lars == group.lars && (group.lars != LarsGroup::none || param.decay == group.decay);
}

}  // namespace

std::string bucket_name(int bucket, int deep_buckets) {
  return bucket < deep_buckets ? "deep" + std::to_string(bucket) : "first";
}

std::vector<Segment> parameter_segments(const std::vector<ParamInfo>& params, int deep_buckets) {
  int freeze_groups = 1;
  for (const ParamInfo& param : params) freeze_groups = std::max(freeze_groups, param.freeze_group + 1);
  std::vector<Segment> segments;
  const auto add = [&](int bucket, const Group& group, int freeze_group) {
    Segment segment;
    segment.bucket = bucket_name(bucket, deep_buckets);
    segment.name = segment.bucket + "." + group.name;
    if (freeze_group > 0) segment.name += "_g" + std::to_string(freeze_group);
    segment.bucket_index = bucket;
    segment.lars = group.lars;
    segment.freeze_group = freeze_group;
    for (std::size_t i = 0; i < params.size(); ++i) {
      if (params[i].bucket != bucket || params[i].freeze_group != freeze_group || !belongs(params[i], group)) continue;
      segment.decay = params[i].decay;  // One value in a group: LARS exempts batch norm and biases, or decays all.
      segment.params.push_back(static_cast<std::int32_t>(i));
    }
    if (!segment.params.empty()) segments.push_back(std::move(segment));
  };
  for (int bucket = 0; bucket <= deep_buckets; ++bucket) {
    for (const Group& group : kGroups) {
      for (int freeze_group = 0; freeze_group < freeze_groups; ++freeze_group) add(bucket, group, freeze_group);
    }
  }
  return segments;
}

std::vector<Segment> parameter_segments(const ComputationGraph& graph) {
  return parameter_segments(graph.params(), graph.deep_buckets());
}

int scalar_count(const ComputationGraph& graph) {
  int last_group = 0;
  for (const ParamInfo& param : graph.params()) last_group = std::max(last_group, param.freeze_group);
  const bool counts = last_group > 0 && has_second_moments(graph.options().optimizer);
  return counts ? region_name::adam_scalars(last_group + 1) : region_name::kScalarCount;
}

}  // namespace renai
