#include <algorithm>

#include "range.hpp"
#include "renai/graph/region_name.hpp"
#include "values.cuh"

namespace renai::cuda {
namespace {

namespace names = region_name;

constexpr int kThreads = 256;
/// Parameter tables go to kernels by value: at most 4 KB each.
constexpr std::size_t kMostParameterBytes = 4096;
/// Read-back ring, as in backend.hpp: 64 slots of 16 metrics and 16 scalars.
constexpr std::int64_t kRingSlots = 64;

/// Elements as 16-byte words and a tail shorter than a word; one thread a word, the tail in one thread of its own.
struct Split {
  std::int64_t words, tail;
};
Split split(std::int64_t elems) { return {elems / 4, elems % 4}; }
unsigned blocks_of(const Split& parts) { return block_count(parts.words + (parts.tail > 0 ? 1 : 0), kThreads); }

__device__ std::int64_t thread_index() { return static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; }

// --- merge_shard ---

constexpr int kMostLevels = 16;
struct Merge {
  float* values;
  float* counters[kMostLevels];
  int levels;
  float* micro;
  int micro_batches;
  Split parts;
  const ControlBlock* control;
};

__device__ float4 sum_of(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }
__device__ float sum_of(float a, float b) { return a + b; }
__device__ void set_nan(float4& value) { value = make_float4(NAN, NAN, NAN, NAN); }
__device__ void set_nan(float& value) { value = NAN; }

/// Where a merge goes, decided by the control block.
struct MergeRoute {
  float* target;
  int carries;
  bool adds_micro, good;
};

/// A shard or micro-batch that has no place gives values that are not numbers: the step is skipped.
__device__ MergeRoute route_of(const Merge& merge) {
  const std::int32_t local = merge.control->local_shard, micro = merge.control->micro_batch;
  const bool last = micro + 1 == merge.micro_batches;
  const int carries = last ? __ffs(~local) - 1 : 0;
  const bool good = local >= 0 && carries >= 0 && carries <= merge.levels && micro >= 0 && micro < merge.micro_batches;
  float* const counted = good && carries < merge.levels ? merge.counters[carries] : merge.values;
  return {!good || last ? counted : merge.micro, carries, merge.micro != nullptr && micro > 0, good};
}

template <typename T>
__device__ void merge_element(const Merge& merge, const MergeRoute& route, std::int64_t i) {
  T sum = reinterpret_cast<const T*>(merge.values)[i];
  if (route.good && route.adds_micro) sum = sum_of(reinterpret_cast<const T*>(merge.micro)[i], sum);
  for (int level = 0; route.good && level < route.carries; ++level) {
    sum = sum_of(sum, reinterpret_cast<const T*>(merge.counters[level])[i]);
  }
  if (!route.good) set_nan(sum);
  reinterpret_cast<T*>(route.target)[i] = sum;
}

__global__ void __launch_bounds__(kThreads) merge_shard(Merge merge) {
  const MergeRoute route = route_of(merge);
  const std::int64_t i = thread_index();
  if (i < merge.parts.words) {
    merge_element<float4>(merge, route, i);
  } else if (i == merge.parts.words) {
    for (std::int64_t k = 4 * merge.parts.words; k < 4 * merge.parts.words + merge.parts.tail; ++k) {
      merge_element<float>(merge, route, k);
    }
  }
}

// --- sgd ---

struct SgdStep {
  float lr, momentum, decay;
  bool nesterov;
};

/// The products and sums of host_range::sgd, each rounded on its own: the same bits as there.
__device__ void step_element(float grad, float& weight, float& momentum, const SgdStep& step) {
  const float g = __fadd_rn(grad, __fmul_rn(step.decay, weight));
  momentum = __fadd_rn(__fmul_rn(step.momentum, momentum), g);
  const float direction = step.nesterov ? __fadd_rn(g, __fmul_rn(step.momentum, momentum)) : momentum;
  weight = __fsub_rn(weight, __fmul_rn(step.lr, direction));
}

struct SgdArgs {
  const float* grad;
  float *weights, *momentum;
  Split parts;
  SgdStep step;
  const ControlBlock* control;
  const float* scalars;
};

__global__ void __launch_bounds__(kThreads) sgd(SgdArgs args) {
  if (args.scalars[names::kScalarSkip] != 0.0f) return;
  SgdStep step = args.step;
  step.lr = args.control->lr;
  const std::int64_t i = thread_index();
  if (i < args.parts.words) {
    const float4 grad = reinterpret_cast<const float4*>(args.grad)[i];
    float4 weights = reinterpret_cast<float4*>(args.weights)[i];
    float4 momentum = reinterpret_cast<float4*>(args.momentum)[i];
    step_element(grad.x, weights.x, momentum.x, step);
    step_element(grad.y, weights.y, momentum.y, step);
    step_element(grad.z, weights.z, momentum.z, step);
    step_element(grad.w, weights.w, momentum.w, step);
    reinterpret_cast<float4*>(args.weights)[i] = weights;
    reinterpret_cast<float4*>(args.momentum)[i] = momentum;
  } else if (i == args.parts.words) {
    for (std::int64_t k = 4 * args.parts.words; k < 4 * args.parts.words + args.parts.tail; ++k) {
      step_element(args.grad[k], args.weights[k], args.momentum[k], step);
    }
  }
}

// --- exponential average ---

struct AverageArgs {
  const float* values;
  float* averages;
  Split parts;
  float keep, share;
  const ControlBlock* control;
  const float* scalars;
};

/// Rounded as host_range::average.
__device__ float average_element(float average, float value, const AverageArgs& args) {
  return __fadd_rn(__fmul_rn(args.keep, average), __fmul_rn(args.share, value));
}

__global__ void __launch_bounds__(kThreads) average(AverageArgs args) {
  if (args.scalars[names::kScalarSkip] != 0.0f) return;
  const bool first = args.control->step == static_cast<std::int64_t>(args.scalars[names::kScalarSkippedSteps]);
  const std::int64_t i = thread_index();
  if (i < args.parts.words) {
    const float4 value = reinterpret_cast<const float4*>(args.values)[i];
    float4 sum = value;
    if (!first) {
      const float4 old = reinterpret_cast<const float4*>(args.averages)[i];
      sum = make_float4(average_element(old.x, value.x, args), average_element(old.y, value.y, args),
                        average_element(old.z, value.z, args), average_element(old.w, value.w, args));
    }
    reinterpret_cast<float4*>(args.averages)[i] = sum;
  } else if (i == args.parts.words) {
    for (std::int64_t k = 4 * args.parts.words; k < 4 * args.parts.words + args.parts.tail; ++k) {
      args.averages[k] = first ? args.values[k] : average_element(args.averages[k], args.values[k], args);
    }
  }
}

// --- batch norm statistics ---

struct PairTable {
  static constexpr int kMost = 120;
  struct Entry {
    float* running;
    const float* batch_sum;
    std::int32_t elems;
    float momentum;
  };
  Entry entries[kMost];
  int shards;
  const float* scalars;
};
static_assert(sizeof(PairTable) <= kMostParameterBytes);

/// Row of the grid = pair. Rounded as host_range::update_running.
__global__ void __launch_bounds__(kThreads) update_statistics(PairTable table) {
  if (table.scalars[names::kScalarSkip] != 0.0f) return;
  const PairTable::Entry& pair = table.entries[blockIdx.y];
  const std::int64_t i = thread_index();
  if (i >= pair.elems) return;
  const double momentum = pair.momentum;
  const double share = __ddiv_rn(momentum, static_cast<double>(table.shards)), keep = __dsub_rn(1.0, momentum);
  const double kept = __dmul_rn(keep, static_cast<double>(pair.running[i]));
  pair.running[i] = static_cast<float>(__dadd_rn(kept, __dmul_rn(share, static_cast<double>(pair.batch_sum[i]))));
}

struct FoldTable {
  static constexpr int kMost = 64;
  FoldedNorm entries[kMost];
};
static_assert(sizeof(FoldTable) <= kMostParameterBytes);

/// Row of the grid = norm. Rounded as host_range::fold_batch_norm.
__global__ void __launch_bounds__(kThreads) fold_batch_norm(FoldTable table) {
  const FoldedNorm& norm = table.entries[blockIdx.y];
  const std::int64_t i = thread_index();
  if (i >= norm.channels) return;
  const double deviation = __dsqrt_rn(__dadd_rn(static_cast<double>(norm.var[i]), static_cast<double>(norm.eps)));
  const double factor = __ddiv_rn(static_cast<double>(norm.scale[i]), deviation);
  norm.folded_scale[i] = static_cast<float>(factor);
  norm.folded_bias[i] = static_cast<float>(
      __dsub_rn(static_cast<double>(norm.bias[i]), __dmul_rn(static_cast<double>(norm.mean[i]), factor)));
}

// --- metrics ---

constexpr int kEntry = 4;  ///< Values of an accumulator entry.

__global__ void accumulate(const float* metrics, double* sums, int shards, const ControlBlock* control,
                           const float* scalars) {
  const bool validation = control->phase != 0;
  if (!validation && scalars[names::kScalarSkip] != 0.0f) return;
  // The count of images shows a shard out of range.
  if (validation && (control->shard < 0 || control->shard >= shards)) return;
  const std::int64_t entry = validation ? names::kAccumulatorShards + std::int64_t{kEntry} * control->shard : 0;
  sums[entry + threadIdx.x] += static_cast<double>(metrics[threadIdx.x]);
}

/// Entries merge like a binary counter, which is the balanced tree; one thread for each of the four values.
__global__ void tree_sum_entries(const double* entries, int count, double* total) {
  constexpr int kMostTreeLevels = 31;
  double levels[kMostTreeLevels];
  double carry = 0;
  for (int i = 0; i < count; ++i) {
    carry = entries[std::int64_t{kEntry} * i + threadIdx.x];
    int level = 0;
    for (; (i >> level & 1) != 0; ++level) carry = levels[level] + carry;
    levels[level] = carry;
  }
  total[threadIdx.x] = carry;
}

__global__ void read_back(const float* metrics, const float* scalars, float* ring, const ControlBlock* control) {
  if (control->phase != 0) return;
  float* slot = ring + control->step % kRingSlots * (names::kMetricCount + names::kScalarCount);
  const int i = static_cast<int>(threadIdx.x);
  slot[i] = i < names::kMetricCount ? metrics[i] : scalars[i - names::kMetricCount];
}

}  // namespace

void launch(const MergeShard& merge, cudaStream_t stream) {
  RENAI_CHECK(merge.counters.size() <= kMostLevels, "a rank has at most 65536 shards");
  RENAI_CHECK((merge.micro != nullptr) == (merge.micro_batches > 1),
              "several micro-batches have a place for their sum");
  if (merge.elems == 0) return;
  Merge args{
      merge.values,       {},           static_cast<int>(merge.counters.size()), merge.micro, merge.micro_batches,
      split(merge.elems), merge.control};
  require_aligned(merge.values, "the shard's values");
  if (merge.micro != nullptr) require_aligned(merge.micro, "the sum of micro-batches");
  for (std::size_t i = 0; i < merge.counters.size(); ++i) {
    require_aligned(merge.counters[i], "a counter");
    args.counters[i] = merge.counters[i];
  }
  merge_shard<<<blocks_of(args.parts), kThreads, 0, stream>>>(args);
  check_launch("merge_shard");
}

void launch(const Sgd& update, cudaStream_t stream) {
  if (update.elems == 0) return;
  require_aligned(update.grad, "the gradient");
  require_aligned(update.weights, "the weights");
  require_aligned(update.momentum, "the momentum");
  const SgdArgs args{update.grad,
                     update.weights,
                     update.momentum,
                     split(update.elems),
                     {0.0f, update.range.momentum, update.range.weight_decay, update.range.nesterov},
                     update.control,
                     update.scalars};
  sgd<<<blocks_of(args.parts), kThreads, 0, stream>>>(args);
  check_launch("sgd");
}

void launch(const Average& update, cudaStream_t stream) {
  if (update.elems == 0) return;
  require_aligned(update.values, "the values");
  require_aligned(update.averages, "the averages");
  const AverageArgs args{update.values,
                         update.averages,
                         split(update.elems),
                         static_cast<float>(update.decay),
                         1.0f - static_cast<float>(update.decay),
                         update.control,
                         update.scalars};
  average<<<blocks_of(args.parts), kThreads, 0, stream>>>(args);
  check_launch("ema");
}

void launch_update_statistics(std::span<const RunningPair> pairs, int shards, const float* scalars,
                              cudaStream_t stream) {
  for (std::size_t first = 0; first < pairs.size(); first += PairTable::kMost) {
    const auto chunk = pairs.subspan(first, std::min<std::size_t>(PairTable::kMost, pairs.size() - first));
    PairTable table{};
    table.shards = shards;
    table.scalars = scalars;
    std::int64_t widest = 1;
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      RENAI_CHECK(chunk[i].elems < (std::int64_t{1} << 31), "a batch norm has less than 2^31 channels");
      table.entries[i] = {chunk[i].running, chunk[i].batch_sum, static_cast<std::int32_t>(chunk[i].elems),
                          chunk[i].momentum};
      widest = std::max(widest, chunk[i].elems);
    }
    const dim3 grid(block_count(widest, kThreads), static_cast<unsigned>(chunk.size()));
    update_statistics<<<grid, kThreads, 0, stream>>>(table);
    check_launch("update_statistics");
  }
}

void launch_fold_batch_norm(std::span<const FoldedNorm> norms, cudaStream_t stream) {
  for (std::size_t first = 0; first < norms.size(); first += FoldTable::kMost) {
    const auto chunk = norms.subspan(first, std::min<std::size_t>(FoldTable::kMost, norms.size() - first));
    FoldTable table{};
    std::int64_t widest = 1;
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      table.entries[i] = chunk[i];
      widest = std::max(widest, chunk[i].channels);
    }
    const dim3 grid(block_count(widest, kThreads), static_cast<unsigned>(chunk.size()));
    fold_batch_norm<<<grid, kThreads, 0, stream>>>(table);
    check_launch("fold_batch_norm");
  }
}

void launch_accumulate(const float* metrics, double* sums, int shards, const ControlBlock* control,
                       const float* scalars, cudaStream_t stream) {
  accumulate<<<1, kEntry, 0, stream>>>(metrics, sums, shards, control, scalars);
  check_launch("accumulate");
}

void launch_tree_sum_entries(const double* entries, int count, double* total, cudaStream_t stream) {
  RENAI_CHECK(count >= 1 && (count & (count - 1)) == 0,
              "the tree over shards needs a power of two of them, not " + std::to_string(count));
  tree_sum_entries<<<1, kEntry, 0, stream>>>(entries, count, total);
  check_launch("tree_sum_entries");
}

void launch_read_back(const float* metrics, const float* scalars, std::byte* ring, const ControlBlock* control,
                      cudaStream_t stream) {
  read_back<<<1, names::kMetricCount + names::kScalarCount, 0, stream>>>(metrics, scalars,
                                                                         reinterpret_cast<float*>(ring), control);
  check_launch("read_back");
}

}  // namespace renai::cuda
