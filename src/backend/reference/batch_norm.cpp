// batch_norm: forward with the shard's own statistics or those of all shards, inference with folded ones, backward.

#include <cmath>

#include "../sync_norm.hpp"
#include "kernels.hpp"
#include "renai/base/check.hpp"

namespace renai::reference {
namespace {

/// Of one channel: mean and sum of squared deviations forward, sums of dy and dy * xhat backward.
struct Pair {
  double first = 0, second = 0;
};

struct Forward {
  View x, y;
  const float *scale, *bias;
  float *mean, *var_unbiased, *var_biased;
  double eps;

  /// Two passes over one channel: mean, then deviations from it.
  Pair moments(std::int64_t c) const {
    const std::int64_t rows = x.rows();
    double sum = 0, squares = 0;
    for (std::int64_t row = 0; row < rows; ++row) sum += double{x.data[row * x.c + c]};
    const double centre = sum / static_cast<double>(rows);
    for (std::int64_t row = 0; row < rows; ++row) {
      const double distance = double{x.data[row * x.c + c]} - centre;
      squares += distance * distance;
    }
    return {centre, squares};
  }

  /// `count`: the rows that the moments are of.
  void finish(std::int64_t c, Pair moments, std::int64_t count) const {
    const double centre = moments.first, variance = moments.second / static_cast<double>(count);
    mean[c] = static_cast<float>(centre);
    var_biased[c] = static_cast<float>(variance);
    var_unbiased[c] = static_cast<float>(moments.second / static_cast<double>(count - 1));
    const double factor = double{scale[c]} / std::sqrt(variance + eps);
    for (std::int64_t row = 0; row < x.rows(); ++row) {
      const std::int64_t i = row * x.c + c;
      y.data[i] = static_cast<float>((double{x.data[i]} - centre) * factor + double{bias[c]});
    }
  }

  void operator()() const {
    for (std::int64_t c = 0; c < x.c; ++c) finish(c, moments(c), x.rows());
  }
};

struct Inference {
  View x, y;
  const float *scale, *bias;

  void operator()() const {
    for (std::int64_t row = 0; row < x.rows(); ++row) {
      for (std::int64_t c = 0; c < x.c; ++c) {
        const std::int64_t i = row * x.c + c;
        y.data[i] = static_cast<float>(double{x.data[i]} * double{scale[c]} + double{bias[c]});
      }
    }
  }
};

/// dx = scale / sqrt(var + eps) * (dy - mean(dy) - xhat * mean(dy * xhat)).
struct Backward {
  View x, dy, dx;
  const float *scale, *mean, *var_biased;
  float *dscale, *dbias;
  double eps;

  double inverse(std::int64_t c) const { return 1.0 / std::sqrt(double{var_biased[c]} + eps); }

  /// Also the gradients of scale and bias, which are of these rows.
  Pair sums(std::int64_t c) const {
    const double centre = mean[c], inverse_deviation = inverse(c);
    Pair sums;
    for (std::int64_t row = 0; row < x.rows(); ++row) {
      const std::int64_t i = row * x.c + c;
      sums.first += double{dy.data[i]};
      sums.second += double{dy.data[i]} * (double{x.data[i]} - centre) * inverse_deviation;
    }
    dscale[c] = static_cast<float>(sums.second);
    dbias[c] = static_cast<float>(sums.first);
    return sums;
  }

  /// `count`: the rows that the sums are of.
  void finish(std::int64_t c, Pair sums, std::int64_t rows) const {
    const auto count = static_cast<double>(rows);
    const double centre = mean[c], inverse_deviation = inverse(c);
    for (std::int64_t row = 0; row < x.rows(); ++row) {
      const std::int64_t i = row * x.c + c;
      const double xhat = (double{x.data[i]} - centre) * inverse_deviation;
      const double centred = double{dy.data[i]} - sums.first / count - xhat * sums.second / count;
      dx.data[i] = static_cast<float>(double{scale[c]} * inverse_deviation * centred);
    }
  }

  void operator()() const {
    for (std::int64_t c = 0; c < x.c; ++c) finish(c, sums(c), x.rows());
  }
};

Forward bind_forward(const Operands& operands) {
  return {operands.in(0),       operands.out(0),      operands.in(1).data,  operands.in(2).data,
          operands.out(1).data, operands.out(2).data, operands.out(3).data, operands.params<BatchNormParams>().eps};
}

Backward bind_backward(const Operands& operands) {
  return {operands.in(0),       operands.in(1),       operands.out(0),
          operands.in(2).data,  operands.in(3).data,  operands.in(4).data,
          operands.out(1).data, operands.out(2).data, operands.params<BatchNormParams>().eps};
}

}  // namespace

Kernel bind_batch_norm(const Operands& operands) {
  switch (operands.node().pass) {
    case Pass::forward: return bind_forward(operands);
    case Pass::inference: return Inference{operands.in(0), operands.out(0), operands.in(1).data, operands.in(2).data};
    case Pass::backward: return bind_backward(operands);
    default: refuse_pass(operands.node());
  }
}

std::int64_t batch_norm_workspace_bytes(const ComputeNode& node, std::int64_t c) {
  const auto* norm = std::get_if<BatchNormParams>(&node.params);
  return norm == nullptr || norm->sync_shards == 1 ? 0 : norm->sync_shards * sync_norm::block_bytes(c);
}

void record_sync_batch_norm(const Operands& operands, std::byte* workspace, HostStream& stream) {
  const std::int64_t c = operands.in(0).c, rows = operands.in(0).rows();
  const int shards = operands.params<BatchNormParams>().sync_shards;
  const sync_norm::Blocks blocks = sync_norm::make_blocks(operands.context(), workspace, c, shards);
  const auto keep = [blocks](std::int64_t ch, Pair pair) {
    blocks.of_own()[ch] = pair.first;
    blocks.of_own()[blocks.c + ch] = pair.second;
  };
  const auto total = [blocks](std::int64_t ch) { return Pair{blocks.data[ch], blocks.data[blocks.c + ch]}; };
  if (operands.node().pass == Pass::forward) {
    const Forward norm = bind_forward(operands);
    stream.enqueue([=] {
      for (std::int64_t ch = 0; ch < c; ++ch) keep(ch, norm.moments(ch));
    });
    sync_norm::gather(operands.context(), blocks, stream, operands.node().name);
    stream.enqueue([=] {
      sync_norm::add_moments(blocks, static_cast<double>(rows), 0, c);
      for (std::int64_t ch = 0; ch < c; ++ch) norm.finish(ch, total(ch), rows * shards);
    });
    return;
  }
  RENAI_CHECK(operands.node().pass == Pass::backward, "inference takes statistics of no batch");
  const Backward norm = bind_backward(operands);
  stream.enqueue([=] {
    for (std::int64_t ch = 0; ch < c; ++ch) keep(ch, norm.sums(ch));
  });
  sync_norm::gather(operands.context(), blocks, stream, operands.node().name);
  stream.enqueue([=] {
    sync_norm::add_sums(blocks, 0, c);
    for (std::int64_t ch = 0; ch < c; ++ch) norm.finish(ch, total(ch), rows * shards);
  });
}

}  // namespace renai::reference
