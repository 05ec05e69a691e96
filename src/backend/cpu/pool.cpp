// Max, average and global average pooling.

#include "loops/loops.hpp"
#include "parallel.hpp"
#include "tables.hpp"

namespace renai::cpu {
namespace {

Pool make_pool(const PoolParams& params, const Shape& x, const Shape& y) {
  const WindowParams& w = params.window;
  return {x.h(),      x.w(),      x.c(),   y.h(),   y.w(),        w.kernel_h,   w.kernel_w,
          w.stride_h, w.stride_w, w.pad_h, w.pad_w, w.dilation_h, w.dilation_w, params.count_include_pad};
}

/// Elements of one image of x and of y.
struct Extents {
  std::int64_t images, x_elems, y_elems;
  Extents(const Shape& x, const Shape& y) : images(x.n()), x_elems(x.elems() / x.n()), y_elems(y.elems() / y.n()) {}
};

/// Window positions fit one byte, and the layer has a gradient that will read them.
bool saves_positions(const Scope& scope, const ComputeNode& node) {
  const WindowParams& window = std::get<PoolParams>(node.params).window;
  return window.kernel_h * window.kernel_w <= 256 && node.layer >= 0 &&
         scope.uses().has_gradient(node, node.inputs[0]) && graph_family(scope.id()) != GraphFamily::inference;
}

template <OpKind kOp, Pass kPass>
Offer<Match> match_op(const Scope& scope, std::size_t first) {
  const ComputeNode* node = scope.node(first);
  if (!is_op(node, kOp, kPass)) return Offer<Match>::refuse("another operator");
  return Match{1, node->inputs, node->outputs, {}};
}

/// Outputs: y [positions].
Offer<Match> match_max(const Scope& scope, std::size_t first) {
  const ComputeNode* node = scope.node(first);
  if (!is_op(node, OpKind::max_pool, Pass::forward)) return Offer<Match>::refuse("not a forward max pool");
  Match match{1, node->inputs, node->outputs, {}};
  if (saves_positions(scope, *node)) match.outputs.push_back(saved_by(node->layer));
  return match;
}

Offer<Kernel> make_max(const Site& site) {
  const Shape &x = site.shape(site.node().inputs[0]), &y = site.shape(site.node().outputs[0]);
  const Pool pool = make_pool(std::get<PoolParams>(site.node().params), x, y);
  const Extents extents(x, y);
  Kernel kernel;
  kernel.saved_bytes = y.elems();
  kernel.bind = [=, threads = site.threads()](const Operands& at) -> Call {
    auto* positions = at.outputs.size() > 1 ? reinterpret_cast<std::uint8_t*>(at.outputs[1]) : nullptr;
    return [=, x_at = at.in(0), y_at = at.out(0)] {
      parallel_ranges(threads, extents.images, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t n = begin; n < end; ++n) {
          std::uint8_t* saved = positions == nullptr ? nullptr : positions + n * extents.y_elems;
          machine_loops().max_pool(x_at + n * extents.x_elems, y_at + n * extents.y_elems, saved, 0, pool.oh, pool);
        }
      });
    };
  };
  return kernel;
}

/// Inputs: x dy, or dy and the saved positions.
Offer<Match> match_max_grad(const Scope& scope, std::size_t first) {
  const ComputeNode* node = scope.node(first);
  if (!is_op(node, OpKind::max_pool, Pass::backward)) return Offer<Match>::refuse("not a max pool's gradient");
  if (!saves_positions(scope, *node)) return Match{1, node->inputs, node->outputs, {}};
  return Match{1, {saved_by(node->layer), node->inputs[1]}, node->outputs, {}};
}

Offer<Kernel> make_max_grad(const Site& site) {
  const Shape &dx = site.shape(site.node().outputs[0]), &dy = site.shape(site.node().inputs[1]);
  const Pool pool = make_pool(std::get<PoolParams>(site.node().params), dx, dy);
  const Extents extents(dx, dy);
  const bool saved = is_saved(site.match->inputs[0]);
  Kernel kernel;
  kernel.detail = saved ? "positions" : "input";
  kernel.bind = [=, threads = site.threads()](const Operands& at) -> Call {
    const auto* positions = reinterpret_cast<const std::uint8_t*>(at.inputs[0]);
    return [=, x = at.in(0), dy_at = at.in(1), dx_at = at.out(0)] {
      parallel_ranges(threads, extents.images, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t n = begin; n < end; ++n) {
          machine_loops().max_pool_grad(saved ? positions + n * extents.y_elems : nullptr,
                                        saved ? nullptr : x + n * extents.x_elems, dy_at + n * extents.y_elems,
                                        dx_at + n * extents.x_elems, pool);
        }
      });
    };
  };
  return kernel;
}

Offer<Kernel> make_average(const Site& site) {
  const Shape &x = site.shape(site.node().inputs[0]), &y = site.shape(site.node().outputs[0]);
  const Pool pool = make_pool(std::get<PoolParams>(site.node().params), x, y);
  const Extents extents(x, y);
  Kernel kernel;
  kernel.bind = [=, threads = site.threads()](const Operands& at) -> Call {
    return [=, x_at = at.in(0), y_at = at.out(0)] {
      parallel_ranges(threads, extents.images, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t n = begin; n < end; ++n) {
          machine_loops().avg_pool(x_at + n * extents.x_elems, y_at + n * extents.y_elems, 0, pool.oh, pool);
        }
      });
    };
  };
  return kernel;
}

Offer<Kernel> make_average_grad(const Site& site) {
  const Shape &dx = site.shape(site.node().outputs[0]), &dy = site.shape(site.node().inputs[0]);
  const Pool pool = make_pool(std::get<PoolParams>(site.node().params), dx, dy);
  const Extents extents(dx, dy);
  Kernel kernel;
  kernel.bind = [=, threads = site.threads()](const Operands& at) -> Call {
    return [=, dy_at = at.in(0), dx_at = at.out(0)] {
      parallel_ranges(threads, extents.images, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t n = begin; n < end; ++n) {
          machine_loops().avg_pool_grad(dy_at + n * extents.y_elems, dx_at + n * extents.x_elems, pool);
        }
      });
    };
  };
  return kernel;
}

Offer<Kernel> make_global(const Site& site) {
  const Shape& x = site.shape(site.node().inputs[0]);
  const std::int64_t c = x.c(), pixels = x.h() * x.w(), images = x.n();
  Kernel kernel;
  kernel.bind = [=, threads = site.threads()](const Operands& at) -> Call {
    return [=, x_at = at.in(0), y = at.out(0)] {
      parallel_ranges(threads, images, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t n = begin; n < end; ++n) {
          machine_loops().column_sums(x_at + n * pixels * c, pixels, c, y + n * c);
          machine_loops().scale(y + n * c, 1.0f / static_cast<float>(pixels), y + n * c, c);
        }
      });
    };
  };
  return kernel;
}

Offer<Kernel> make_global_grad(const Site& site) {
  const Shape& dx = site.shape(site.node().outputs[0]);
  const std::int64_t c = dx.c(), pixels = dx.h() * dx.w(), images = dx.n();
  Kernel kernel;
  kernel.bind = [=, threads = site.threads()](const Operands& at) -> Call {
    return [=, dy = at.in(0), dx_at = at.out(0)] {
      parallel_ranges(threads, images * pixels, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          machine_loops().scale(dy + i / pixels * c, 1.0f / static_cast<float>(pixels), dx_at + i * c, c);
        }
      });
    };
  };
  return kernel;
}

}  // namespace

std::vector<Implementation> pool_implementations() {
  return {{"own.max_pool", match_max, make_max},
          {"own.max_pool_grad", match_max_grad, make_max_grad},
          {"own.avg_pool", match_op<OpKind::avg_pool, Pass::forward>, make_average},
          {"own.avg_pool_grad", match_op<OpKind::avg_pool, Pass::backward>, make_average_grad},
          {"own.global_avg_pool", match_op<OpKind::global_avg_pool, Pass::forward>, make_global},
          {"own.global_avg_pool_grad", match_op<OpKind::global_avg_pool, Pass::backward>, make_global_grad}};
}

}  // namespace renai::cpu
