#include "loss.hpp"
#include "renai/graph/region_name.hpp"
#include "values.cuh"

namespace renai::cuda {
namespace {

constexpr int kSumThreads = 256;
constexpr int kRowValues = 4;  ///< weight * loss, weight, weight * top-1 hit, weight * top-5 hit

/// What a block finds out about its row.
struct RowSums {
  float top = 0, log_sum = 0;  ///< Largest logit; log of the sum of exp(z - top).
  float below = 0;             ///< Sum of z - top.
  int rank = 0;                ///< Classes that rank before the label.
};

/// Greater logits rank before the label, and equal ones of lower index; what is not a number ranks before everything.
__device__ bool ranks_before(float z, std::int64_t k, float label_z, std::int64_t label) {
  const bool behind = z < label_z || (z == label_z && k > label);
  return k != label && !behind;
}

template <typename T, int kThreads>
__device__ RowSums sum_row(const T* z, std::int64_t classes, std::int64_t label) {
  __shared__ float tops[kWarp], exps[kWarp], belows[kWarp];
  __shared__ int ranks[kWarp];
  const float label_z = to_float(z[label]);
  float top = -INFINITY;
  int rank = 0;
  for (std::int64_t k = threadIdx.x; k < classes; k += kThreads) {
    const float value = to_float(z[k]);
    top = fmaxf(top, value);
    rank += ranks_before(value, k, label_z, label) ? 1 : 0;
  }
  RowSums sums;
  sums.top = combine_block<kThreads>(top, Largest{}, tops);
  sums.rank = combine_block<kThreads>(rank, Sum{}, ranks);
  float exp_sum = 0, below = 0;
  for (std::int64_t k = threadIdx.x; k < classes; k += kThreads) {
    const float distance = to_float(z[k]) - sums.top;
    exp_sum += expf(distance);
    below += distance;
  }
  sums.log_sum = logf(combine_block<kThreads>(exp_sum, Sum{}, exps));
  sums.below = combine_block<kThreads>(below, Sum{}, belows);
  return sums;
}

/// One block a row.
template <typename T, int kThreads>
__global__ void __launch_bounds__(kThreads) loss_rows(SoftmaxCrossEntropy loss) {
  const std::int64_t row = blockIdx.x, classes = loss.classes;
  const T* z = static_cast<const T*>(loss.logits) + row * classes;
  const std::int64_t label = loss.labels[row], mix_label = loss.mix_labels[row];
  const bool good = label >= 0 && label < classes && mix_label >= 0 && mix_label < classes;
  const RowSums sums = sum_row<T, kThreads>(z, classes, good ? label : 0);
  const float lambda = good ? loss.mix_lambda[row] : NAN, weight = loss.weights[row];
  const float even = loss.smoothing / static_cast<float>(classes);
  if (loss.metrics != nullptr && threadIdx.x == 0) {
    const float own = sums.log_sum - (to_float(z[good ? label : 0]) - sums.top);
    const float mixed = sums.log_sum - (to_float(z[good ? mix_label : 0]) - sums.top);
    // The even part stands here without smoothing too: a logit that is not finite makes the loss not a number.
    const float value = (1.0f - loss.smoothing) * (lambda * own + (1.0f - lambda) * mixed) +
                        even * (static_cast<float>(classes) * sums.log_sum - sums.below);
    auto* out = reinterpret_cast<float4*>(loss.workspace) + row;
    const float hit = good ? weight : NAN;
    *out = make_float4(weight * value, hit, sums.rank < 1 ? hit : 0.0f, sums.rank < 5 ? hit : 0.0f);
  }
  if (loss.dlogits == nullptr) return;
  // Every thread has read the row before any writes: dlogits may be logits.
  __syncthreads();
  const float factor = loss.control != nullptr ? loss.control->loss_factor : 1.0f;
  const float scale = factor * (loss.loss_scale != nullptr ? *loss.loss_scale : 1.0f);
  const float share = weight / static_cast<float>(loss.rows) * scale;
  T* out = static_cast<T*>(loss.dlogits) + row * classes;
  for (std::int64_t k = threadIdx.x; k < classes; k += kThreads) {
    const float probability = expf(to_float(z[k]) - sums.top - sums.log_sum);
    const float hard = (k == label ? lambda : 0.0f) + (k == mix_label ? 1.0f - lambda : 0.0f);
    const float target = (1.0f - loss.smoothing) * hard + even;
    out[k] = from_float<T>(good ? share * (probability - target) : NAN);
  }
}

/// Adds the rows' values in fp64: each thread every kSumThreads-th row in rising order, then one tree.
__global__ void __launch_bounds__(kSumThreads) loss_metrics(const float4* rows, std::int64_t count, float* metrics) {
  __shared__ double shared[kRowValues][kWarp];
  double sums[kRowValues] = {0, 0, 0, 0};
  for (std::int64_t row = threadIdx.x; row < count; row += kSumThreads) {
    const float4 values = rows[row];
    sums[0] += values.x;
    sums[1] += values.y;
    sums[2] += values.z;
    sums[3] += values.w;
  }
#pragma unroll
  for (int i = 0; i < kRowValues; ++i) sums[i] = combine_block<kSumThreads>(sums[i], Sum{}, shared[i]);
  if (threadIdx.x != 0) return;
#pragma unroll
  for (int i = 0; i < region_name::kMetricCount; ++i) {
    metrics[i] = i < kRowValues ? static_cast<float>(sums[i < kRowValues ? i : 0]) : 0.0f;
  }
}

template <typename T>
void launch_rows(const SoftmaxCrossEntropy& loss, cudaStream_t stream) {
  const unsigned blocks = block_count(loss.rows, 1);
  if (loss.classes <= 32) {
    loss_rows<T, 32><<<blocks, 32, 0, stream>>>(loss);
  } else if (loss.classes <= 256) {
    loss_rows<T, 128><<<blocks, 128, 0, stream>>>(loss);
  } else {
    loss_rows<T, 256><<<blocks, 256, 0, stream>>>(loss);
  }
  check_launch("softmax_cross_entropy");
}

}  // namespace

std::int64_t loss_workspace_bytes(std::int64_t rows) { return rows * kRowValues * std::int64_t{sizeof(float)}; }

void launch(const SoftmaxCrossEntropy& loss, cudaStream_t stream) {
  RENAI_CHECK(loss.rows > 0 && loss.classes > 0, "a loss has rows and classes");
  RENAI_CHECK(loss.metrics == nullptr || loss.workspace != nullptr, "the metrics of a loss need a workspace");
  if (loss.metrics != nullptr) require_aligned(loss.workspace, "the workspace of a loss");
  with_element_type(loss.dtype, [&](auto type) { launch_rows<decltype(type)>(loss, stream); });
  if (loss.metrics == nullptr) return;
  loss_metrics<<<1, kSumThreads, 0, stream>>>(reinterpret_cast<const float4*>(loss.workspace), loss.rows, loss.metrics);
  check_launch("loss_metrics");
}

}  // namespace renai::cuda
