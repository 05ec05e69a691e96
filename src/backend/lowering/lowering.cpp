#include "lowering.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "renai/base/check.hpp"

namespace renai::lowering {
namespace {

/// True when graphs of this id run under the spec.
bool runs_under(GraphId id, const CompileSpec& spec) {
  switch (graph_family(id)) {
    case GraphFamily::training: return spec.kind == VariantKind::training;
    case GraphFamily::inference: return spec.kind == VariantKind::validation;
    case GraphFamily::invariant:
    case GraphFamily::caller: return true;
  }
  return true;
}

/// An implementation with its kernels under all specs that run it.
struct Choice {
  Match match;
  KernelEntry entry;
};

class BookMaker {
 public:
  BookMaker(const Catalogue& catalogue, const ComputationGraph& graph, const ShapeTable& shapes,
            std::span<const CompileSpec> specs)
      : catalogue_(catalogue), graph_(graph), shapes_(shapes), specs_(specs), uses_(graph) {}

  KernelBook make() {
    book_.backend = catalogue_.backend;
    book_.entries.resize(kGraphIdCount);
    for (int id = 0; id < kGraphIdCount; ++id) lower(static_cast<GraphId>(id));
    return std::move(book_);
  }

 private:
  void lower(GraphId id) {
    const std::vector<Node>& nodes = graph_.nodes(id);
    if (nodes.empty()) return;
    const Scope scope(graph_, uses_, id, catalogue_.threads);
    auto& entries = book_.entries[static_cast<std::size_t>(id)];
    for (std::size_t i = 0; i < nodes.size(); i += entries.back().nodes.size()) {
      if (const auto* range = std::get_if<RangeNode>(&nodes[i].work)) {
        KernelEntry entry = catalogue_.range_entry(*range);
        entry.nodes = {static_cast<std::int32_t>(i)};
        entries.push_back(std::move(entry));
        continue;
      }
      Choice choice = choose(scope, i);
      for (const StorageAlias& alias : choice.match.aliases) add_alias(alias);
      entries.push_back(std::move(choice.entry));
    }
  }

  Choice choose(const Scope& scope, std::size_t first) {
    std::string reasons;
    for (const Implementation& implementation : catalogue_.implementations) {
      Offer<Match> match = implementation.match(scope, first);
      if (!match.value) {
        reasons += "\n  " + std::string(implementation.name) + ": " + match.refusal;
        continue;
      }
      Choice choice{std::move(*match.value), {}};
      const std::string refusal = try_all_specs(scope, first, implementation, choice);
      if (refusal.empty()) return choice;
      reasons += "\n  " + std::string(implementation.name) + ": " + refusal;
    }
    throw BackendError("choosing a kernel for '" + scope.node(first)->name + "'",
                       "no implementation of the " + catalogue_.backend + " backend takes it:" + reasons,
                       "use the reference backend");
  }

  /// Fills the choice's entry; returns the reason of a refusal.
  std::string try_all_specs(const Scope& scope, std::size_t first, const Implementation& implementation,
                            Choice& choice) {
    KernelEntry& entry = choice.entry;
    for (std::size_t i = 0; i < choice.match.node_count; ++i) {
      entry.nodes.push_back(static_cast<std::int32_t>(first + i));
    }
    std::vector<std::string> details;
    std::int64_t most_bytes = 0;
    std::vector<std::int64_t> saved_bytes;
    for (std::size_t spec = 0; spec < specs_.size(); ++spec) {
      entry.workspace_bytes.push_back(0);
      saved_bytes.push_back(0);
      if (!runs_under(scope.id(), specs_[spec])) continue;
      Offer<Kernel> kernel = make(implementation, {&scope, first, &choice.match, shapes_[spec]});
      if (!kernel.value) return specs_[spec].name + ": " + kernel.refusal;
      entry.workspace_bytes.back() = kernel.value->workspace_bytes;
      saved_bytes.back() = kernel.value->saved_bytes;
      most_bytes = std::max(most_bytes, kernel.value->workspace_bytes);
      const std::string& detail = kernel.value->detail;
      if (!detail.empty() && std::find(details.begin(), details.end(), detail) == details.end()) {
        details.push_back(detail);
      }
    }
    entry.inputs = with_saved(choice.match.inputs, scope.node(first)->name, saved_bytes);
    entry.outputs = with_saved(choice.match.outputs, scope.node(first)->name, saved_bytes);
    if (most_bytes == 0) entry.workspace_bytes.clear();
    entry.kernel = implementation.name;
    for (std::size_t i = 0; i < details.size(); ++i) entry.kernel += (i == 0 ? ":" : "|") + details[i];
    return {};
  }

  /// Replaces what a layer saves by its book tensor, made where it is first met: in the forward kernel.
  std::vector<TensorId> with_saved(std::vector<TensorId> tensors, const std::string& node,
                                   const std::vector<std::int64_t>& size_bytes) {
    for (TensorId& tensor : tensors) {
      if (!is_saved(tensor)) continue;
      const auto id = static_cast<TensorId>(graph_.tensors().size() + book_.tensors.size());
      const auto [place, is_new] = saved_.try_emplace(tensor, id);
      if (is_new) book_.tensors.push_back({node + ".saved", size_bytes});
      tensor = place->second;
    }
    return tensors;
  }

  Offer<Kernel> make(const Implementation& implementation, const Site& site) const {
    try {
      return implementation.make(site);
    } catch (const std::exception& error) {
      const std::string reason = catalogue_.refusal_of ? catalogue_.refusal_of(error) : std::string();
      if (reason.empty()) throw;
      return Offer<Kernel>::refuse(reason);
    }
  }

  /// Graphs for slots A and B hold the same nodes: one alias is enough.
  void add_alias(const StorageAlias& alias) {
    if (aliased_.insert(alias.out).second) book_.aliases.push_back(alias);
  }

  const Catalogue& catalogue_;
  const ComputationGraph& graph_;
  const ShapeTable& shapes_;
  std::span<const CompileSpec> specs_;
  Uses uses_;
  KernelBook book_;
  std::set<TensorId> aliased_;
  std::map<TensorId, TensorId> saved_;
};

bool same_tensors(const std::vector<TensorId>& matched, const std::vector<TensorId>& booked) {
  return std::equal(matched.begin(), matched.end(), booked.begin(), booked.end(),
                    [](TensorId a, TensorId b) { return a == b || is_saved(a); });
}

std::vector<Shape> shapes_of(const MemoryPlan& plan) {
  std::vector<Shape> shapes;
  shapes.reserve(plan.tensors.size());
  for (const DTensor& tensor : plan.tensors) shapes.push_back(tensor.shape);
  return shapes;
}

}  // namespace

KernelBook make_book(const Catalogue& catalogue, const ComputationGraph& graph, const ShapeTable& shapes,
                     std::span<const CompileSpec> specs) {
  return BookMaker(catalogue, graph, shapes, specs).make();
}

Binder::Binder(const Catalogue& catalogue, const BindContext& context, GraphId id)
    : catalogue_(&catalogue),
      context_(&context),
      id_(id),
      uses_(*context.graph),
      scope_(*context.graph, uses_, id, catalogue.threads),
      shapes_(shapes_of(*context.plan)) {}

std::byte* Binder::workspace(std::size_t entry) const {
  const auto& offsets = context_->plan->workspace_offset[static_cast<std::size_t>(id_)][entry];
  return offsets.empty() || offsets[0] < 0 ? nullptr : context_->arena + offsets[0];
}

Call Binder::bind(std::size_t index, void* queue, Stream* stream) const {
  const KernelEntry& entry = context_->book->of(id_)[index];
  const auto first = static_cast<std::size_t>(entry.nodes.front());
  if (scope_.node(first) == nullptr) return {};
  const std::string_view chosen = std::string_view(entry.kernel).substr(0, entry.kernel.find(':'));
  const auto& all = catalogue_->implementations;
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Implementation& one) { return one.name == chosen; });
  RENAI_CHECK(found != all.end(), "kernel '" + entry.kernel + "' is not of the " + catalogue_->backend + " backend");
  const Offer<Match> match = found->match(scope_, first);
  RENAI_CHECK(match.value && same_tensors(match.value->inputs, entry.inputs) &&
                  same_tensors(match.value->outputs, entry.outputs),
              "'" + scope_.node(first)->name + "' is bound as it was surveyed");
  const Offer<Kernel> kernel = found->make({&scope_, first, &*match.value, shapes_});
  RENAI_CHECK(kernel.value.has_value(), "'" + scope_.node(first)->name + "': " + kernel.refusal);
  Operands operands;
  operands.context = context_;
  operands.queue = queue;
  operands.stream = stream;
  const auto address = [&](TensorId id) {
    const DTensor& place = context_->plan->tensor(id);
    RENAI_CHECK(place.placed(),
                "'" + scope_.node(first)->name + "' uses tensor " + std::to_string(id) + " without a place");
    return context_->at(place);
  };
  for (const TensorId id : entry.inputs) operands.inputs.push_back(address(id));
  for (const TensorId id : entry.outputs) operands.outputs.push_back(address(id));
  if (kernel.value->workspace_bytes > 0) {
    const auto spec = static_cast<std::size_t>(context_->spec);
    RENAI_CHECK(entry.workspace_bytes[spec] >= kernel.value->workspace_bytes, "the workspace is as large as surveyed");
    operands.workspace = workspace(index);
  }
  return kernel.value->bind(operands);
}

}  // namespace renai::lowering
