// Gradient buckets and the events that mark their completion.

#include <algorithm>
#include <map>

#include "lowering.hpp"
#include "renai/base/check.hpp"
#include "renai/graph/happens_before.hpp"

namespace renai::graph_detail {
namespace {

/// Layer of each parameter gradient that a node writes; -1 when it writes none.
std::int32_t gradient_layer(const ComputationGraph::Parts& parts, const ComputeNode& node) {
  for (const TensorId output : node.outputs) {
    const TensorInfo& info = parts.tensors[static_cast<std::size_t>(output)];
    if (info.role == TensorRole::grad) return parts.params[static_cast<std::size_t>(info.param)].layer;
  }
  return -1;
}

/// The wanted bucket of each deep layer: the largest that any of its parameters asks for, so that one node completes
/// one bucket.
std::map<std::int32_t, int> layer_buckets(const ComputationGraph::Parts& parts) {
  const std::vector<int>& wanted = parts.options.bucket_of_param;
  RENAI_CHECK(wanted.empty() || wanted.size() == parts.params.size(),
              "bucket_of_param has one entry for each parameter");
  std::map<std::int32_t, int> buckets;
  for (std::size_t i = 0; i < parts.params.size(); ++i) {
    const ParamInfo& param = parts.params[i];
    if (param.first_layer) continue;
    const int bucket = wanted.empty() ? 0 : wanted[i];
    RENAI_CHECK(bucket >= 0, "parameter '" + param.name + "' has a negative bucket");
    const auto [entry, added] = buckets.try_emplace(param.layer, bucket);
    if (!added) entry->second = std::max(entry->second, bucket);
  }
  return buckets;
}

}  // namespace

void assign_parameter_buckets(ComputationGraph::Parts& parts, const std::vector<ComputeNode>& deep) {
  const std::map<std::int32_t, int> wanted = layer_buckets(parts);
  std::map<int, std::size_t> completed;  // Wanted bucket -> last node that writes one of its gradients.
  for (std::size_t i = 0; i < deep.size(); ++i) {
    if (const std::int32_t layer = gradient_layer(parts, deep[i]); layer >= 0) completed[wanted.at(layer)] = i;
  }
  std::vector<std::pair<std::size_t, int>> order;
  for (const auto& [bucket, node] : completed) order.emplace_back(node, bucket);
  std::sort(order.begin(), order.end());
  std::map<int, int> rank;
  for (std::size_t i = 0; i < order.size(); ++i) rank[order[i].second] = static_cast<int>(i);
  parts.deep_buckets = static_cast<int>(order.size());
  for (ParamInfo& param : parts.params) {
    param.bucket = param.first_layer ? parts.deep_buckets : rank.at(wanted.at(param.layer));
  }
}

void assign_bucket_events(ComputationGraph::Parts& parts) {
  std::vector<Node>& nodes = nodes_of(parts, GraphId::DEEP_FWD_BWD);
  std::vector<std::vector<std::int32_t>> writers(static_cast<std::size_t>(parts.deep_buckets));
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const TensorId output : std::get<ComputeNode>(nodes[i].work).outputs) {
      const TensorInfo& info = parts.tensors[static_cast<std::size_t>(output)];
      if (info.role != TensorRole::grad) continue;
      const int bucket = parts.params[static_cast<std::size_t>(info.param)].bucket;
      writers[static_cast<std::size_t>(bucket)].push_back(static_cast<std::int32_t>(i));
    }
  }
  for (std::size_t bucket = 0; bucket < writers.size(); ++bucket) {
    RENAI_CHECK(!writers[bucket].empty(), "every deep bucket has a gradient");
    const std::int32_t last = writers[bucket].back();
    Node& recorder = nodes[static_cast<std::size_t>(last)];
    recorder.records_event = static_cast<std::int32_t>(bucket);
    std::map<int, std::int32_t> others;  // Branch -> the bucket's last writer there, which covers the earlier ones.
    for (const std::int32_t writer : writers[bucket]) {
      const int branch = nodes[static_cast<std::size_t>(writer)].branch;
      if (branch != recorder.branch) others[branch] = writer;
    }
    if (others.empty()) continue;
    const HappensBefore order(nodes);
    for (const auto& [branch, writer] : others) {
      if (!order.before(writer, last)) recorder.waits.push_back(writer);
    }
    std::sort(recorder.waits.begin(), recorder.waits.end());
  }
}

}  // namespace renai::graph_detail
