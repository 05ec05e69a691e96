#pragma once
// Implementation: one way to run an operator, or several fused ones. A leaf's tables hold them, fastest first.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "renai/backend/backend.hpp"
#include "renai/graph/computation_graph.hpp"
#include "renai/plan/kernel_book.hpp"
#include "renai/tensor/dtensor.hpp"
#include "scope.hpp"

namespace renai::lowering {

/// Stands in Match::inputs and outputs for the tensor that a layer's forward kernel saves for its backward kernel.
constexpr TensorId saved_by(std::int32_t layer) { return -2 - layer; }
constexpr bool is_saved(TensorId tensor) { return tensor <= -2; }

inline bool is_op(const ComputeNode* node, OpKind op, Pass pass) {
  return node != nullptr && node->op == op && node->pass == pass;
}
inline bool is_relu(const ComputeNode* node, Pass pass) {
  return is_op(node, OpKind::activation, pass) && std::get<ActivationParams>(node->params).kind == Activation::relu;
}

/// What an implementation takes of a graph: consecutive nodes, with the tensors that it really touches.
struct Match {
  std::size_t node_count = 1;
  std::vector<TensorId> inputs, outputs;
  std::vector<StorageAlias> aliases;
};

/// Addresses of one entry in the arena, by position of Match::inputs and outputs.
struct Operands {
  const BindContext* context = nullptr;
  std::vector<std::byte*> inputs, outputs;
  std::byte* workspace = nullptr;
  void* queue = nullptr;     ///< What the leaf records into, where a call needs it when it is bound (cudaStream_t).
  Stream* stream = nullptr;  ///< Likewise, for what a call lets the communicator record; null while warming up.

  float* in(std::size_t i) const { return reinterpret_cast<float*>(inputs[i]); }
  float* out(std::size_t i) const { return reinterpret_cast<float*>(outputs[i]); }
};

/// A prepared call: fixed addresses, no arguments. Empty for views.
using Call = std::function<void()>;

/// Offsets inside a workspace, each aligned as a slot.
class WorkspaceLayout {
 public:
  /// Offset of a new interval. Units: bytes.
  std::int64_t add(std::int64_t size_bytes) {
    const std::int64_t offset = size_bytes_;
    size_bytes_ += align_slot(size_bytes);
    return offset;
  }
  std::int64_t size_bytes() const { return size_bytes_; }

 private:
  std::int64_t size_bytes_ = 0;
};

/// A kernel made for the shapes of one spec.
struct Kernel {
  std::string detail;  ///< Which variant was chosen; part of the kernel-plan hash.
  std::int64_t workspace_bytes = 0;
  std::int64_t saved_bytes = 0;  ///< Size of the tensor that it saves for backward.
  std::function<Call(const Operands&)> bind;
};

/// Either a value or the reason why there is none.
template <typename T>
struct Offer {
  std::optional<T> value;
  std::string refusal;
  Offer(T taken) : value(std::move(taken)) {}  // NOLINT(google-explicit-constructor)
  static Offer refuse(std::string_view reason) { return Offer(std::nullopt, reason); }

 private:
  Offer(std::nullopt_t, std::string_view reason) : refusal(reason) {}
};

/// Description of an implementation. `match` looks at topology only, so that it answers the same when a graph is
/// surveyed and when it is recorded; `make` looks at shapes.
struct Implementation {
  std::string_view name;
  std::function<Offer<Match>(const Scope& scope, std::size_t first)> match;
  std::function<Offer<Kernel>(const Site& site)> make;
};

/// What a leaf brings to the lowering.
struct Catalogue {
  std::string backend;                          ///< "cpu", "cuda"
  std::vector<Implementation> implementations;  ///< In the order in which they are tried.
  int threads = 1;
  /// The kernel of a RANGE node with its workspace under each spec (empty: none).
  std::function<KernelEntry(const RangeNode& node)> range_entry;
  /// The reason of a refusal when `make` threw what means one; empty: the exception goes on.
  std::function<std::string(const std::exception& error)> refusal_of;
};

}  // namespace renai::lowering
