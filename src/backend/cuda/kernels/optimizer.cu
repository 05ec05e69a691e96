#include <algorithm>

#include "optimizer.hpp"
#include "renai/graph/region_name.hpp"
#include "values.cuh"

namespace renai::cuda {
namespace {

namespace names = region_name;

constexpr int kThreads = 256;

// --- adam ---

/// As host_range::AdamStep but for what only the device knows.
struct AdamStep {
  float step_size, correction;
  float beta1, beta2, rest1, rest2, eps, l2, keep;
};

struct AdamArgs {
  const float* grad;
  float *weights, *momentum, *second_moment;
  std::int64_t elems;
  AdamStep step;
  float decoupled_decay;
  const ControlBlock* control;
  const float* scalars;
  const float* corrections;  ///< Step size and correction of the freeze group.
};

__device__ void step_element(float grad, float& weight, float& momentum, float& second_moment, const AdamStep& step) {
  const float g = __fadd_rn(grad, __fmul_rn(step.l2, weight));
  const float w = __fmul_rn(weight, step.keep);
  momentum = __fadd_rn(__fmul_rn(step.beta1, momentum), __fmul_rn(step.rest1, g));
  second_moment = __fadd_rn(__fmul_rn(step.beta2, second_moment), __fmul_rn(__fmul_rn(step.rest2, g), g));
  const float denominator = __fadd_rn(__fdiv_rn(__fsqrt_rn(second_moment), step.correction), step.eps);
  weight = __fsub_rn(w, __fdiv_rn(__fmul_rn(step.step_size, momentum), denominator));
}

/// One thread for four elements, the last one for the tail.
__global__ void __launch_bounds__(kThreads) adam_range(AdamArgs args) {
  if (args.scalars[names::kScalarSkip] != 0.0f) return;
  AdamStep step = args.step;
  step.step_size = args.corrections[0];
  step.correction = args.corrections[1];
  const double decay = __dmul_rn(static_cast<double>(args.control->lr), static_cast<double>(args.decoupled_decay));
  step.keep = static_cast<float>(__dsub_rn(1.0, decay));
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < args.elems / 4) {
    const float4 grad = reinterpret_cast<const float4*>(args.grad)[i];
    float4 weights = reinterpret_cast<float4*>(args.weights)[i];
    float4 momentum = reinterpret_cast<float4*>(args.momentum)[i];
    float4 second = reinterpret_cast<float4*>(args.second_moment)[i];
    step_element(grad.x, weights.x, momentum.x, second.x, step);
    step_element(grad.y, weights.y, momentum.y, second.y, step);
    step_element(grad.z, weights.z, momentum.z, second.z, step);
    step_element(grad.w, weights.w, momentum.w, second.w, step);
    reinterpret_cast<float4*>(args.weights)[i] = weights;
    reinterpret_cast<float4*>(args.momentum)[i] = momentum;
    reinterpret_cast<float4*>(args.second_moment)[i] = second;
  } else if (i == args.elems / 4) {
    for (std::int64_t k = args.elems / 4 * 4; k < args.elems; ++k) {
      step_element(args.grad[k], args.weights[k], args.momentum[k], args.second_moment[k], step);
    }
  }
}

// --- lars ---

constexpr std::int64_t kTileElems = 4096;  ///< A block's share of one tensor.
constexpr int kWordsOfThread = static_cast<int>(kTileElems / 4 / kThreads);

/// Sums of squares of a tile of the weights and of the gradient.
struct Squares {
  double weights, grad;
};

struct LarsTable {
  static constexpr int kMost = 96;
  struct Entry {
    const float* grad;
    float *weights, *momentum;
    std::uint32_t elems, first_tile;
  };
  Entry entries[kMost];
  int count;
  std::uint32_t tiles;
  Squares* squares;  ///< By tile of this table.
  float* rates;      ///< By entry of this table.
  float momentum, decay, eta, eps;
  bool nesterov;
  const ControlBlock* control;
  const float* scalars;
};
static_assert(sizeof(LarsTable) <= 4096);

__device__ double square(float value) { return static_cast<double>(value) * static_cast<double>(value); }
__device__ double squares_of(float4 values) {
  return (square(values.x) + square(values.y)) + (square(values.z) + square(values.w));
}

/// What a block works on: a tile of one entry.
struct Tile {
  const LarsTable::Entry* entry;
  int index;           ///< Of the entry.
  std::int64_t first;  ///< Element of the tensor.
  std::int64_t elems;
};
__device__ Tile tile_of_block(const LarsTable& table) {
  const int index = last_at_or_before(table.entries, table.count, blockIdx.x);
  const LarsTable::Entry& entry = table.entries[index];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x - entry.first_tile) * kTileElems;
  return {&entry, index, first, min(kTileElems, entry.elems - first)};
}

__global__ void __launch_bounds__(kThreads) lars_squares(LarsTable table) {
  __shared__ double shared[2][kWarp];
  const Tile tile = tile_of_block(table);
  const float* const weights = tile.entry->weights + tile.first;
  const float* const grad = tile.entry->grad + tile.first;
  Squares sums{0, 0};
#pragma unroll
  for (int k = 0; k < kWordsOfThread; ++k) {
    const int word = k * kThreads + static_cast<int>(threadIdx.x);
    if (4 * word + 4 > tile.elems) continue;
    sums.weights += squares_of(reinterpret_cast<const float4*>(weights)[word]);
    sums.grad += squares_of(reinterpret_cast<const float4*>(grad)[word]);
  }
  const std::int64_t tail = tile.elems / 4 * 4 + threadIdx.x;
  if (tail < tile.elems) {
    sums.weights += square(weights[tail]);
    sums.grad += square(grad[tail]);
  }
  sums.weights = combine_block<kThreads>(sums.weights, Sum{}, shared[0]);
  sums.grad = combine_block<kThreads>(sums.grad, Sum{}, shared[1]);
  if (threadIdx.x == 0) table.squares[blockIdx.x] = sums;
}

/// One block for each tensor: its tiles, each thread every kThreads-th in rising order, then one tree.
__global__ void __launch_bounds__(kThreads) lars_rates(LarsTable table) {
  __shared__ double shared[2][kWarp];
  const auto index = static_cast<int>(blockIdx.x);
  const std::uint32_t first = table.entries[index].first_tile;
  const std::uint32_t end = index + 1 < table.count ? table.entries[index + 1].first_tile : table.tiles;
  Squares sums{0, 0};
  for (std::uint32_t tile = first + threadIdx.x; tile < end; tile += kThreads) {
    sums.weights += table.squares[tile].weights;
    sums.grad += table.squares[tile].grad;
  }
  sums.weights = combine_block<kThreads>(sums.weights, Sum{}, shared[0]);
  sums.grad = combine_block<kThreads>(sums.grad, Sum{}, shared[1]);
  if (threadIdx.x != 0) return;
  const float lr = table.control->lr;
  const double weight_norm = __dsqrt_rn(sums.weights), grad_norm = __dsqrt_rn(sums.grad);
  float rate = lr;
  if (weight_norm != 0.0 && grad_norm != 0.0) {
    const double decayed = __dmul_rn(static_cast<double>(table.decay), weight_norm);
    const double denominator = __dadd_rn(__dadd_rn(grad_norm, decayed), static_cast<double>(table.eps));
    const double local = __ddiv_rn(__dmul_rn(static_cast<double>(table.eta), weight_norm), denominator);
    rate = static_cast<float>(__dmul_rn(static_cast<double>(lr), local));
  }
  table.rates[index] = rate;
}

__device__ void step_element(float grad, float& weight, float& momentum, float rate, const LarsTable& table) {
  const float u = __fmul_rn(rate, __fadd_rn(grad, __fmul_rn(table.decay, weight)));
  momentum = __fadd_rn(__fmul_rn(table.momentum, momentum), u);
  weight = __fsub_rn(weight, table.nesterov ? __fadd_rn(u, __fmul_rn(table.momentum, momentum)) : momentum);
}

__global__ void __launch_bounds__(kThreads) lars_update(LarsTable table) {
  if (table.scalars[names::kScalarSkip] != 0.0f) return;
  const Tile tile = tile_of_block(table);
  const float rate = table.rates[tile.index];
  const float* const grad = tile.entry->grad + tile.first;
  float* const weights = tile.entry->weights + tile.first;
  float* const momentum = tile.entry->momentum + tile.first;
#pragma unroll
  for (int k = 0; k < kWordsOfThread; ++k) {
    const int word = k * kThreads + static_cast<int>(threadIdx.x);
    if (4 * word + 4 > tile.elems) continue;
    const float4 g = reinterpret_cast<const float4*>(grad)[word];
    float4 w = reinterpret_cast<float4*>(weights)[word], m = reinterpret_cast<float4*>(momentum)[word];
    step_element(g.x, w.x, m.x, rate, table);
    step_element(g.y, w.y, m.y, rate, table);
    step_element(g.z, w.z, m.z, rate, table);
    step_element(g.w, w.w, m.w, rate, table);
    reinterpret_cast<float4*>(weights)[word] = w;
    reinterpret_cast<float4*>(momentum)[word] = m;
  }
  const std::int64_t tail = tile.elems / 4 * 4 + threadIdx.x;
  if (tail < tile.elems) step_element(grad[tail], weights[tail], momentum[tail], rate, table);
}

std::int64_t tiles_of(std::int64_t elems) { return (elems + kTileElems - 1) / kTileElems; }

std::int64_t tiles_of(std::span<const LarsTensor> tensors) {
  std::int64_t tiles = 0;
  for (const LarsTensor& tensor : tensors) tiles += tiles_of(tensor.elems);
  return tiles;
}

LarsTable make_table(const Lars& lars, std::span<const LarsTensor> tensors) {
  LarsTable table{};
  table.momentum = lars.range.momentum;
  table.decay = lars.range.weight_decay;
  table.eta = lars.range.lars.eta;
  table.eps = lars.range.lars.eps;
  table.nesterov = lars.range.nesterov;
  table.control = lars.control;
  table.scalars = lars.scalars;
  for (const LarsTensor& tensor : tensors) {
    if (tensor.elems == 0) continue;
    RENAI_CHECK(tensor.elems < (std::int64_t{1} << 32), "a parameter has less than 2^32 elements");
    require_aligned(tensor.grad, "a gradient");
    require_aligned(tensor.weights, "a weight");
    require_aligned(tensor.momentum, "a momentum");
    table.entries[table.count++] = {tensor.grad, tensor.weights, tensor.momentum,
                                    static_cast<std::uint32_t>(tensor.elems), table.tiles};
    table.tiles += static_cast<std::uint32_t>(tiles_of(tensor.elems));
  }
  return table;
}

}  // namespace

void launch(const Adam& update, cudaStream_t stream) {
  if (update.elems == 0) return;
  require_aligned(update.grad, "the gradient");
  require_aligned(update.weights, "the weights");
  require_aligned(update.momentum, "the momentum");
  require_aligned(update.second_moment, "the second moment");
  const RangeParams& range = update.range;
  const bool decoupled = range.optimizer == OptimizerKind::adamw;
  AdamStep step{};
  step.beta1 = static_cast<float>(range.adam.beta1);
  step.beta2 = static_cast<float>(range.adam.beta2);
  step.rest1 = static_cast<float>(1.0 - range.adam.beta1);
  step.rest2 = static_cast<float>(1.0 - range.adam.beta2);
  step.eps = range.adam.eps;
  step.l2 = decoupled ? 0.0f : range.weight_decay;
  const AdamArgs args{update.grad,
                      update.weights,
                      update.momentum,
                      update.second_moment,
                      update.elems,
                      step,
                      decoupled ? range.weight_decay : 0.0f,
                      update.control,
                      update.scalars,
                      update.scalars + names::adam_scalars(range.freeze_group) + 1};
  adam_range<<<block_count(update.elems / 4 + 1, kThreads), kThreads, 0, stream>>>(args);
  check_launch("adam");
}

std::int64_t lars_workspace_bytes(std::span<const LarsTensor> tensors) {
  return tiles_of(tensors) * std::int64_t{sizeof(Squares)} +
         static_cast<std::int64_t>(tensors.size()) * std::int64_t{sizeof(float)};
}

void launch(const Lars& lars, cudaStream_t stream) {
  RENAI_CHECK(lars.workspace != nullptr, "lars has a workspace");
  require_aligned(lars.workspace, "the workspace of lars");
  auto* squares = reinterpret_cast<Squares*>(lars.workspace);
  auto* rates = reinterpret_cast<float*>(squares + tiles_of(lars.tensors));
  for (std::size_t first = 0; first < lars.tensors.size(); first += LarsTable::kMost) {
    const auto chunk =
        lars.tensors.subspan(first, std::min<std::size_t>(LarsTable::kMost, lars.tensors.size() - first));
    LarsTable table = make_table(lars, chunk);
    if (table.count == 0) continue;
    table.squares = squares;
    table.rates = rates;
    const unsigned tiles = block_count(table.tiles, 1), tensors = block_count(table.count, 1);
    lars_squares<<<tiles, kThreads, 0, stream>>>(table);
    check_launch("lars norms");
    lars_rates<<<tensors, kThreads, 0, stream>>>(table);
    check_launch("lars rates");
    lars_update<<<tiles, kThreads, 0, stream>>>(table);
    check_launch("lars");
    squares += table.tiles;
    rates += table.count;
  }
}

}  // namespace renai::cuda
