#pragma once
// RangeRecorder: a RANGE node's regions resolved to addresses, and the operations that are the same on every device.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "renai/backend/backend.hpp"
#include "renai/base/check.hpp"
#include "renai/graph/region_name.hpp"
#include "renai/tensor/slot_layout.hpp"

namespace renai {

/// What fold_batch_norm reads and writes for one batch norm.
struct FoldTensors {
  TensorId mean, var, scale, bias, folded_scale, folded_bias;
  float eps;
};

/// Base of the leaves' recorders. `Values` is the leaf's interval of f32 values: {float* data, int64 elems}.
/// Errors: InternalError for regions that do not fit the operation.
template <typename Values>
class RangeRecorder {
 protected:
  RangeRecorder(const BindContext& context, const RangeNode& node, Stream& stream)
      : context_(context), plan_(*context.plan), node_(node), any_stream_(stream) {}
  ~RangeRecorder() = default;

  const Region& region(std::string_view name) const { return plan_.region(name); }
  std::byte* at(std::string_view name) const { return context_.at(region(name)); }

  Values values_of(std::string_view name) const {
    const Region& interval = region(name);
    return {reinterpret_cast<float*>(context_.at(interval)), interval.size_bytes / std::int64_t{sizeof(float)}};
  }

  /// Adjacent regions as one interval.
  Values values_of(std::span<const std::string> list) const {
    RENAI_CHECK(!list.empty(), "'" + node_.name + "' names its values");
    std::int64_t end = region(list[0]).offset_bytes;
    const std::int64_t start = end;
    for (const std::string& name : list) {
      RENAI_CHECK(region(name).offset_bytes == end, "'" + node_.name + "': '" + name + "' is not adjacent");
      end += region(name).size_bytes;
    }
    return {reinterpret_cast<float*>(context_.arena + start), (end - start) / std::int64_t{sizeof(float)}};
  }

  const ControlBlock* control() const {
    const TensorId id = context_.graph->parts().control;
    RENAI_CHECK(id != kNoTensor && plan_.tensor(id).placed(), "'" + node_.name + "' needs the control block");
    return reinterpret_cast<const ControlBlock*>(context_.at(plan_.tensor(id)));
  }

  float* scalars() const { return values_of(region_name::kScalars).data; }

  float* tensor(TensorId id) const {
    const DTensor& place = plan_.tensor(id);
    RENAI_CHECK(place.placed(), "'" + context_.graph->tensor(id).name + "' has a place");
    return reinterpret_cast<float*>(context_.at(place));
  }

  /// The parameters whose weights lie in a region, in the graph's order.
  std::vector<const ParamInfo*> params_of(std::string_view name) const {
    const Region& interval = region(name);
    std::vector<const ParamInfo*> params;
    for (const ParamInfo& param : context_.graph->params()) {
      const DTensor& place = plan_.tensor(param.weight);
      const bool inside = place.placed() && place.offset_bytes >= interval.offset_bytes &&
                          place.offset_bytes + place.size_bytes <= interval.offset_bytes + interval.size_bytes;
      if (inside) params.push_back(&param);
    }
    return params;
  }

  /// Elements of a tensor with its padding, which holds zeros in weights, gradients and moments.
  std::int64_t stored_elems(TensorId id) const { return plan_.tensor(id).size_bytes / std::int64_t{sizeof(float)}; }

  /// What merge_shard adds up in beside its values: the levels of the counter and the sum of micro-batches, or null.
  struct MergeTargets {
    std::vector<float*> counters;
    float* micro = nullptr;
  };
  MergeTargets merge_targets() const {
    const std::int64_t inside = region(node_.outputs[0]).offset_bytes - region(region_name::kShardValues).offset_bytes;
    MergeTargets targets;
    for (std::size_t i = node_.outputs.size(); i < node_.inputs.size(); ++i) {
      auto* place = reinterpret_cast<float*>(at(node_.inputs[i]) + inside);
      if (node_.inputs[i] == region_name::kMicro) {
        targets.micro = place;
      } else {
        targets.counters.push_back(place);
      }
    }
    RENAI_CHECK(1 << targets.counters.size() == node_.params.local_shards,
                "'" + node_.name + "' has a counter region for each level");
    RENAI_CHECK((targets.micro != nullptr) == (node_.params.micro_batches > 1),
                "'" + node_.name + "' has a region for the sum of micro-batches");
    return targets;
  }

  void copy_slot() {
    const bool b = node_.outputs.at(0) == region_name::kSlotB;
    RENAI_CHECK(b || node_.outputs[0] == region_name::kSlotA, "'" + node_.name + "' copies to slot A or B");
    const std::byte* staging = context_.staging[b ? 1 : 0];
    RENAI_CHECK(staging != nullptr, "'" + node_.name + "' has a staging buffer");
    any_stream_.copy(at(node_.outputs[0]), staging, plan_.slot.size_bytes);
  }

  void zero() {
    for (const std::string& name : node_.outputs) any_stream_.zero(at(name), region(name).size_bytes);
  }

  /// Of the running statistics and weights, or of their averages.
  std::vector<FoldTensors> folds_of_node() const {
    const bool averages = node_.outputs.at(0) == region_name::kEmaFolded;
    const ComputationGraph& graph = *context_.graph;
    std::vector<FoldTensors> folds;
    for (const NormInfo& norm : graph.norms()) {
      const ParamInfo& scale = graph.params()[static_cast<std::size_t>(norm.scale_param)];
      const ParamInfo& bias = graph.params()[static_cast<std::size_t>(norm.bias_param)];
      if (averages) {
        folds.push_back({norm.ema_mean, norm.ema_var, scale.ema, bias.ema, norm.ema_scale, norm.ema_bias, norm.eps});
      } else {
        folds.push_back({norm.running_mean, norm.running_var, scale.weight, bias.weight, norm.folded_scale,
                         norm.folded_bias, norm.eps});
      }
    }
    return folds;
  }

  std::string stage() const {
    const std::string& first = node_.inputs.at(0);
    const std::string prefix = region_name::child(region_name::kGrad, "");
    if (first.starts_with(prefix)) return "gradient bucket " + first.substr(prefix.size());
    if (first == region_name::kBnBatch) return "batch norm statistics";
    return first == region_name::kMetrics ? "step metrics" : first;
  }

  void tree_reduce() {
    const Values values = values_of(node_.outputs);
    RENAI_CHECK(context_.communicator != nullptr, "'" + node_.name + "' has a communicator");
    const Region& scratch = region(region_name::kCommScratch);
    const std::int64_t needed = context_.communicator->tree_reduce_scratch_bytes(values.elems);
    RENAI_CHECK(needed <= scratch.size_bytes,
                "'" + node_.name + "' needs " + std::to_string(needed) + " bytes of communication scratch");
    context_.communicator->tree_reduce(values.data, values.elems, context_.at(scratch), any_stream_, stage());
  }

  const BindContext& context_;
  const MemoryPlan& plan_;
  const RangeNode& node_;

 private:
  Stream& any_stream_;
};

}  // namespace renai
