#include "range_ops.hpp"

#include <algorithm>
#include <vector>

#include "../range_recorder.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/optimizer.hpp"
#include "kernels/range.hpp"
#include "renai/base/check.hpp"
#include "renai/base/digest.hpp"
#include "renai/graph/region_name.hpp"
#include "renai/graph/segments.hpp"
#include "renai/tensor/slot_layout.hpp"

namespace renai {
namespace {

namespace names = region_name;

static_assert(kReadBackSlots == 64 && kReadBackBytes == (names::kMetricCount + names::kScalarCount) * 4,
              "the kernel of read_back knows the ring");

/// Resolves a node's regions and enqueues its work.
class CudaRangeRecorder final : private RangeRecorder<cuda::FloatSpan> {
 public:
  CudaRangeRecorder(const BindContext& context, const RangeNode& node, CudaStream& stream, std::byte* workspace)
      : RangeRecorder(context, node, stream),
        stream_(stream),
        queue_(static_cast<cudaStream_t>(stream.native())),
        workspace_(workspace) {}

  void record() {
    switch (node_.op) {
      case RangeOp::copy_slot: return copy_slot();
      case RangeOp::zero:
      case RangeOp::clear_accumulators: return zero();
      case RangeOp::merge_shard: return merge_shard();
      case RangeOp::tree_reduce: return tree_reduce();
      case RangeOp::check_and_scale: return check_and_scale();
      case RangeOp::sgd: return sgd();
      case RangeOp::adam: return adam();
      case RangeOp::adam_corrections: return adam_corrections();
      case RangeOp::lars: return lars();
      case RangeOp::update_statistics: return update_statistics();
      case RangeOp::ema: return average();
      case RangeOp::cast_weights: return cast_weights();
      case RangeOp::fold_batch_norm: return fold_batch_norm();
      case RangeOp::accumulate: return accumulate();
      case RangeOp::reduce_accumulators: return reduce_accumulators();
      case RangeOp::read_back: return read_back();
      case RangeOp::digest: return digest();
    }
    throw InternalError("recording '" + node_.name + "'", "the operation is unknown");
  }

 private:
  void merge_shard() {
    const cuda::FloatSpan values = values_of(node_.outputs);
    const MergeTargets targets = merge_targets();
    cuda::launch(cuda::MergeShard{values.data, targets.counters, targets.micro, node_.params.micro_batches,
                                  values.elems, control()},
                 queue_);
  }

  /// The norm adds parameters in the graph's order, so that it does not depend on the borders of the buckets.
  void check_and_scale() {
    RENAI_CHECK(workspace_ != nullptr, "'" + node_.name + "' has a workspace");
    std::vector<cuda::FloatSpan> params;
    for (const ParamInfo& param : context_.graph->params()) {
      const DTensor& place = plan_.tensor(param.grad);
      if (place.placed()) params.push_back({tensor(param.grad), place.size_bytes / std::int64_t{sizeof(float)}});
    }
    const bool adam = has_second_moments(node_.params.optimizer);
    const cuda::CheckAndScale check{
        values_of(node_.inputs.at(0)), values_of(node_.inputs.at(1)), params, node_.params, scalars(), workspace_,
        adam ? control() : nullptr};
    cuda::launch(check, queue_);
  }

  void sgd() {
    const cuda::FloatSpan grad = values_of(node_.inputs.at(0)), weights = values_of(node_.inputs.at(1)),
                          momentum = values_of(node_.inputs.at(2));
    RENAI_CHECK(grad.elems == weights.elems && grad.elems == momentum.elems,
                "'" + node_.name + "': gradient, weights and momentum have equal layouts");
    cuda::launch(cuda::Sgd{grad.data, weights.data, momentum.data, grad.elems, node_.params, control(), scalars()},
                 queue_);
  }

  void adam() {
    const cuda::FloatSpan grad = values_of(node_.inputs.at(0)), weights = values_of(node_.inputs.at(1)),
                          momentum = values_of(node_.inputs.at(2)), second_moment = values_of(node_.inputs.at(3));
    RENAI_CHECK(grad.elems == weights.elems && grad.elems == momentum.elems && grad.elems == second_moment.elems,
                "'" + node_.name + "': gradient, weights and moments have equal layouts");
    cuda::launch(cuda::Adam{grad.data, weights.data, momentum.data, second_moment.data, grad.elems, node_.params,
                            control(), scalars()},
                 queue_);
  }

  void adam_corrections() { cuda::launch(cuda::AdamCount{node_.params, control(), scalars()}, queue_); }

  void lars() {
    RENAI_CHECK(workspace_ != nullptr, "'" + node_.name + "' has a workspace");
    std::vector<cuda::LarsTensor> tensors;
    for (const ParamInfo* param : params_of(node_.inputs.at(1))) {
      tensors.push_back(
          {tensor(param->grad), tensor(param->weight), tensor(param->momentum), stored_elems(param->weight)});
    }
    RENAI_CHECK(!tensors.empty(), "'" + node_.name + "' has tensors");
    cuda::launch(cuda::Lars{tensors, node_.params, control(), scalars(), workspace_}, queue_);
  }

  void update_statistics() {
    std::vector<cuda::RunningPair> pairs;
    for (const NormInfo& norm : context_.graph->norms()) {
      const std::int64_t channels = plan_.tensor(norm.running_mean).shape.elems();
      pairs.push_back({tensor(norm.running_mean), tensor(norm.batch_mean), channels, norm.momentum});
      pairs.push_back({tensor(norm.running_var), tensor(norm.batch_var), channels, norm.momentum});
    }
    cuda::launch_update_statistics(pairs, node_.params.logical_shards * node_.params.micro_batches, scalars(), queue_);
  }

  void average() {
    for (std::size_t i = 0; i < node_.outputs.size(); ++i) {
      const cuda::FloatSpan values = values_of(node_.inputs.at(i)), averages = values_of(node_.outputs[i]);
      RENAI_CHECK(values.elems == averages.elems, "'" + node_.name + "': values and averages have equal layouts");
      cuda::launch(
          cuda::Average{values.data, averages.data, values.elems, node_.params.ema_decay, control(), scalars()},
          queue_);
    }
  }

  void cast_weights() {
    const cuda::FloatSpan weights = values_of(node_.inputs.at(0));
    const Region& half = region(node_.outputs.at(0));
    RENAI_CHECK(half.size_bytes >= 2 * weights.elems, "'" + node_.name + "' has room for half weights");
    cuda::launch_cast(weights.data, context_.at(half), weights.elems, context_.book->half_dtype, queue_);
  }

  void fold_batch_norm() {
    std::vector<cuda::FoldedNorm> folds;
    for (const FoldTensors& fold : folds_of_node()) {
      folds.push_back({tensor(fold.mean), tensor(fold.var), tensor(fold.scale), tensor(fold.bias),
                       tensor(fold.folded_scale), tensor(fold.folded_bias), plan_.tensor(fold.mean).shape.elems(),
                       fold.eps});
    }
    cuda::launch_fold_batch_norm(folds, queue_);
  }

  /// Training sums leave out skipped steps, whose loss may not be a number.
  void accumulate() {
    auto* sums = reinterpret_cast<double*>(at(node_.outputs.at(0)));
    cuda::launch_accumulate(values_of(node_.inputs.at(0)).data, sums, node_.params.logical_shards, control(), scalars(),
                            queue_);
  }

  void reduce_accumulators() {
    const Region& accumulators = region(node_.outputs.at(0));
    auto* sums = reinterpret_cast<double*>(context_.at(accumulators));
    double* entries = sums + names::kAccumulatorShards;
    const int shards = node_.params.logical_shards;
    RENAI_CHECK(accumulators.size_bytes >= (names::kAccumulatorShards + std::int64_t{4} * shards) * 8,
                "the accumulators have an entry for each shard");
    if (shards > node_.params.local_shards) {
      RENAI_CHECK(context_.communicator != nullptr, "'" + node_.name + "' has a communicator");
      const std::int64_t block_bytes = node_.params.local_shards * std::int64_t{4} * 8;
      context_.communicator->all_gather(reinterpret_cast<std::byte*>(entries), block_bytes, stream_,
                                        "validation result");
    }
    cuda::launch_tree_sum_entries(entries, shards, sums + names::kAccumulatorTotal, queue_);
  }

  /// Validation steps have no slot in the ring.
  void read_back() {
    RENAI_CHECK(context_.read_back != nullptr, "'" + node_.name + "' has a read-back ring");
    cuda::launch_read_back(values_of(node_.inputs.at(0)).data, scalars(), context_.read_back, control(), queue_);
  }

  bool inside_inputs(const DTensor& place) const {
    return std::any_of(node_.inputs.begin(), node_.inputs.end(), [&](const std::string& name) {
      const Region& interval = region(name);
      return place.offset_bytes >= interval.offset_bytes &&
             place.offset_bytes + place.size_bytes <= interval.offset_bytes + interval.size_bytes;
    });
  }

  void digest() {
    std::vector<cuda::DigestItem> items;
    for (const TensorId id : digest_tensors(*context_.graph)) {
      const DTensor& place = plan_.tensor(id);
      if (!place.placed() || !inside_inputs(place)) continue;
      const std::int64_t last = place.shape.rank() > 0 ? place.shape[place.shape.rank() - 1] : 1;
      const bool padded = place.padded_c > last;
      const std::int64_t rows = padded ? place.shape.elems() / last : 1;
      items.push_back({tensor(id), rows, place.shape.elems() / rows, padded ? place.padded_c : 0});
    }
    const Region& digests = region(node_.outputs.at(0));
    RENAI_CHECK(static_cast<std::int64_t>(items.size() * sizeof(Digest128)) <= digests.size_bytes,
                "the digests fit their region");
    cuda::launch_digest(items, context_.at(digests), queue_);
  }

  CudaStream& stream_;
  cudaStream_t queue_;
  std::byte* workspace_;
};

}  // namespace

std::string cuda_range_kernel_name(const RangeNode& node) { return "cuda." + std::string(range_op_name(node.op)); }

std::int64_t cuda_range_workspace_bytes(const ComputationGraph& graph, const RangeNode& node,
                                        const ShapeTable& shapes) {
  const auto most_elems = [&](const ParamInfo& param) {
    const auto id = static_cast<std::size_t>(param.grad);
    std::int64_t most = 0;
    for (const std::vector<Shape>& row : shapes) {
      if (row[id].rank() > 0) most = std::max(most, row[id].elems());
    }
    return most;
  };
  if (node.op == RangeOp::lars) {
    std::vector<cuda::LarsTensor> tensors;
    for (const Segment& segment : parameter_segments(graph)) {
      if (region_name::child(region_name::kWeights, segment.name) != node.inputs.at(1)) continue;
      for (const std::int32_t param : segment.params) {
        tensors.push_back({nullptr, nullptr, nullptr, most_elems(graph.params()[static_cast<std::size_t>(param)])});
      }
    }
    return cuda::lars_workspace_bytes(tensors);
  }
  if (node.op != RangeOp::check_and_scale) return 0;
  std::vector<cuda::FloatSpan> params;
  for (const ParamInfo& param : graph.params()) params.push_back({nullptr, most_elems(param)});
  cuda::CheckAndScale check;
  check.params = params;
  return cuda::check_and_scale_workspace_bytes(check);
}

void record_cuda_range_node(const BindContext& context, const RangeNode& node, CudaStream& stream,
                            std::byte* workspace) {
  CudaRangeRecorder(context, node, stream, workspace).record();
}

}  // namespace renai
