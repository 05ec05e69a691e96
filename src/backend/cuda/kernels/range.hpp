#pragma once
// RANGE operations: one launch for a whole region of f32 values. Semantics: RangeOp in renai/graph/op.hpp.
// Step-dependent values are read from device memory, so one captured launch serves every step. Values begin at 16-byte
// addresses, as every slot of a plan does.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "renai/graph/op.hpp"
#include "renai/tensor/dtype.hpp"
#include "renai/tensor/slot_layout.hpp"

namespace renai::cuda {

/// `values` plus the counters below the first zero bit of control.local_shard go to that bit's counter, or back to
/// `values` at the last local shard. With several micro-batches, `values` and their sum so far go to `micro` instead,
/// all but the last one's.
struct MergeShard {
  float* values = nullptr;
  std::span<float* const> counters;
  float* micro = nullptr;  ///< Null: one micro-batch.
  int micro_batches = 1;
  std::int64_t elems = 0;
  const ControlBlock* control = nullptr;
};
void launch(const MergeShard& merge, cudaStream_t stream);

/// An interval of f32 values.
struct FloatSpan {
  float* data = nullptr;
  std::int64_t elems = 0;
};

/// Scales the gradient by 1 / (shards * loss scale), finds non-finite values, takes the norm over `params` (in order),
/// clips, decides a skip, grows or shrinks the loss scale, and takes Adam's bias corrections. `params` are all of
/// `grad` but for the gaps between slots, which hold zeros. Determinism: fp64 sums over blocks of constant size within
/// each parameter, in order.
struct CheckAndScale {
  FloatSpan grad, metrics;
  std::span<const FloatSpan> params;
  RangeParams range;
  float* scalars = nullptr;
  std::byte* workspace = nullptr;
  const ControlBlock* control = nullptr;  ///< Read with Adam and AdamW only.
};
std::int64_t check_and_scale_workspace_bytes(const CheckAndScale& check);
void launch(const CheckAndScale& check, cudaStream_t stream);

/// Counts an update of a freeze group and takes Adam's corrections of it, as check_and_scale does for the run.
struct AdamCount {
  RangeParams range;
  const ControlBlock* control = nullptr;
  float* scalars = nullptr;
};
void launch(const AdamCount& count, cudaStream_t stream);

struct Sgd {
  const float* grad = nullptr;
  float *weights = nullptr, *momentum = nullptr;
  std::int64_t elems = 0;
  RangeParams range;
  const ControlBlock* control = nullptr;
  const float* scalars = nullptr;
};
void launch(const Sgd& sgd, cudaStream_t stream);

/// averages = decay * averages + (1 - decay) * values; the values themselves in the first update, which is the step
/// before which all steps were skipped.
struct Average {
  const float* values = nullptr;
  float* averages = nullptr;
  std::int64_t elems = 0;
  double decay = 0;
  const ControlBlock* control = nullptr;
  const float* scalars = nullptr;
};
void launch(const Average& average, cudaStream_t stream);

struct RunningPair {
  float* running = nullptr;
  const float* batch_sum = nullptr;
  std::int64_t elems = 0;
  float momentum = 0;
};
void launch_update_statistics(std::span<const RunningPair> pairs, int shards, const float* scalars,
                              cudaStream_t stream);

struct FoldedNorm {
  const float *mean = nullptr, *var = nullptr, *scale = nullptr, *bias = nullptr;
  float *folded_scale = nullptr, *folded_bias = nullptr;
  std::int64_t channels = 0;
  float eps = 0;
};
void launch_fold_batch_norm(std::span<const FoldedNorm> norms, cudaStream_t stream);

void launch_accumulate(const float* metrics, double* sums, int shards, const ControlBlock* control,
                       const float* scalars, cudaStream_t stream);
void launch_tree_sum_entries(const double* entries, int count, double* total, cudaStream_t stream);
/// `ring` is pinned host memory.
void launch_read_back(const float* metrics, const float* scalars, std::byte* ring, const ControlBlock* control,
                      cudaStream_t stream);

/// One tensor: rows of row_elems values, row_stride apart (0: dense).
struct DigestItem {
  const float* data = nullptr;
  std::int64_t rows = 0, row_elems = 0, row_stride = 0;
};
/// out: Digest128 for each item. Integer sums: any order of threads gives the same bits.
void launch_digest(std::span<const DigestItem> items, std::byte* out, cudaStream_t stream);

}  // namespace renai::cuda
