#include "host_range_ops.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "host_optimizer_kernels.hpp"
#include "host_range_kernels.hpp"
#include "range_recorder.hpp"
#include "renai/base/check.hpp"
#include "renai/base/digest.hpp"
#include "renai/graph/region_name.hpp"
#include "renai/tensor/slot_layout.hpp"

namespace renai {
namespace {

namespace names = region_name;

/// An interval of f32 values.
struct Values {
  float* data = nullptr;
  std::int64_t elems = 0;
};

/// Whether every step before this one was skipped.
bool is_first_update(const ControlBlock& control, const float* scalars) {
  return control.step == static_cast<std::int64_t>(scalars[names::kScalarSkippedSteps]);
}

/// `own`: updates, which counts this one, then what adam_corrections makes of it.
void correct_adam(float* own, const AdamParams& adam, float lr) {
  const host_range::AdamCorrections corrections = host_range::adam_corrections(double{lr}, adam, own[0]);
  own[1] = corrections.step_size;
  own[2] = corrections.correction;
}

/// Resolves a node's regions and enqueues its work.
class HostRangeRecorder final : private RangeRecorder<Values> {
 public:
  HostRangeRecorder(const BindContext& context, const RangeNode& node, HostStream& stream)
      : RangeRecorder(context, node, stream), stream_(stream) {}

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
    const Values values = values_of(node_.outputs);
    stream_.enqueue(
        [values, targets = merge_targets(), micro_batches = node_.params.micro_batches, control = control()] {
          if (targets.micro != nullptr) {
            host_range::add_micro_batch(values.data, targets.micro, values.elems, control->micro_batch, micro_batches);
            if (control->micro_batch + 1 < micro_batches) return;
          }
          host_range::merge_shard(values.data, targets.counters, values.elems, control->local_shard);
        });
  }

  /// A gradient or loss that is not finite skips the step: the optimizer and the statistics stay as they are, and a
  /// dynamic loss scale shrinks.
  /// The norm adds parameters in the graph's order, so that it does not depend on the borders of the buckets.
  void check_and_scale() {
    const Values grad = values_of(node_.inputs.at(0)), metrics = values_of(node_.inputs.at(1));
    std::vector<Values> params;
    for (const ParamInfo& param : context_.graph->params()) {
      const DTensor& place = plan_.tensor(param.grad);
      if (place.placed()) params.push_back({tensor(param.grad), place.size_bytes / std::int64_t{sizeof(float)}});
    }
    stream_.enqueue([grad, metrics, params = std::move(params), range = node_.params, scalars = scalars(),
                     control = has_second_moments(node_.params.optimizer) ? control() : nullptr] {
      const host_range::LossScale loss_scale{scalars[names::kScalarLossScale], scalars[names::kScalarGoodSteps]};
      const float factor = 1.0f / (static_cast<float>(range.logical_shards * range.micro_batches) *
                                   (range.dynamic_loss_scale ? loss_scale.scale : 1.0f));
      const float clip = range.clip_norm;
      host_range::scale(grad.data, grad.elems, factor);
      const bool finite =
          host_range::all_finite(grad.data, grad.elems) && host_range::all_finite(metrics.data, metrics.elems);
      double squares = 0;
      for (const Values& param : params) squares += host_range::sum_of_squares(param.data, param.elems);
      const double norm = std::sqrt(squares);
      // The small term keeps a zero gradient out of the division, as in PyTorch's clip_grad_norm_.
      const auto coefficient = static_cast<float>(double{clip} / (norm + 1e-6));
      if (finite && clip > 0.0f && coefficient < 1.0f) host_range::scale(grad.data, grad.elems, coefficient);
      scalars[names::kScalarGradNorm] = static_cast<float>(norm);
      scalars[names::kScalarSkip] = finite ? 0.0f : 1.0f;
      scalars[names::kScalarSkippedSteps] += finite ? 0.0f : 1.0f;
      scalars[names::kScalarBadSteps] = finite ? 0.0f : scalars[names::kScalarBadSteps] + 1.0f;
      const host_range::LossScale next = host_range::next_loss_scale(loss_scale, finite, range);
      scalars[names::kScalarLossScale] = next.scale;
      scalars[names::kScalarGoodSteps] = next.good_steps;
      if (!finite) return;
      scalars[names::kScalarUpdates] += 1.0f;
      if (control != nullptr) correct_adam(scalars + names::kScalarUpdates, range.adam, control->lr);
    });
  }

  void sgd() {
    const Values grad = values_of(node_.inputs.at(0)), weights = values_of(node_.inputs.at(1)),
                 momentum = values_of(node_.inputs.at(2));
    RENAI_CHECK(grad.elems == weights.elems && grad.elems == momentum.elems,
                "'" + node_.name + "': gradient, weights and momentum have equal layouts");
    host_range::SgdStep step{0.0f, node_.params.momentum, node_.params.weight_decay, node_.params.nesterov};
    stream_.enqueue([grad, weights, momentum, step, control = control(), scalars = scalars()]() mutable {
      if (scalars[names::kScalarSkip] != 0.0f) return;
      step.lr = control->lr;
      host_range::sgd(grad.data, weights.data, momentum.data, grad.elems, step);
    });
  }

  void adam() {
    const Values grad = values_of(node_.inputs.at(0)), weights = values_of(node_.inputs.at(1)),
                 momentum = values_of(node_.inputs.at(2)), second_moment = values_of(node_.inputs.at(3));
    RENAI_CHECK(grad.elems == weights.elems && grad.elems == momentum.elems && grad.elems == second_moment.elems,
                "'" + node_.name + "': gradient, weights and moments have equal layouts");
    stream_.enqueue(
        [grad, weights, momentum, second_moment, range = node_.params, control = control(), scalars = scalars()] {
          if (scalars[names::kScalarSkip] != 0.0f) return;
          const float* own = scalars + names::adam_scalars(range.freeze_group);
          const host_range::AdamCorrections corrections{own[1], own[2]};
          host_range::adam(grad.data, weights.data, momentum.data, second_moment.data, grad.elems,
                           host_range::adam_step(range, corrections, control->lr));
        });
  }

  void adam_corrections() {
    stream_.enqueue([range = node_.params, control = control(), scalars = scalars()] {
      if (scalars[names::kScalarSkip] != 0.0f) return;
      float* own = scalars + names::adam_scalars(range.freeze_group);
      own[0] += 1.0f;
      correct_adam(own, range.adam, control->lr);
    });
  }

  void lars() {
    struct Tensor {
      float *grad, *weights, *momentum;
      std::int64_t elems;
    };
    std::vector<Tensor> tensors;
    for (const ParamInfo* param : params_of(node_.inputs.at(1))) {
      tensors.push_back(
          {tensor(param->grad), tensor(param->weight), tensor(param->momentum), stored_elems(param->weight)});
    }
    RENAI_CHECK(!tensors.empty(), "'" + node_.name + "' has tensors");
    stream_.enqueue([tensors = std::move(tensors), range = node_.params, control = control(), scalars = scalars()] {
      if (scalars[names::kScalarSkip] != 0.0f) return;
      for (const Tensor& tensor : tensors) {
        host_range::lars(tensor.grad, tensor.weights, tensor.momentum, tensor.elems, range, control->lr);
      }
    });
  }

  void update_statistics() {
    struct Pair {
      float *running, *batch;
      std::int64_t elems;
      float momentum;
    };
    std::vector<Pair> pairs;
    for (const NormInfo& norm : context_.graph->norms()) {
      const std::int64_t channels = plan_.tensor(norm.running_mean).shape.elems();
      pairs.push_back({tensor(norm.running_mean), tensor(norm.batch_mean), channels, norm.momentum});
      pairs.push_back({tensor(norm.running_var), tensor(norm.batch_var), channels, norm.momentum});
    }
    const int shards = node_.params.logical_shards * node_.params.micro_batches;
    stream_.enqueue([pairs = std::move(pairs), shards, scalars = scalars()] {
      if (scalars[names::kScalarSkip] != 0.0f) return;
      for (const Pair& pair : pairs) {
        host_range::update_running(pair.running, pair.batch, pair.elems, pair.momentum, shards);
      }
    });
  }

  /// The first update, which no step before it was there to make, takes the values as they are.
  void average() {
    for (std::size_t i = 0; i < node_.outputs.size(); ++i) {
      const Values values = values_of(node_.inputs.at(i)), averages = values_of(node_.outputs[i]);
      RENAI_CHECK(values.elems == averages.elems, "'" + node_.name + "': values and averages have equal layouts");
      stream_.enqueue([values, averages, decay = node_.params.ema_decay, control = control(), scalars = scalars()] {
        if (scalars[names::kScalarSkip] != 0.0f) return;
        if (is_first_update(*control, scalars)) {
          std::copy_n(values.data, values.elems, averages.data);
        } else {
          host_range::average(values.data, averages.data, values.elems, decay);
        }
      });
    }
  }

  void cast_weights() {
    const Values weights = values_of(node_.inputs.at(0));
    const Region& half = region(node_.outputs.at(0));
    RENAI_CHECK(half.size_bytes >= 2 * weights.elems, "'" + node_.name + "' has room for half weights");
    auto* out = reinterpret_cast<std::uint16_t*>(context_.at(half));
    const auto convert = context_.book->half_dtype == DType::f16 ? host_range::to_f16 : host_range::to_bf16;
    stream_.enqueue(
        [weights, out, convert] { std::transform(weights.data, weights.data + weights.elems, out, convert); });
  }

  void fold_batch_norm() {
    std::vector<host_range::FoldedNorm> folds;
    for (const FoldTensors& fold : folds_of_node()) {
      folds.push_back({tensor(fold.mean), tensor(fold.var), tensor(fold.scale), tensor(fold.bias),
                       tensor(fold.folded_scale), tensor(fold.folded_bias), plan_.tensor(fold.mean).shape.elems(),
                       fold.eps});
    }
    stream_.enqueue([folds = std::move(folds)] {
      for (const host_range::FoldedNorm& fold : folds) host_range::fold_batch_norm(fold);
    });
  }

  /// Training sums leave out skipped steps, whose loss may not be a number.
  void accumulate() {
    const float* metrics = values_of(node_.inputs.at(0)).data;
    auto* sums = reinterpret_cast<double*>(at(node_.outputs.at(0)));
    const int shards = node_.params.logical_shards;
    stream_.enqueue([metrics, sums, shards, control = control(), scalars = scalars()] {
      const bool validation = control->phase != 0;
      if (!validation && scalars[names::kScalarSkip] != 0.0f) return;
      RENAI_CHECK(!validation || (control->shard >= 0 && control->shard < shards),
                  "shard " + std::to_string(control->shard) + " is out of range");
      double* entry = sums + (validation ? names::kAccumulatorShards + std::ptrdiff_t{4} * control->shard : 0);
      for (int i = 0; i < 4; ++i) entry[i] += double{metrics[i]};
    });
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
    stream_.enqueue([=] { host_range::tree_sum_entries(entries, shards, sums + names::kAccumulatorTotal); });
  }

  /// Validation steps have no slot in the ring.
  void read_back() {
    const float* metrics = values_of(node_.inputs.at(0)).data;
    std::byte* ring = context_.read_back;
    RENAI_CHECK(ring != nullptr, "'" + node_.name + "' has a read-back ring");
    constexpr std::size_t kMetricBytes = names::kMetricCount * sizeof(float);
    constexpr std::size_t kScalarBytes = names::kScalarCount * sizeof(float);
    static_assert(kMetricBytes + kScalarBytes == kReadBackBytes);
    stream_.enqueue([metrics, ring, control = control(), scalars = scalars()] {
      if (control->phase != 0) return;
      std::byte* slot = ring + control->step % kReadBackSlots * kReadBackBytes;
      std::memcpy(slot, metrics, kMetricBytes);
      std::memcpy(slot + kMetricBytes, scalars, kScalarBytes);
    });
  }

  bool inside_inputs(const DTensor& place) const {
    return std::any_of(node_.inputs.begin(), node_.inputs.end(), [&](const std::string& name) {
      const Region& interval = region(name);
      return place.offset_bytes >= interval.offset_bytes &&
             place.offset_bytes + place.size_bytes <= interval.offset_bytes + interval.size_bytes;
    });
  }

  void digest() {
    struct Item {
      const float* data;
      std::int64_t rows, row_elems, row_stride;
    };
    std::vector<Item> items;
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
    auto* out = reinterpret_cast<Digest128*>(context_.at(digests));
    stream_.enqueue([items = std::move(items), out] {
      for (std::size_t i = 0; i < items.size(); ++i) {
        const Item& item = items[i];
        Digest128 sum;
        for (std::int64_t row = 0; row < item.rows; ++row) {
          const std::span<const float> values(item.data + row * item.row_stride,
                                              static_cast<std::size_t>(item.row_elems));
          const Digest128 part = tensor_digest(values, static_cast<std::uint64_t>(row * item.row_elems));
          sum.low += part.low;
          sum.high += part.high;
        }
        out[i] = sum;
      }
    });
  }

  HostStream& stream_;
};

}  // namespace

HostStream& require_host_stream(Stream& stream, const std::string& backend) {
  auto* host = dynamic_cast<HostStream*>(&stream);
  if (host == nullptr) {
    throw BackendError("recording kernels of the backend '" + backend + "'", "the stream is not one of the host device",
                       "pair this backend with the host device");
  }
  return *host;
}

std::string host_range_kernel_name(const RangeNode& node) { return "host." + std::string(range_op_name(node.op)); }

void record_host_range_node(const BindContext& context, const RangeNode& node, HostStream& stream) {
  HostRangeRecorder(context, node, stream).record();
}

}  // namespace renai
