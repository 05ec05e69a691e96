// Batch norm with what surrounds it: relu, sum, and max pool forward; their gradients backward. The relu's sign and the
// place of a window's maximum are found again from x in backward, so neither the normalised tensor nor a mask is kept.

#include <cmath>

#include "../host_range_ops.hpp"
#include "../sync_norm.hpp"
#include "loops/loops.hpp"
#include "norm_patterns.hpp"
#include "onednn.hpp"
#include "parallel.hpp"
#include "tables.hpp"

namespace renai::cpu {
namespace {

// ---- forward --------------------------------------------------------------------------------------------------------

/// Outputs of all forward matches: y mean var_unbiased var_biased.
std::vector<TensorId> forward_outputs(const ComputeNode& norm, TensorId y) {
  return {y, norm.outputs[1], norm.outputs[2], norm.outputs[3]};
}

Offer<Match> match_norm(const Scope& scope, std::size_t first) {
  const ComputeNode* norm = scope.node(first);
  if (!is_op(norm, OpKind::batch_norm, Pass::forward)) return Offer<Match>::refuse("not a forward batch norm");
  return Match{1, norm->inputs, norm->outputs, {}};
}

Offer<Match> match_norm_relu(const Scope& scope, std::size_t first) {
  const ComputeNode* relu = relu_behind_norm(scope, first);
  if (relu == nullptr) return Offer<Match>::refuse("not a forward batch norm with a relu alone behind it");
  const ComputeNode& norm = *scope.node(first);
  return Match{2, norm.inputs, forward_outputs(norm, relu->outputs[0]), {}};
}

/// Inputs: x scale bias other.
Offer<Match> match_norm_relu_add(const Scope& scope, std::size_t first) {
  const ComputeNode* relu = relu_behind_norm(scope, first);
  if (relu == nullptr) return Offer<Match>::refuse("not a forward batch norm with a relu alone behind it");
  const ComputeNode* add = scope.follower(first, first + 2);
  const TensorId y = relu->outputs[0];
  if (!is_op(add, OpKind::add, Pass::forward) || add->inputs.size() != 2 ||
      (add->inputs[0] == y) == (add->inputs[1] == y)) {
    return Offer<Match>::refuse("no sum follows");
  }
  if (!fused_backward_only(scope, y, first + 2, false)) return Offer<Match>::refuse("others read the relu's output");
  const ComputeNode& norm = *scope.node(first);
  const TensorId other = add->inputs[0] == y ? add->inputs[1] : add->inputs[0];
  return Match{3, {norm.inputs[0], norm.inputs[1], norm.inputs[2], other}, forward_outputs(norm, add->outputs[0]), {}};
}

Offer<Match> match_norm_relu_pool(const Scope& scope, std::size_t first) {
  const ComputeNode* relu = relu_behind_norm(scope, first);
  if (relu == nullptr) return Offer<Match>::refuse("not a forward batch norm with a relu alone behind it");
  const ComputeNode* pool = scope.follower(first, first + 2);
  if (!is_tiling(pool, Pass::forward) || pool->inputs[0] != relu->outputs[0]) {
    return Offer<Match>::refuse("no max pool with tiling windows follows");
  }
  if (!fused_backward_only(scope, relu->outputs[0], first + 2, true)) {
    return Offer<Match>::refuse("others read the relu's output");
  }
  const ComputeNode& norm = *scope.node(first);
  return Match{3, norm.inputs, forward_outputs(norm, pool->outputs[0]), {}};
}

/// Rows of one partial sum: about 64 KiB of x, so that its second pass reads the cache.
std::int64_t rows_of_block(std::int64_t c) { return std::max<std::int64_t>(16384 / c, 8); }

struct BlockSplit {
  std::int64_t rows = 0, block_rows = 0, count = 0;

  BlockSplit(std::int64_t all_rows, std::int64_t rows_per_block)
      : rows(all_rows), block_rows(rows_per_block), count((all_rows + rows_per_block - 1) / rows_per_block) {}
  std::int64_t size(std::int64_t block) const { return std::min(block_rows, rows - block * block_rows); }
};

/// Of one channel: mean and sum of squared deviations forward, sums of g and g * (x - mean) backward.
struct Pair {
  double first = 0, second = 0;
};

void keep(const sync_norm::Blocks& shards, std::int64_t ch, Pair pair) {
  shards.of_own()[ch] = pair.first;
  shards.of_own()[shards.c + ch] = pair.second;
}

Pair total(const sync_norm::Blocks& shards, std::int64_t ch) { return {shards.data[ch], shards.data[shards.c + ch]}; }

/// Batch norm over several shards: `before` leaves this shard's block, `after` finds all of them. Enqueues what comes
/// first; the rest is the entry's call.
Call with_exchange(const Operands& at, const sync_norm::Blocks& shards, const ComputeNode& node, int threads,
                   Call before, Call after) {
  if (at.stream != nullptr) {
    HostStream& host = require_host_stream(*at.stream, "cpu");
    enqueue(host, std::move(before), threads);
    sync_norm::gather(*at.context, shards, host, node.name);
  }
  return after;
}

/// Statistics and the affine map's factors. Determinism: blocks of constant size, combined in rising order in fp64: the
/// same bits for any number of threads.
struct Moments {
  const float *x, *scale;
  float *mean, *var_unbiased, *var_biased, *gain, *blocks;
  std::int64_t c;
  BlockSplit split;
  float eps;
  sync_norm::Blocks shards;  ///< With one shard there is nothing in it.

  void run(int threads) const {
    const Loops& loops = machine_loops();
    parallel_ranges(threads, split.count, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b) {
        loops.moments(x + b * split.block_rows * c, split.size(b), c, blocks + 2 * b * c, blocks + (2 * b + 1) * c);
      }
    });
    parallel_ranges(split.count * c < kParallelElems ? 1 : threads, c, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t ch = begin; ch < end; ++ch) {
        if (shards.shards == 1) {
          finish(ch, combine(ch), split.rows);
        } else {
          keep(shards, ch, combine(ch));
        }
      }
    });
  }

  /// Mean and sum of squared deviations of the blocks.
  Pair combine(std::int64_t ch) const {
    double sum = 0, squares = 0;
    for (std::int64_t b = 0; b < split.count; ++b) {
      sum += static_cast<double>(split.size(b)) * double{blocks[2 * b * c + ch]};
    }
    const double center = sum / static_cast<double>(split.rows);
    for (std::int64_t b = 0; b < split.count; ++b) {
      const double distance = double{blocks[2 * b * c + ch]} - center;
      squares += double{blocks[(2 * b + 1) * c + ch]} + static_cast<double>(split.size(b)) * distance * distance;
    }
    return {center, squares};
  }

  void finish(std::int64_t ch, Pair moments, std::int64_t rows) const {
    const auto count = static_cast<double>(rows);
    const double variance = moments.second / count;
    mean[ch] = static_cast<float>(moments.first);
    var_biased[ch] = static_cast<float>(variance);
    var_unbiased[ch] = static_cast<float>(moments.second / (count - 1));
    gain[ch] = norm_gain(scale[ch], var_biased[ch], eps);
  }

  /// With several shards, after their blocks were gathered.
  void finish_all() const {
    sync_norm::add_moments(shards, static_cast<double>(split.rows), 0, c);
    for (std::int64_t ch = 0; ch < c; ++ch) finish(ch, total(shards, ch), split.rows * shards.shards);
  }
};

enum class Tail { none, relu, relu_add, relu_pool };

/// One shard knows all of its statistics itself.
sync_norm::Blocks shards_of(const Operands& at, std::int64_t offset, std::int64_t c, int shards) {
  return shards == 1 ? sync_norm::Blocks{} : sync_norm::make_blocks(*at.context, at.workspace + offset, c, shards);
}

template <Tail kTail>
Offer<Kernel> make_forward(const Site& site) {
  const ComputeNode& norm = site.node();
  const Shape& x = site.shape(norm.inputs[0]);
  const std::int64_t c = x.c(), rows = x.elems() / c;
  const BlockSplit split(rows, rows_of_block(c));
  Tiles tiles{};
  if constexpr (kTail == Tail::relu_pool) tiles = tiles_of(x, std::get<PoolParams>(site.node(2).params));
  WorkspaceLayout layout;
  const std::int64_t gain = layout.add(c * 4), blocks = layout.add(split.count * 2 * c * 4);
  const float eps = std::get<BatchNormParams>(norm.params).eps;
  const int shards = std::get<BatchNormParams>(norm.params).sync_shards;
  const std::int64_t shards_at = shards > 1 ? layout.add(shards * sync_norm::block_bytes(c)) : 0;
  const int threads = site.threads();
  const std::int64_t images = x.n();
  Kernel kernel;
  kernel.workspace_bytes = layout.size_bytes();
  kernel.bind = [=, &node = norm](const Operands& at) -> Call {
    const Moments moments{at.in(0),
                          at.in(1),
                          at.out(1),
                          at.out(2),
                          at.out(3),
                          reinterpret_cast<float*>(at.workspace + gain),
                          reinterpret_cast<float*>(at.workspace + blocks),
                          c,
                          split,
                          eps,
                          shards_of(at, shards_at, c, shards)};
    const Affine affine{moments.mean, moments.gain, at.in(2)};
    const float* other = kTail == Tail::relu_add ? at.in(3) : nullptr;
    const auto map = [=, x_at = at.in(0), y = at.out(0)] {
      const Loops& loops = machine_loops();
      if constexpr (kTail == Tail::relu_pool) {
        parallel_ranges(threads, images * tiles.oh, [&](std::int64_t begin, std::int64_t end) {
          loops.affine_relu_tiles(x_at, y, begin, end - begin, tiles, affine);
        });
      } else {
        parallel_ranges(threads, rows, [&](std::int64_t begin, std::int64_t end) {
          loops.affine(x_at + begin * c, other == nullptr ? nullptr : other + begin * c, y + begin * c, end - begin, c,
                       affine, kTail != Tail::none);
        });
      }
    };
    if (shards == 1) {
      return [=] {
        moments.run(threads);
        map();
      };
    }
    return with_exchange(
        at, moments.shards, node, threads, [=] { moments.run(threads); },
        [=] {
          moments.finish_all();
          map();
        });
  };
  return kernel;
}

// ---- inference ------------------------------------------------------------------------------------------------------

Offer<Match> match_inference(const Scope& scope, std::size_t first) {
  const ComputeNode* norm = scope.node(first);
  if (!is_op(norm, OpKind::batch_norm, Pass::inference)) return Offer<Match>::refuse("not an inference batch norm");
  Match match{1, norm->inputs, norm->outputs, {}};
  const ComputeNode* relu = scope.follower(first, first + 1);
  if (is_relu(relu, Pass::forward) && relu->inputs[0] == norm->outputs[0] &&
      scope.only_reader(norm->outputs[0], first + 1)) {
    match.node_count = 2;
    match.outputs = relu->outputs;
  }
  return match;
}

Offer<Kernel> make_inference(const Site& site) {
  const Shape& x = site.shape(site.node().inputs[0]);
  const std::int64_t c = x.c(), rows = x.elems() / c, zero_bytes = c * 4;
  const bool relu = site.match->node_count == 2;
  Kernel kernel;
  kernel.workspace_bytes = align_slot(zero_bytes);
  kernel.bind = [=, threads = site.threads()](const Operands& at) -> Call {
    auto* zero = reinterpret_cast<float*>(at.workspace);
    const Affine affine{zero, at.in(1), at.in(2)};
    return [=, x_at = at.in(0), y = at.out(0)] {
      std::fill_n(zero, c, 0.0f);
      parallel_ranges(threads, rows, [&](std::int64_t begin, std::int64_t end) {
        machine_loops().affine(x_at + begin * c, nullptr, y + begin * c, end - begin, c, affine, relu);
      });
    };
  };
  return kernel;
}

// ---- backward -------------------------------------------------------------------------------------------------------

/// Inputs of all backward matches: x dy scale mean var_biased [bias, where a relu's sign is found again].
Match backward_match(const Scope& scope, std::size_t first, std::size_t count, TensorId dy) {
  const std::size_t index = first + count - 1;
  const ComputeNode& norm = *scope.node(index);
  Match match{count, norm.inputs, norm.outputs, {}};
  match.inputs[1] = dy;
  if (count > 1) {
    const TensorInfo& scale = scope.graph().tensor(norm.inputs[2]);
    for (const NormInfo& info : scope.graph().norms()) {
      if (info.scale_param != scale.param) continue;
      match.inputs.push_back(scope.graph().params()[static_cast<std::size_t>(info.bias_param)].weight);
    }
  }
  // dx takes over x, element by element.
  if (scope.last_use(norm.inputs[0], index)) match.aliases.push_back({norm.outputs[0], norm.inputs[0]});
  return match;
}

Offer<Match> match_grad(const Scope& scope, std::size_t first) {
  const ComputeNode* norm = scope.node(first);
  if (!is_op(norm, OpKind::batch_norm, Pass::backward)) return Offer<Match>::refuse("not a batch norm's gradient");
  return backward_match(scope, first, 1, norm->inputs[1]);
}

Offer<Match> match_relu_grad(const Scope& scope, std::size_t first) {
  if (!is_relu_norm_grad(scope, first)) return Offer<Match>::refuse("not the gradients of relu and batch norm");
  Match match = backward_match(scope, first, 2, scope.node(first)->inputs[1]);
  if (match.inputs.size() != 6) return Offer<Match>::refuse("the batch norm's bias is unknown");
  return match;
}

Offer<Match> match_pool_relu_grad(const Scope& scope, std::size_t first) {
  if (!is_pool_relu_norm_grad(scope, first)) {
    return Offer<Match>::refuse("not the gradients of a tiling max pool, relu and batch norm");
  }
  Match match = backward_match(scope, first, 3, scope.node(first)->inputs[1]);
  if (match.inputs.size() != 6) return Offer<Match>::refuse("the batch norm's bias is unknown");
  return match;
}

/// Turns partial sums into dscale, dbias and the factors of dx.
struct GradFactors {
  const float *scale, *mean, *var_biased, *blocks;
  float *dscale, *dbias, *gain, *slope, *offset;
  std::int64_t c, block_count, rows;
  float eps;
  sync_norm::Blocks shards;

  /// The gain as the forward pass computed it, so that relu's sign is found again exactly.
  void prepare() const {
    for (std::int64_t ch = 0; ch < c; ++ch) gain[ch] = norm_gain(scale[ch], var_biased[ch], eps);
  }

  /// Also the gradients of scale and bias, which are of this shard's rows.
  void combine(std::int64_t begin, std::int64_t end) const {
    for (std::int64_t ch = begin; ch < end; ++ch) {
      Pair sums;
      for (std::int64_t b = 0; b < block_count; ++b) {
        sums.first += double{blocks[2 * b * c + ch]};
        sums.second += double{blocks[(2 * b + 1) * c + ch]};
      }
      dscale[ch] = static_cast<float>(sums.second * inverse(ch));
      dbias[ch] = static_cast<float>(sums.first);
      if (shards.shards == 1) {
        finish(ch, sums, rows);
      } else {
        keep(shards, ch, sums);
      }
    }
  }

  double inverse(std::int64_t ch) const { return 1.0 / std::sqrt(double{var_biased[ch]} + double{eps}); }

  void finish(std::int64_t ch, Pair sums, std::int64_t all_rows) const {
    const auto count = static_cast<double>(all_rows);
    const double factor = double{scale[ch]} * inverse(ch);
    slope[ch] = static_cast<float>(-factor * inverse(ch) * inverse(ch) * sums.second / count);
    offset[ch] = static_cast<float>(-factor * sums.first / count);
  }

  /// With several shards, after their blocks were gathered.
  void finish_all() const {
    sync_norm::add_sums(shards, 0, c);
    for (std::int64_t ch = 0; ch < c; ++ch) finish(ch, total(shards, ch), rows * shards.shards);
  }
};

/// The two passes over x and dy: sums of the gradients in blocks of pixel rows of the pooled image, or of pixels, then
/// dx.
template <Tail kTail>
struct GradPasses {
  static constexpr bool kPooled = kTail == Tail::relu_pool, kRelu = kTail != Tail::none;
  const float *x, *dy;
  float *dx, *blocks;
  GradFactors factors;
  BlockSplit split;
  Tiles tiles;
  Affine affine;
  AffineGrad grad;
  std::int64_t images;
  int threads;

  void sum() const {
    const Loops& loops = machine_loops();
    const std::int64_t c = factors.c;
    factors.prepare();
    parallel_ranges(threads, split.count, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b) {
        float *sum_g = blocks + 2 * b * c, *sum_gx = blocks + (2 * b + 1) * c;
        const std::int64_t from = b * split.block_rows;
        if constexpr (kPooled) {
          loops.grad_sums_tiles(x, dy, from, split.size(b), tiles, affine, sum_g, sum_gx);
        } else {
          loops.grad_sums(x + from * c, dy + from * c, split.size(b), c, affine, kRelu, sum_g, sum_gx);
        }
      }
    });
    parallel_ranges(split.count * c < kParallelElems ? 1 : threads, c,
                    [&](std::int64_t begin, std::int64_t end) { factors.combine(begin, end); });
  }

  void map() const {
    const Loops& loops = machine_loops();
    const std::int64_t c = factors.c;
    parallel_ranges(threads, kPooled ? images : factors.rows, [&](std::int64_t begin, std::int64_t end) {
      if constexpr (kPooled) {
        loops.affine_grad_tiles(x, dy, dx, begin, end - begin, tiles, affine, grad);
      } else {
        loops.affine_grad(x + begin * c, dy + begin * c, dx + begin * c, end - begin, c, affine, grad, kRelu);
      }
    });
  }
};

template <Tail kTail>
Offer<Kernel> make_backward(const Site& site) {
  using Passes = GradPasses<kTail>;
  const Shape& x = site.shape(site.match->inputs[0]);
  const std::int64_t c = x.c(), rows = x.elems() / c, images = x.n();
  Tiles tiles{};
  if constexpr (Passes::kPooled) tiles = tiles_of(x, std::get<PoolParams>(site.node(0).params));
  const BlockSplit split =
      Passes::kPooled
          ? BlockSplit(images * tiles.oh, std::max<std::int64_t>(rows_of_block(c) / (tiles.kh * tiles.w), 1))
          : BlockSplit(rows, rows_of_block(c));
  WorkspaceLayout layout;
  const std::int64_t factors_at = layout.add(3 * c * 4), blocks_at = layout.add(split.count * 2 * c * 4);
  const ComputeNode& norm = site.node(site.match->node_count - 1);
  const float eps = std::get<BatchNormParams>(norm.params).eps;
  const int shards = std::get<BatchNormParams>(norm.params).sync_shards;
  const std::int64_t shards_at = shards > 1 ? layout.add(shards * sync_norm::block_bytes(c)) : 0;
  const int threads = site.threads();
  Kernel kernel;
  kernel.workspace_bytes = layout.size_bytes();
  kernel.bind = [=, &norm](const Operands& at) -> Call {
    auto* gain = reinterpret_cast<float*>(at.workspace + factors_at);
    auto* blocks = reinterpret_cast<float*>(at.workspace + blocks_at);
    const GradFactors factors{
        at.in(2), at.in(3),     at.in(4), blocks,      at.out(1), at.out(2), gain,
        gain + c, gain + 2 * c, c,        split.count, rows,      eps,       shards_of(at, shards_at, c, shards)};
    const Affine affine{at.in(3), gain, Passes::kRelu ? at.in(5) : nullptr};
    const AffineGrad grad{at.in(3), gain, gain + c, gain + 2 * c};
    const Passes passes{at.in(0), at.in(1), at.out(0), blocks, factors, split, tiles, affine, grad, images, threads};
    if (shards == 1) {
      return [passes] {
        passes.sum();
        passes.map();
      };
    }
    return with_exchange(
        at, factors.shards, norm, threads, [passes] { passes.sum(); },
        [passes] {
          passes.factors.finish_all();
          passes.map();
        });
  };
  return kernel;
}

}  // namespace

std::vector<Implementation> norm_implementations() {
  return {{"own.norm_relu_pool", match_norm_relu_pool, make_forward<Tail::relu_pool>},
          {"own.norm_relu_add", match_norm_relu_add, make_forward<Tail::relu_add>},
          {"own.norm_relu", match_norm_relu, make_forward<Tail::relu>},
          {"own.norm", match_norm, make_forward<Tail::none>},
          {"own.norm_folded", match_inference, make_inference},
          {"own.pool_relu_norm_grad", match_pool_relu_grad, make_backward<Tail::relu_pool>},
          {"own.relu_norm_grad", match_relu_grad, make_backward<Tail::relu>},
          {"own.norm_grad", match_grad, make_backward<Tail::none>}};
}

}  // namespace renai::cpu
