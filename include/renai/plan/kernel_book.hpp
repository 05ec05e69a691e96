#pragma once
// KernelBook: what only a backend knows, as plain data: which kernel runs which nodes, what it really reads and writes,
// its workspace and the tensors it saves for backward. Asked for once, before planning.

#include <cstdint>
#include <string>
#include <vector>

#include "renai/graph/computation_graph.hpp"
#include "renai/tensor/dtype.hpp"

namespace renai {

/// One launchable unit of a graph: one node, or several consecutive nodes of a branch fused into one kernel.
/// `inputs` and `outputs` are the tensors that the kernel really touches (graph tensors, or book tensors with ids from
/// graph.tensors().size() on). A graph tensor that no entry touches gets no memory.
struct KernelEntry {
  std::vector<std::int32_t> nodes;  ///< Indices into graph.nodes(id); the first gives branch, waits and part.
  std::string kernel;  ///< "onednn.conv.jit:avx512_core", "reference.conv2d": part of the kernel-plan hash.
  std::vector<TensorId> inputs, outputs;
  std::vector<std::int64_t> workspace_bytes;  ///< By spec; empty: none.
};

/// A tensor that exists only because a kernel needs it (saved for backward, packed weights ...). Planned by lifetime.
struct BookTensor {
  std::string name;
  std::vector<std::int64_t> size_bytes;  ///< By spec; 0 where the spec's family does not use it.
};

/// `out` lies in the storage of `in` at the same offset: a view (flatten) or an in-place kernel. Their lifetimes are
/// one.
struct StorageAlias {
  TensorId out = kNoTensor, in = kNoTensor;
};

struct KernelBook {
  std::string backend;
  std::vector<std::vector<KernelEntry>>
      entries;  ///< By GraphId, in execution order; every node stands in exactly one entry.
  std::vector<BookTensor> tensors;
  std::vector<StorageAlias> aliases;
  std::vector<std::int64_t> padded_c;  ///< By TensorId, stored extent of the last axis; empty: none is padded.
  DType half_dtype = DType::bf16;      ///< Of the region "weights_half", where the graph has it.
  std::vector<DType> dtypes;           ///< By TensorId, stored element type; empty: each role's own (tensor_dtype).

  const std::vector<KernelEntry>& of(GraphId id) const { return entries[static_cast<std::size_t>(id)]; }
};

/// Element type in which a graph tensor is stored.
DType stored_dtype(const KernelBook& book, const ComputationGraph& graph, TensorId id);

/// Every node covered once and in order, tensor ids in range, sizes for each of `spec_count` specs; no kernel starts
/// before what its nodes wait for, and none writes in place over a value that is still to be read (views are flatten
/// nodes). Only activations and their gradients may have another element type than their role's, and a view has that of
/// what it views. Errors: InternalError.
void verify(const KernelBook& book, const ComputationGraph& graph, int spec_count);
std::string print(const KernelBook& book, const ComputationGraph& graph);
/// Hash of all kernel choices, for fingerprint, trace and summary.
std::uint64_t kernel_plan_hash(const KernelBook& book);

}  // namespace renai
