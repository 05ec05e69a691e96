// What planning needs from the graph before there is a kernel book: shapes under every spec, gradient buckets.

#include <map>

#include "renai/base/check.hpp"
#include "renai/graph/shape_inference.hpp"
#include "renai/plan/memory_plan.hpp"

namespace renai {

ShapeTable derive_shapes(const ComputationGraph& graph, std::span<const CompileSpec> specs) {
  ShapeTable table;
  for (const CompileSpec& spec : specs) {
    try {
      table.push_back(infer_shapes(graph, spec.shape.shape(), spec.kind == VariantKind::training));
      check_equal_params(graph, table.front(), table.back());
    } catch (const UserError& error) {
      throw UserError("resolution " + std::to_string(spec.shape.h) + " (variant " + spec.name + ", " +
                          spec.shape.str() + "): " + error.failed(),
                      error.why(), error.remedy());
    }
  }
  return table;
}

std::vector<int> assign_buckets(const ComputationGraph& graph, std::span<const Shape> shapes,
                                std::int64_t bucket_bytes) {
  RENAI_CHECK(shapes.size() == graph.tensors().size(), "one shape for each tensor");
  if (bucket_bytes < 1) {
    throw UserError("gradient buckets of " + std::to_string(bucket_bytes) + " bytes", "a bucket holds at least a byte",
                    "give a positive size");
  }
  std::map<std::int32_t, std::int64_t> layer_bytes;  // Deep layers only: a layer's gradients stay in one bucket.
  for (const ParamInfo& param : graph.params()) {
    if (param.first_layer) continue;
    layer_bytes[param.layer] +=
        align_slot(shapes[static_cast<std::size_t>(param.grad)].elems() * dtype_bytes(tensor_dtype(TensorRole::grad)));
  }
  std::map<std::int32_t, int> bucket_of_layer;
  int bucket = 0;
  std::int64_t filled = 0;
  for (const Node& node : graph.nodes(GraphId::DEEP_FWD_BWD)) {
    if (!node.is_compute()) continue;
    for (const TensorId output : std::get<ComputeNode>(node.work).outputs) {
      const TensorInfo& info = graph.tensor(output);
      if (info.role != TensorRole::grad) continue;
      const std::int32_t layer = graph.params()[static_cast<std::size_t>(info.param)].layer;
      if (bucket_of_layer.contains(layer)) continue;
      if (filled >= bucket_bytes) {
        ++bucket;
        filled = 0;
      }
      bucket_of_layer[layer] = bucket;
      filled += layer_bytes.at(layer);
    }
  }
  const int deep_buckets = bucket_of_layer.empty() ? 0 : bucket + 1;
  std::vector<int> buckets;
  for (const ParamInfo& param : graph.params()) {
    buckets.push_back(param.first_layer ? deep_buckets : bucket_of_layer.at(param.layer));
  }
  return buckets;
}

}  // namespace renai
