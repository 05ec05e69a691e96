#pragma once
// Lowering: from a graph to the book's entries, and from an entry back to its kernel.

#include <cstddef>
#include <span>

#include "implementation.hpp"
#include "scope.hpp"

namespace renai::lowering {

/// Covers every graph with implementations, the first that takes a place winning. Determinism: a pure function of its
/// arguments and the machine. Errors: BackendError naming the operator with each candidate's reason.
KernelBook make_book(const Catalogue& catalogue, const ComputationGraph& graph, const ShapeTable& shapes,
                     std::span<const CompileSpec> specs);

/// Binds entries of one graph to the addresses of a plan.
class Binder {
 public:
  /// `catalogue` must outlive the binder.
  Binder(const Catalogue& catalogue, const BindContext& context, GraphId id);
  /// The prepared call of an entry; empty for RANGE nodes and views. `queue`, `stream`: as in Operands. Errors:
  /// InternalError for a book of another backend.
  Call bind(std::size_t entry, void* queue = nullptr, Stream* stream = nullptr) const;
  /// The entry's workspace; null when it has none.
  std::byte* workspace(std::size_t entry) const;

 private:
  const Catalogue* catalogue_;
  const BindContext* context_;
  GraphId id_;
  Uses uses_;
  Scope scope_;
  std::vector<Shape> shapes_;
};

}  // namespace renai::lowering
