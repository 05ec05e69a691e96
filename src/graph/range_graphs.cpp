// Graphs made of RANGE nodes: what happens around forward and backward.

#include "lowering.hpp"
#include "optimizer_graphs.hpp"
#include "renai/graph/region_name.hpp"
#include "renai/graph/segments.hpp"

namespace renai::graph_detail {
namespace {

namespace region = region_name;
using Names = std::vector<std::string>;

class RangeGraphs {
 public:
  explicit RangeGraphs(ComputationGraph::Parts& parts)
      : parts_(parts), segments_(parameter_segments(parts.params, parts.deep_buckets)) {
    shard_params_.logical_shards = parts.options.logical_shards;
    shard_params_.local_shards = parts.options.logical_shards / parts.options.world_size;
    shard_params_.micro_batches = parts.options.micro_batches;
  }

  void add_all() {
    add_step_start();
    if (shard_params_.local_shards > 1 || shard_params_.micro_batches > 1) add_merges();
    if (parts_.options.world_size > 1) add_reductions();
    add_update();
    add_metrics();
    add_digest();
  }

 private:
  bool has_norms() const { return !parts_.norms.empty(); }

  void add(GraphId id, RangeOp op, Names inputs, Names outputs, RangeParams params = {}, int part = 0) {
    std::string name(range_op_name(op));
    if (!outputs.empty()) name += "." + outputs[0];
    Node node;
    node.work = RangeNode{std::move(name), op, params, std::move(inputs), std::move(outputs)};
    node.part = part;
    nodes_of(parts_, id).push_back(std::move(node));
  }

  std::string deep_bucket(int bucket) const {
    return region::child(region::kGrad, bucket_name(bucket, parts_.deep_buckets));
  }

  /// Values that the first layer's graphs carry: its gradient, if it has parameters, and the step metrics.
  Names first_values() const {
    Names values;
    if (!segments_.empty() && segments_.back().bucket_index == parts_.deep_buckets) {
      values.push_back(region::child(region::kGrad, segments_.back().bucket));
    }
    values.emplace_back(region::kMetrics);
    return values;
  }

  void add_step_start() {
    add(GraphId::TRANSFER_A, RangeOp::copy_slot, {}, {std::string(region::kSlotA)});
    add(GraphId::TRANSFER_B, RangeOp::copy_slot, {}, {std::string(region::kSlotB)});
    add(GraphId::ZERO_GRAD, RangeOp::zero, {}, {std::string(region::kShardValues)});
  }

  void add_merge(GraphId id, const Names& values, int part) {
    Names inputs = values;
    for (int level = 0; (1 << level) < shard_params_.local_shards; ++level) inputs.push_back(region::counter(level));
    if (shard_params_.micro_batches > 1) inputs.emplace_back(region::kMicro);
    add(id, RangeOp::merge_shard, std::move(inputs), values, shard_params_, part);
  }

  void add_merges() {
    for (int bucket = 0; bucket < parts_.deep_buckets; ++bucket) {
      add_merge(GraphId::CAST_DEEP_GRAD, {deep_bucket(bucket)}, bucket);
    }
    Names values = first_values();
    if (has_norms()) values.emplace_back(region::kBnBatch);
    add_merge(GraphId::CAST_FIRST_GRAD, values, 0);
  }

  void add_reductions() {
    for (int bucket = 0; bucket < parts_.deep_buckets; ++bucket) {
      add(GraphId::DEEP_COMM, RangeOp::tree_reduce, {deep_bucket(bucket)}, {deep_bucket(bucket)}, shard_params_,
          bucket);
    }
    add(GraphId::FIRST_COMM, RangeOp::tree_reduce, first_values(), first_values(), shard_params_);
    const std::string batch(region::kBnBatch);
    if (has_norms()) add(GraphId::STATS_COMM, RangeOp::tree_reduce, {batch}, {batch}, shard_params_);
  }

  void add_update() {
    const std::string grad(region::kGrad), scalars(region::kScalars), metrics(region::kMetrics);
    RangeParams scaling = shard_params_;
    scaling.clip_norm = parts_.options.clip_norm;
    scaling.dynamic_loss_scale = parts_.options.dynamic_loss_scale;
    scaling.loss_scale_interval = parts_.options.loss_scale_interval;
    scaling.optimizer = parts_.options.optimizer;
    scaling.adam = parts_.options.adam;
    add(GraphId::NAN_CHECK_AND_GRAD_SCALING, RangeOp::check_and_scale, {grad, metrics}, {grad, scalars}, scaling);
    add_optimizer_graphs(parts_, segments_, shard_params_);
    if (parts_.options.half_weights) {
      add(GraphId::CAST_MAIN, RangeOp::cast_weights, {std::string(region::kWeights)},
          {std::string(region::kWeightsHalf)});
    }
    if (!has_norms()) return;
    const std::string running(region::kBnRunning);
    add(GraphId::UPDATE_STATS, RangeOp::update_statistics, {std::string(region::kBnBatch), scalars}, {running},
        shard_params_);
    add(GraphId::UPDATE_BN_INF_PARAMS, RangeOp::fold_batch_norm, {running, std::string(region::kWeights)},
        {std::string(region::kBnFolded)});
  }

  void add_metrics() {
    const std::string scalars(region::kScalars), metrics(region::kMetrics), sums(region::kAccumulators);
    for (const GraphId id :
         {GraphId::ACCUM_METRICS, GraphId::ACCUM_METRICS_TRAIN_LAST, GraphId::ACCUM_METRICS_VAL_LAST}) {
      add(id, RangeOp::accumulate, {metrics, scalars}, {sums}, shard_params_);
      add(id, RangeOp::read_back, {metrics, scalars}, {}, shard_params_);
    }
    add(GraphId::CLEAR_METRICS, RangeOp::clear_accumulators, {}, {sums}, shard_params_);
    // Also on one rank: the shards' sums are added in tree order there too.
    add(GraphId::VAL_RESULT_COMM, RangeOp::reduce_accumulators, {sums}, {sums}, shard_params_);
  }

  void add_digest() {
    Names regions{std::string(region::kWeights), std::string(region::kMomentum)};
    if (has_second_moments(parts_.options.optimizer)) regions.emplace_back(region::kSecondMoment);
    if (has_norms()) regions.emplace_back(region::kBnRunning);
    regions.emplace_back(region::kGrad);
    if (parts_.options.ema_decay > 0.0) {
      regions.emplace_back(region::kEma);
      if (has_norms()) regions.emplace_back(region::kEmaRunning);
    }
    add(GraphId::SIMPLE_TASK_GRAPH, RangeOp::digest, std::move(regions), {std::string(region::kDigests)});
  }

  ComputationGraph::Parts& parts_;
  std::vector<Segment> segments_;
  RangeParams shard_params_;
};

}  // namespace

void add_range_graphs(ComputationGraph::Parts& parts) { RangeGraphs(parts).add_all(); }

}  // namespace renai::graph_detail
