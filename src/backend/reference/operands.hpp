#pragma once
// Operands: addresses and shapes of one COMPUTE node's tensors, resolved from a plan.

#include <cstdint>
#include <functional>

#include "renai/backend/backend.hpp"

namespace renai::reference {

/// A kernel with everything bound: what a stream enqueues.
using Kernel = std::function<void()>;

/// A dense f32 tensor as [n, h, w, c]; rank 2 is [n, 1, 1, c], rank 1 [1, 1, 1, c].
struct View {
  float* data = nullptr;
  std::int64_t n = 1, h = 1, w = 1, c = 1;

  std::int64_t elems() const { return n * h * w * c; }
  std::int64_t rows() const { return n * h * w; }
  /// The channels of one position.
  float* at(std::int64_t in, std::int64_t ih, std::int64_t iw) const { return data + ((in * h + ih) * w + iw) * c; }
};

/// Errors: InternalError for a tensor without a place or with padded channels, which this backend never books.
class Operands {
 public:
  Operands(const BindContext& context, const ComputeNode& node) : context_(context), node_(node) {}

  const BindContext& context() const { return context_; }
  const ComputeNode& node() const { return node_; }
  template <typename Params>
  const Params& params() const {
    return std::get<Params>(node_.params);
  }
  std::size_t input_count() const { return node_.inputs.size(); }
  std::size_t output_count() const { return node_.outputs.size(); }
  View in(std::size_t i) const { return view(node_.inputs.at(i)); }
  View out(std::size_t i) const { return view(node_.outputs.at(i)); }
  /// Address of a tensor of any type.
  std::byte* in_bytes(std::size_t i) const { return address(node_.inputs.at(i)); }
  std::byte* out_bytes(std::size_t i) const { return address(node_.outputs.at(i)); }

 private:
  std::byte* address(TensorId id) const;
  View view(TensorId id) const;

  const BindContext& context_;
  const ComputeNode& node_;
};

}  // namespace renai::reference
