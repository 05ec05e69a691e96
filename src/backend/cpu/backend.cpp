// The cpu backend: oneDNN and vectorised loops with a constant number of threads.

#include "renai/backend/backend.hpp"

#include "../host_range_ops.hpp"
#include "../lowering/lowering.hpp"
#include "loops/loops.hpp"
#include "onednn.hpp"
#include "parallel.hpp"
#include "renai/base/check.hpp"
#include "tables.hpp"

namespace renai {
namespace {

cpu::Catalogue make_catalogue(int threads) {
  cpu::Catalogue catalogue;
  catalogue.backend = "cpu";
  catalogue.threads = threads;
  for (const auto& part :
       {cpu::conv_implementations(), cpu::linear_implementations(), cpu::norm_implementations(),
        cpu::activation_implementations(), cpu::pool_implementations(), cpu::adaptive_pool_implementations(),
        cpu::join_implementations(), cpu::input_implementations(), cpu::reference_implementations()}) {
    catalogue.implementations.insert(catalogue.implementations.end(), part.begin(), part.end());
  }
  catalogue.range_entry = [](const RangeNode& node) {
    KernelEntry entry;
    entry.kernel = host_range_kernel_name(node);
    return entry;
  };
  catalogue.refusal_of = [](const std::exception& error) {
    const auto* onednn = dynamic_cast<const dnnl::error*>(&error);
    return onednn != nullptr ? cpu::onednn_reason(*onednn) : std::string();
  };
  return catalogue;
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(int threads) : threads_(threads), catalogue_(make_catalogue(threads)) {
    RENAI_CHECK(threads >= 1, "the cpu backend has at least one thread");
  }
  std::string name() const override { return "cpu"; }

  std::string library() const override {
    return cpu::onednn_version() + ", own loops (" + cpu::machine_loops().isa + "), " + std::to_string(threads_) +
           (threads_ == 1 ? " thread" : " threads");
  }

  Support supports(Precision precision) const override {
    if (precision == Precision::fp32) return Support::ok();
    return Support::refuse("the cpu backend computes in fp32 only, not " + std::string(precision_name(precision)));
  }

  KernelBook survey(const ComputationGraph& graph, const ShapeTable& shapes,
                    std::span<const CompileSpec> specs) override {
    const cpu::ThreadCountGuard guard(threads_);
    return lowering::make_book(catalogue_, graph, shapes, specs);
  }

  /// Creates the primitives once, so that oneDNN's cache has them when they are recorded.
  void warm_up(const BindContext& context, GraphId id) override {
    const cpu::ThreadCountGuard guard(threads_);
    const lowering::Binder binder(catalogue_, context, id);
    for (std::size_t i = 0; i < context.book->of(id).size(); ++i) binder.bind(i);
  }

  void record(const BindContext& context, GraphId id, int part, Stream& stream) override {
    HostStream& host = require_host_stream(stream, name());
    const cpu::ThreadCountGuard guard(threads_);
    const lowering::Binder binder(catalogue_, context, id);
    const std::vector<Node>& nodes = context.graph->nodes(id);
    for (std::size_t i = 0; i < context.book->of(id).size(); ++i) {
      const KernelEntry& entry = context.book->of(id)[i];
      const Node& last = nodes[static_cast<std::size_t>(entry.nodes.back())];
      if (last.part != part) continue;
      if (const auto* range = std::get_if<RangeNode>(&last.work)) {
        record_host_range_node(context, *range, host);
      } else if (cpu::Call call = binder.bind(i, nullptr, &host)) {
        cpu::enqueue(host, std::move(call), threads_);
      }
      if (last.records_event >= 0) {
        const auto event = static_cast<std::size_t>(last.records_event);
        RENAI_CHECK(event < context.bucket_events.size(), "'" + last.name() + "' records an event that exists");
        host.record(*context.bucket_events[event]);
      }
    }
  }

 private:
  int threads_;
  cpu::Catalogue catalogue_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(int threads) { return std::make_unique<CpuBackend>(threads); }

}  // namespace renai
