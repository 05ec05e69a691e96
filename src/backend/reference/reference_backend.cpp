// The reference backend: every operator as naive loops, one entry per node; workspace only where ranks exchange.

#include <algorithm>

#include "../host_range_ops.hpp"
#include "kernels.hpp"
#include "renai/backend/backend.hpp"
#include "renai/base/check.hpp"

namespace renai {
namespace {

std::string kernel_name(const Node& node) {
  if (const auto* range = std::get_if<RangeNode>(&node.work)) return host_range_kernel_name(*range);
  const auto& compute = std::get<ComputeNode>(node.work);
  return "reference." + std::string(op_kind_name(compute.op)) + "." + std::string(pass_name(compute.pass));
}

class ReferenceBackend final : public Backend {
 public:
  std::string name() const override { return "reference"; }
  std::string library() const override { return "none (one thread, fp64 accumulation)"; }

  Support supports(Precision precision) const override {
    if (precision == Precision::fp32) return Support::ok();
    return Support::refuse("the reference backend computes in fp32 only, not " +
                           std::string(precision_name(precision)));
  }

  KernelBook survey(const ComputationGraph& graph, const ShapeTable& shapes, std::span<const CompileSpec>) override {
    KernelBook book;
    book.backend = name();
    book.entries.resize(kGraphIdCount);
    std::vector<bool> aliased(graph.tensors().size(), false);
    for (int id = 0; id < kGraphIdCount; ++id) {
      const std::vector<Node>& nodes = graph.nodes(static_cast<GraphId>(id));
      for (std::size_t i = 0; i < nodes.size(); ++i) {
        KernelEntry entry;
        entry.nodes = {static_cast<std::int32_t>(i)};
        entry.kernel = kernel_name(nodes[i]);
        if (const auto* compute = std::get_if<ComputeNode>(&nodes[i].work)) {
          entry.inputs = compute->inputs;
          entry.outputs = compute->outputs;
          if (compute->op == OpKind::flatten) add_view(book, *compute, aliased);
          entry.workspace_bytes = workspaces(*compute, shapes);
        }
        book.entries[static_cast<std::size_t>(id)].push_back(std::move(entry));
      }
    }
    return book;
  }

  void warm_up(const BindContext&, GraphId) override {}  // Naive loops have nothing to prepare.

  void record(const BindContext& context, GraphId id, int part, Stream& stream) override {
    HostStream& host = require_host_stream(stream, name());
    const std::vector<Node>& nodes = context.graph->nodes(id);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const Node& node = nodes[i];
      if (node.part != part) continue;
      if (const auto* range = std::get_if<RangeNode>(&node.work)) {
        record_host_range_node(context, *range, host);
      } else if (const auto& place = context.plan->workspace_offset[static_cast<std::size_t>(id)][i];
                 !place.empty() && place[0] >= 0) {
        const reference::Operands operands(context, std::get<ComputeNode>(node.work));
        reference::record_sync_batch_norm(operands, context.arena + place[0], host);
      } else if (auto kernel = reference::bind_kernel(context, std::get<ComputeNode>(node.work))) {
        host.enqueue(std::move(kernel));
      }
      if (node.records_event >= 0) {
        const auto event = static_cast<std::size_t>(node.records_event);
        RENAI_CHECK(event < context.bucket_events.size(), "'" + node.name() + "' records an event that exists");
        host.record(*context.bucket_events[event]);
      }
    }
  }

 private:
  /// By spec; empty where the node needs none.
  static std::vector<std::int64_t> workspaces(const ComputeNode& node, const ShapeTable& shapes) {
    std::vector<std::int64_t> sizes;
    std::int64_t most = 0;
    for (const std::vector<Shape>& table : shapes) {
      const Shape& x = table[static_cast<std::size_t>(node.inputs.at(0))];
      sizes.push_back(x.rank() > 0 ? reference::batch_norm_workspace_bytes(node, x.c()) : 0);
      most = std::max(most, sizes.back());
    }
    if (most == 0) sizes.clear();
    return sizes;
  }

  /// A flatten stands in the graphs of slot A and of slot B; one alias is enough.
  static void add_view(KernelBook& book, const ComputeNode& flatten, std::vector<bool>& aliased) {
    const auto out = static_cast<std::size_t>(flatten.outputs.at(0));
    if (!aliased[out]) book.aliases.push_back({flatten.outputs[0], flatten.inputs.at(0)});
    aliased[out] = true;
  }
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace renai
