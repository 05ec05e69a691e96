#include "region_layout.hpp"

#include <algorithm>

#include "renai/base/check.hpp"
#include "renai/graph/region_name.hpp"
#include "renai/graph/segments.hpp"
#include "renai/graph/shape_inference.hpp"

namespace renai::plan_detail {
namespace {

namespace names = region_name;

constexpr std::int64_t kFloatBytes = 4, kDoubleBytes = 8, kDigestBytes = 16;

class Layout {
 public:
  explicit Layout(const PlanRequest& request)
      : request_(request), graph_(*request.graph), segments_(parameter_segments(graph_)) {
    layout_.tensors.resize(graph_.tensors().size());
  }

  RegionLayout run() {
    place_params(names::kWeights, &ParamInfo::weight);
    if (graph_.options().half_weights) place_block(names::kWeightsHalf, layout_.regions.front().size_bytes / 2);
    place_shard(std::string(names::kShardValues), "", true);
    for (int level = 0; (1 << level) < graph_.local_shards(); ++level) {
      place_shard(names::counter(level), names::counter(level) + ".", false);
    }
    if (graph_.options().micro_batches > 1) {
      place_shard(std::string(names::kMicro), names::child(names::kMicro, ""), false);
    }
    place_params(names::kMomentum, &ParamInfo::momentum);
    if (has_second_moments(graph_.options().optimizer)) place_params(names::kSecondMoment, &ParamInfo::second_moment);
    place_norms(names::kBnRunning, &NormInfo::running_mean, &NormInfo::running_var);
    place_norms(names::kBnFolded, &NormInfo::folded_scale, &NormInfo::folded_bias);
    if (graph_.options().ema_decay > 0.0) place_averages();
    place_block(names::kScalars, scalar_count(graph_) * kFloatBytes);
    place_block(names::kAccumulators,
                (names::kAccumulatorShards + std::int64_t{4} * graph_.options().logical_shards) * kDoubleBytes);
    place_block(names::kDigests, static_cast<std::int64_t>(digest_tensors(graph_).size()) * kDigestBytes);
    place_input();
    place_block(names::kCommScratch, request_.comm_scratch_bytes);
    layout_.transient = static_cast<RegionIndex>(layout_.regions.size());
    place_block(names::kTransient, 0);
    return std::move(layout_);
  }

 private:
  RegionIndex open(std::string name) {
    layout_.regions.push_back({std::move(name), cursor_, 0});
    return static_cast<RegionIndex>(layout_.regions.size()) - 1;
  }

  void close(RegionIndex index) {
    Region& region = layout_.regions[static_cast<std::size_t>(index)];
    region.size_bytes = cursor_ - region.offset_bytes;
  }

  RegionIndex place_block(std::string_view name, std::int64_t size_bytes) {
    const RegionIndex region = open(std::string(name));
    cursor_ += align_slot(size_bytes);
    close(region);
    return region;
  }

  void place_tensor(TensorId id, RegionIndex region, std::int64_t size_bytes) {
    layout_.tensors[static_cast<std::size_t>(id)] = {cursor_, size_bytes, region};
    cursor_ += align_slot(size_bytes);
  }

  /// The size that a tensor has under every spec that gives it a shape.
  std::int64_t fixed_bytes(TensorId id) const {
    std::int64_t bytes = 0;
    for (std::size_t spec = 0; spec < request_.specs.size(); ++spec) {
      const std::int64_t here = tensor_bytes(request_, spec, id);
      RENAI_CHECK(bytes == 0 || here == 0 || here == bytes,
                  "tensor '" + graph_.tensor(id).name + "' has one size in all variants");
      bytes = std::max(bytes, here);
    }
    return bytes;
  }

  std::int64_t largest_bytes(TensorId id) const {
    std::int64_t bytes = 0;
    for (std::size_t spec = 0; spec < request_.specs.size(); ++spec) {
      bytes = std::max(bytes, tensor_bytes(request_, spec, id));
    }
    return bytes;
  }

  void place_params(std::string_view parent, TensorId ParamInfo::*member) {
    const RegionIndex whole = open(std::string(parent));
    for (const Segment& segment : segments_) {
      const RegionIndex part = open(names::child(parent, segment.name));
      for (const std::int32_t param : segment.params) {
        const TensorId id = graph_.params()[static_cast<std::size_t>(param)].*member;
        place_tensor(id, part, fixed_bytes(id));
      }
      close(part);
    }
    close(whole);
  }

  /// The values of one shard. `prefix` names the children; tensors lie in the shard region itself only, the counters
  /// repeat its inner layout.
  void place_shard(const std::string& parent, const std::string& prefix, bool place_tensors) {
    const RegionIndex whole = open(parent);
    const RegionIndex grad = open(prefix + std::string(names::kGrad));
    std::int64_t first_start = -1;
    std::size_t next = 0;
    while (next < segments_.size()) {
      const int bucket = segments_[next].bucket_index;
      if (bucket == graph_.deep_buckets()) first_start = cursor_;
      const RegionIndex of_bucket = open(prefix + names::child(names::kGrad, segments_[next].bucket));
      for (; next < segments_.size() && segments_[next].bucket_index == bucket; ++next) {
        const RegionIndex part = open(prefix + names::child(names::kGrad, segments_[next].name));
        for (const std::int32_t param : segments_[next].params) {
          const TensorId id = graph_.params()[static_cast<std::size_t>(param)].grad;
          place_or_skip(id, part, fixed_bytes(id), place_tensors);
        }
        close(part);
      }
      close(of_bucket);
    }
    close(grad);
    if (first_start < 0) first_start = cursor_;
    const RegionIndex metrics = open(prefix + std::string(names::kMetrics));
    place_or_skip(graph_.parts().metrics, metrics, names::kMetricCount * kFloatBytes, place_tensors);
    close(metrics);
    add_span(prefix + names::child(names::kGrad, "first_values"), first_start);
    const RegionIndex batch = open(prefix + std::string(names::kBnBatch));
    for (const NormInfo& norm : graph_.norms()) {
      place_or_skip(norm.batch_mean, batch, fixed_bytes(norm.batch_mean), place_tensors);
      place_or_skip(norm.batch_var, batch, fixed_bytes(norm.batch_var), place_tensors);
    }
    close(batch);
    add_span(prefix + "first_values", first_start);
    close(whole);
  }

  void place_or_skip(TensorId id, RegionIndex region, std::int64_t size_bytes, bool place) {
    if (place && id != kNoTensor) {
      place_tensor(id, region, size_bytes);
    } else {
      cursor_ += align_slot(size_bytes);
    }
  }

  /// A second name for the interval from `start` to here.
  void add_span(std::string name, std::int64_t start) {
    layout_.regions.push_back({std::move(name), start, cursor_ - start});
  }

  void place_norms(std::string_view name, TensorId NormInfo::*first, TensorId NormInfo::*second) {
    const RegionIndex region = open(std::string(name));
    for (const NormInfo& norm : graph_.norms()) {
      place_tensor(norm.*first, region, fixed_bytes(norm.*first));
      place_tensor(norm.*second, region, fixed_bytes(norm.*second));
    }
    close(region);
  }

  void place_averages() {
    place_params(names::kEma, &ParamInfo::ema);
    if (graph_.options().half_weights) place_block(names::kEmaHalf, layout_.regions.front().size_bytes / 2);
    place_norms(names::kEmaRunning, &NormInfo::ema_mean, &NormInfo::ema_var);
    place_norms(names::kEmaFolded, &NormInfo::ema_scale, &NormInfo::ema_bias);
  }

  /// Slots A and B, then the staged tensors, which have room for the largest shard of any variant.
  void place_input() {
    for (const auto& [name, tensor] :
         {std::pair{names::kSlotA, graph_.parts().slot_a}, std::pair{names::kSlotB, graph_.parts().slot_b}}) {
      const RegionIndex slot = open(std::string(name));
      place_or_skip(tensor, slot, request_.slot.size_bytes, true);
      close(slot);
    }
    const RegionIndex staged = open(std::string(names::kStaged));
    for (std::size_t i = 0; i < graph_.tensors().size(); ++i) {
      const TensorRole role = graph_.tensors()[i].role;
      if (role == TensorRole::labels || role == TensorRole::mix_labels || role == TensorRole::mix_lambda ||
          role == TensorRole::sample_weights) {
        const auto id = static_cast<TensorId>(i);
        place_tensor(id, staged, std::max(request_.slot.rows * dtype_bytes(tensor_dtype(role)), largest_bytes(id)));
      }
    }
    place_or_skip(graph_.parts().control, staged, static_cast<std::int64_t>(sizeof(ControlBlock)), true);
    close(staged);
  }

  const PlanRequest& request_;
  const ComputationGraph& graph_;
  std::vector<Segment> segments_;
  RegionLayout layout_;
  std::int64_t cursor_ = 0;
};

}  // namespace

std::int64_t tensor_bytes(const PlanRequest& request, std::size_t spec, TensorId id) {
  const auto index = static_cast<std::size_t>(id);
  const std::size_t graph_tensors = request.graph->tensors().size();
  if (index >= graph_tensors) return request.book->tensors.at(index - graph_tensors).size_bytes.at(spec);
  const Shape& shape = request.shapes->at(spec).at(index);
  if (shape.rank() == 0) return 0;
  std::int64_t elems = shape.elems();
  if (!request.book->padded_c.empty()) {
    const std::int64_t padded = request.book->padded_c[index];
    if (padded > shape.c()) elems = elems / shape.c() * padded;
  }
  return elems * dtype_bytes(stored_dtype(*request.book, *request.graph, id));
}

RegionLayout lay_out_regions(const PlanRequest& request) { return Layout(request).run(); }

}  // namespace renai::plan_detail

namespace renai {

std::vector<TensorId> digest_tensors(const ComputationGraph& graph) {
  std::vector<TensorId> tensors;
  const std::vector<Segment> segments = parameter_segments(graph);
  const auto add_params = [&](TensorId ParamInfo::*member) {
    for (const Segment& segment : segments) {
      for (const std::int32_t param : segment.params) {
        tensors.push_back(graph.params()[static_cast<std::size_t>(param)].*member);
      }
    }
  };
  add_params(&ParamInfo::weight);
  add_params(&ParamInfo::momentum);
  if (has_second_moments(graph.options().optimizer)) add_params(&ParamInfo::second_moment);
  for (const NormInfo& norm : graph.norms()) {
    tensors.push_back(norm.running_mean);
    tensors.push_back(norm.running_var);
  }
  add_params(&ParamInfo::grad);
  if (graph.options().ema_decay == 0.0) return tensors;
  add_params(&ParamInfo::ema);
  for (const NormInfo& norm : graph.norms()) {
    tensors.push_back(norm.ema_mean);
    tensors.push_back(norm.ema_var);
  }
  return tensors;
}

}  // namespace renai
