// softmax_cross_entropy: metrics of the shard and the gradient of its mean loss.

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels.hpp"
#include "renai/base/error.hpp"
#include "renai/graph/region_name.hpp"

namespace renai::reference {
namespace {

struct Loss {
  View logits;
  const std::int32_t *labels = nullptr, *mix_labels = nullptr;
  const float *mix_lambda = nullptr, *weights = nullptr;
  double smoothing = 0;

  std::int64_t classes() const { return logits.c; }
  const float* row(std::int64_t n) const { return logits.data + n * classes(); }

  void check_labels(std::int64_t n) const {
    for (const std::int32_t label : {labels[n], mix_labels[n]}) {
      if (label >= 0 && label < classes()) continue;
      throw DataError("label " + std::to_string(label) + " in row " + std::to_string(n),
                      "the model has " + std::to_string(classes()) + " classes", "pack the data set again");
    }
  }

  /// log(sum of exp) of a row.
  double log_sum(std::int64_t n) const {
    const float* z = row(n);
    const double top = *std::max_element(z, z + classes());
    double sum = 0;
    for (std::int64_t k = 0; k < classes(); ++k) sum += std::exp(double{z[k]} - top);
    return top + std::log(sum);
  }

  /// Target probability of class k.
  double target(std::int64_t n, std::int64_t k) const {
    const double lambda = mix_lambda[n];
    const double hard = (labels[n] == k ? lambda : 0.0) + (mix_labels[n] == k ? 1.0 - lambda : 0.0);
    return (1.0 - smoothing) * hard + smoothing / static_cast<double>(classes());
  }
};

struct Forward : Loss {
  float* metrics = nullptr;

  double row_loss(std::int64_t n) const {
    const double log_total = log_sum(n);
    double loss = 0;
    for (std::int64_t k = 0; k < classes(); ++k) loss += target(n, k) * (log_total - double{row(n)[k]});
    return loss;
  }

  /// How many classes rank before the label: greater logits, and equal ones of lower index. What is not a number ranks
  /// before everything.
  std::int64_t label_rank(std::int64_t n) const {
    const float* z = row(n);
    const std::int64_t label = labels[n];
    std::int64_t rank = 0;
    for (std::int64_t k = 0; k < classes(); ++k) {
      const bool behind = z[k] < z[label] || (z[k] == z[label] && k > label);
      if (k != label && !behind) ++rank;
    }
    return rank;
  }

  void operator()() const {
    double loss = 0, weight = 0, top1 = 0, top5 = 0;
    for (std::int64_t n = 0; n < logits.n; ++n) {
      check_labels(n);
      const double w = weights[n];
      const std::int64_t rank = label_rank(n);
      loss += w * row_loss(n);
      weight += w;
      top1 += rank < 1 ? w : 0.0;
      top5 += rank < 5 ? w : 0.0;
    }
    std::fill_n(metrics, region_name::kMetricCount, 0.0f);
    metrics[0] = static_cast<float>(loss);
    metrics[1] = static_cast<float>(weight);
    metrics[2] = static_cast<float>(top1);
    metrics[3] = static_cast<float>(top5);
  }
};

struct Backward : Loss {
  View dlogits;
  const float* scalars = nullptr;  ///< Null: the gradient is not scaled.
  const ControlBlock* control = nullptr;

  void operator()() const {
    double scale = control != nullptr ? double{control->loss_factor} : 1.0;
    if (scalars != nullptr) scale *= double{scalars[region_name::kScalarLossScale]};
    for (std::int64_t n = 0; n < logits.n; ++n) {
      check_labels(n);
      const double log_total = log_sum(n), share = scale * double{weights[n]} / static_cast<double>(logits.n);
      for (std::int64_t k = 0; k < classes(); ++k) {
        const double probability = std::exp(double{row(n)[k]} - log_total);
        dlogits.data[n * classes() + k] = static_cast<float>(share * (probability - target(n, k)));
      }
    }
  }
};

/// The scalars of a run that scales its loss; they are a region, no tensor.
const float* loss_scalars(const BindContext& context) {
  if (!context.graph->options().dynamic_loss_scale) return nullptr;
  return reinterpret_cast<const float*>(context.at(context.plan->region(region_name::kScalars)));
}

/// Null where nothing is staged.
const ControlBlock* control_block(const BindContext& context) {
  const TensorId id = context.graph->parts().control;
  if (id == kNoTensor || !context.plan->tensor(id).placed()) return nullptr;
  return reinterpret_cast<const ControlBlock*>(context.at(context.plan->tensor(id)));
}

}  // namespace

Kernel bind_softmax_cross_entropy(const Operands& operands) {
  Loss loss;
  loss.logits = operands.in(0);
  loss.labels = reinterpret_cast<const std::int32_t*>(operands.in_bytes(1));
  loss.mix_labels = reinterpret_cast<const std::int32_t*>(operands.in_bytes(2));
  loss.mix_lambda = operands.in(3).data;
  loss.weights = operands.in(4).data;
  loss.smoothing = operands.params<LossParams>().label_smoothing;
  switch (operands.node().pass) {
    case Pass::forward: return Forward{loss, operands.out(0).data};
    case Pass::backward:
      return Backward{loss, operands.out(0), loss_scalars(operands.context()), control_block(operands.context())};
    default: refuse_pass(operands.node());
  }
}

}  // namespace renai::reference
