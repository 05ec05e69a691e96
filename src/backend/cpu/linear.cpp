// Fully connected layers through oneDNN, weights as they are: [K, C].

#include "onednn.hpp"
#include "tables.hpp"

namespace renai::cpu {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Argument = PreparedPrimitive::Argument;
constexpr auto kF32 = memory::data_type::f32;

struct Problem {
  memory::desc x, w, b, y;
};

Problem make_problem(const Shape& x, const Shape& y) {
  const std::int64_t n = y.n(), c = x.elems() / n, k = y.elems() / n;
  return {{{n, c}, kF32, Tag::ab}, {{k, c}, kF32, Tag::ab}, {{k}, kF32, Tag::a}, {{n, k}, kF32, Tag::ab}};
}

dnnl::inner_product_forward::primitive_desc forward_desc(const Problem& p, bool bias) {
  const auto kind = dnnl::prop_kind::forward_training;
  using Desc = dnnl::inner_product_forward::desc;
  return {bias ? Desc(kind, p.x, p.w, p.b, p.y) : Desc(kind, p.x, p.w, p.y), user_scratchpad(), onednn_engine()};
}

Offer<Match> match_pass(const Scope& scope, std::size_t first, Pass pass) {
  const ComputeNode* node = scope.node(first);
  if (node == nullptr || node->op != OpKind::linear || node->pass != pass) {
    return Offer<Match>::refuse("not this pass of a linear layer");
  }
  return Match{1, node->inputs, node->outputs, {}};
}
Offer<Match> match_forward(const Scope& scope, std::size_t first) { return match_pass(scope, first, Pass::forward); }
Offer<Match> match_data(const Scope& scope, std::size_t first) { return match_pass(scope, first, Pass::backward_data); }
Offer<Match> match_weights(const Scope& scope, std::size_t first) {
  return match_pass(scope, first, Pass::backward_weights);
}

template <typename Desc>
Kernel make_kernel(const Desc& desc, std::function<std::vector<Argument>(const Operands&)> arguments,
                   dnnl::primitive primitive) {
  Kernel kernel;
  kernel.detail = desc.impl_info_str();
  kernel.workspace_bytes = static_cast<std::int64_t>(desc.scratchpad_desc().get_size());
  kernel.bind = [scratchpad = desc.scratchpad_desc(), arguments = std::move(arguments),
                 primitive = std::move(primitive)](const Operands& at) -> Call {
    std::vector<Argument> all = arguments(at);
    all.push_back({DNNL_ARG_SCRATCHPAD, scratchpad, at.workspace});
    return [step = PreparedPrimitive(primitive, all)] { step.run(); };
  };
  return kernel;
}

Offer<Kernel> make_forward(const Site& site) {
  const ComputeNode& node = site.node();
  const Problem p = make_problem(site.shape(node.inputs[0]), site.shape(node.outputs[0]));
  const bool bias = node.inputs.size() > 2;
  const auto desc = forward_desc(p, bias);
  return make_kernel(
      desc,
      [p, bias](const Operands& at) {
        std::vector<Argument> all{{DNNL_ARG_SRC, p.x, at.inputs[0]},
                                  {DNNL_ARG_WEIGHTS, p.w, at.inputs[1]},
                                  {DNNL_ARG_DST, p.y, at.outputs[0]}};
        if (bias) all.push_back({DNNL_ARG_BIAS, p.b, at.inputs[2]});
        return all;
      },
      dnnl::inner_product_forward(desc));
}

Offer<Kernel> make_data(const Site& site) {
  const ComputeNode& node = site.node();
  const Problem p = make_problem(site.shape(node.outputs[0]), site.shape(node.inputs[0]));
  const dnnl::inner_product_backward_data::primitive_desc desc({p.x, p.w, p.y}, user_scratchpad(), onednn_engine(),
                                                               forward_desc(p, false));
  return make_kernel(
      desc,
      [p](const Operands& at) {
        return std::vector<Argument>{{DNNL_ARG_DIFF_DST, p.y, at.inputs[0]},
                                     {DNNL_ARG_WEIGHTS, p.w, at.inputs[1]},
                                     {DNNL_ARG_DIFF_SRC, p.x, at.outputs[0]}};
      },
      dnnl::inner_product_backward_data(desc));
}

Offer<Kernel> make_weights(const Site& site) {
  const ComputeNode& node = site.node();
  const Problem p = make_problem(site.shape(node.inputs[0]), site.shape(node.inputs[1]));
  const bool bias = node.outputs.size() > 1;
  using Desc = dnnl::inner_product_backward_weights;
  const Desc::primitive_desc desc(bias ? Desc::desc(p.x, p.w, p.b, p.y) : Desc::desc(p.x, p.w, p.y), user_scratchpad(),
                                  onednn_engine(), forward_desc(p, bias));
  return make_kernel(
      desc,
      [p, bias](const Operands& at) {
        std::vector<Argument> all{{DNNL_ARG_SRC, p.x, at.inputs[0]},
                                  {DNNL_ARG_DIFF_DST, p.y, at.inputs[1]},
                                  {DNNL_ARG_DIFF_WEIGHTS, p.w, at.outputs[0]}};
        if (bias) all.push_back({DNNL_ARG_DIFF_BIAS, p.b, at.outputs[1]});
        return all;
      },
      dnnl::inner_product_backward_weights(desc));
}

}  // namespace

std::vector<Implementation> linear_implementations() {
  return {{"onednn.linear", match_forward, make_forward},
          {"onednn.linear_data", match_data, make_data},
          {"onednn.linear_weights", match_weights, make_weights}};
}

}  // namespace renai::cpu
