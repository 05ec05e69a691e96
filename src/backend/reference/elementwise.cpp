// add, concat, dropout.

#include <algorithm>
#include <vector>

#include "../dropout_key.hpp"
#include "kernels.hpp"
#include "renai/base/check.hpp"

namespace renai::reference {
namespace {

struct Add {
  View a, b, y;
  void operator()() const {
    for (std::int64_t i = 0; i < y.elems(); ++i) y.data[i] = a.data[i] + b.data[i];
  }
};

/// Copies channels between the joined tensor and its parts.
struct Concat {
  View joined;
  std::vector<View> parts;
  bool split;

  void operator()() const {
    for (std::int64_t row = 0; row < joined.rows(); ++row) {
      float* at = joined.data + row * joined.c;
      for (const View& part : parts) {
        float* piece = part.data + row * part.c;
        split ? std::copy_n(at, part.c, piece) : std::copy_n(piece, part.c, at);
        at += part.c;
      }
    }
  }
};

/// Forward and backward are the same product with the mask.
struct Dropout {
  View from, to;
  const ControlBlock* control;
  DropoutParams params;

  void operator()() const {
    const float scale = dropout_scale(params.p);
    for (std::int64_t first = 0; first < from.elems(); first += kDropoutBlockElems) {
      const PhiloxBlock words = dropout_block(*control, params.layer, first / kDropoutBlockElems);
      const std::int64_t count = std::min(kDropoutBlockElems, from.elems() - first);
      for (std::int64_t i = 0; i < count; ++i) {
        const bool keeps = dropout_keeps(words[static_cast<std::size_t>(i)], params.p);
        to.data[first + i] = keeps ? from.data[first + i] * scale : 0.0f;
      }
    }
  }
};

}  // namespace

Kernel bind_add(const Operands& operands) {
  if (operands.node().pass != Pass::forward) refuse_pass(operands.node());
  return Add{operands.in(0), operands.in(1), operands.out(0)};
}

Kernel bind_concat(const Operands& operands) {
  const bool split = operands.node().pass == Pass::backward;
  if (!split && operands.node().pass != Pass::forward) refuse_pass(operands.node());
  Concat kernel{split ? operands.in(0) : operands.out(0), {}, split};
  const std::size_t count = split ? operands.output_count() : operands.input_count();
  for (std::size_t i = 0; i < count; ++i) kernel.parts.push_back(split ? operands.out(i) : operands.in(i));
  return kernel;
}

Kernel bind_dropout(const Operands& operands) {
  if (operands.node().pass != Pass::forward && operands.node().pass != Pass::backward) refuse_pass(operands.node());
  const auto& params = operands.params<DropoutParams>();
  RENAI_CHECK(params.layer < 65536, "the mask's key has 16 bits for the layer");
  return Dropout{operands.in(0), operands.out(0), reinterpret_cast<const ControlBlock*>(operands.in_bytes(1)), params};
}

}  // namespace renai::reference
