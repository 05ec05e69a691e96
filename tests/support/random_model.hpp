#pragma once
// Random valid models for property tests: DAGs with branches, adds, concats, views and every operator.

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "random_value.hpp"
#include "renai/model/model_spec.hpp"

namespace renai::testing {

/// Determinism: a pure function of seed and options.
class RandomModel {
 public:
  RandomModel(std::uint64_t seed, RandomModelOptions options) : random_(seed), options_(std::move(options)) {
    spec_.name = "random-" + std::to_string(seed);
    spec_.source = "random";
  }

  ModelSpec make() {
    Value input{"input", options_.channels, true, {}, false};
    for (const std::int64_t size : options_.resolutions) input.sizes.push_back({size, size});
    values_.push_back(input);
    const int layers =
        options_.min_layers +
        static_cast<int>(below(static_cast<std::uint64_t>(options_.max_layers - options_.min_layers + 1)));
    while (static_cast<int>(spec_.layers.size()) < layers) grow();
    join();
    return spec_;
  }

 private:
  using Value = RandomValue;

  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  bool chance(int percent) { return below(100) < static_cast<std::uint64_t>(percent); }

  /// Mostly the newest values, so that models are deep; sometimes any, so that they branch.
  std::size_t pick() {
    const std::size_t window = chance(70) ? std::min<std::size_t>(2, values_.size()) : values_.size();
    return values_.size() - 1 - below(window);
  }

  void add(LayerKind kind, std::vector<std::size_t> inputs, Value output, LayerSpec spec = {}) {
    spec.name = "l" + std::to_string(spec_.layers.size()) + "." + layer_kind_name(kind);
    spec.kind = kind;
    spec.stage = static_cast<int>(spec_.layers.size());
    for (const std::size_t input : inputs) {
      spec.inputs.push_back(values_[input].name);
      values_[input].read = true;
    }
    output.name = spec.name;
    output.read = false;
    values_.push_back(std::move(output));
    spec_.layers.push_back(std::move(spec));
  }

  void grow() {
    const std::size_t x = pick();
    if (options_.blocks && values_[x].map && chance(40)) return add_block(x);
    switch (below(10)) {
      case 0:
      case 1:
      case 2: return values_[x].map ? add_window(LayerKind::conv2d, x) : add_linear(x);
      case 3: return add_norm(x);
      case 4:
      case 5: return add_activation(x);
      case 6:
        return values_[x].map ? add_window(chance(50) ? LayerKind::max_pool : LayerKind::avg_pool, x) : add_linear(x);
      case 7: return add_sum(x);
      case 8: return add_concat(x);
      default: return add_rare(x);
    }
  }

  void add_window(LayerKind kind, std::size_t x) {
    const bool conv = kind == LayerKind::conv2d;
    LayerSpec spec;
    spec.kernel_h = 1 + static_cast<std::int64_t>(below(3));
    spec.kernel_w = chance(70) ? spec.kernel_h : 1 + static_cast<std::int64_t>(below(3));
    spec.stride_h = chance(60) ? 1 : 1 + static_cast<std::int64_t>(below(3));
    spec.stride_w = chance(80) ? spec.stride_h : 1 + static_cast<std::int64_t>(below(3));
    const std::int64_t limit_h = spec.kernel_h / 2, limit_w = spec.kernel_w / 2;
    spec.pad_h = chance(60) ? limit_h : 0;
    spec.pad_w = chance(60) ? limit_w : 0;
    if (conv && chance(15)) spec.dilation_h = spec.dilation_w = 2;
    Value y = values_[x];
    for (auto& size : y.sizes) {
      const auto h = window_extent(size[0], spec.kernel_h, spec.stride_h, spec.pad_h, spec.dilation_h);
      const auto w = window_extent(size[1], spec.kernel_w, spec.stride_w, spec.pad_w, spec.dilation_w);
      if (!h || !w) return add_activation(x);
      size = {*h, *w};
    }
    if (conv) {
      if (y.channels % 2 == 0 && chance(20)) spec.groups = 2;
      spec.out = spec.groups * (1 + static_cast<std::int64_t>(below(6)));
      spec.bias = chance(50);
      y.channels = spec.out;
    } else {
      spec.count_include_pad = chance(50);
    }
    add(kind, {x}, std::move(y), std::move(spec));
  }

  /// A convolution that keeps everything, then some of: norm, relu, the sum with an earlier value, relu, a pool.
  void add_block(std::size_t x) {
    LayerSpec conv;
    conv.kernel_h = conv.kernel_w = 3;
    conv.pad_h = conv.pad_w = 1;
    conv.out = values_[x].channels;
    conv.bias = false;
    add(LayerKind::conv2d, {x}, values_[x], std::move(conv));
    const auto last = [this] { return values_.size() - 1; };
    if (chance(80)) add_norm(last());
    if (chance(30)) add_activation(last());
    if (chance(60)) add_sum(last());
    if (chance(60)) add_activation(last());
    if (chance(30)) add_window(LayerKind::max_pool, last());
  }

  void add_linear(std::size_t x) {
    LayerSpec spec;
    spec.out = 1 + static_cast<std::int64_t>(below(8));
    spec.bias = chance(70);
    Value y = values_[x];
    y.channels = spec.out;
    add(LayerKind::linear, {x}, std::move(y), std::move(spec));
  }

  void add_norm(std::size_t x) {
    if (!options_.batch_norm) return add_activation(x);
    LayerSpec spec;
    spec.zero_init = chance(20);
    add(LayerKind::batch_norm, {x}, values_[x], std::move(spec));
  }

  void add_activation(std::size_t x) {
    constexpr std::array kKinds{LayerKind::relu,       LayerKind::leaky_relu, LayerKind::relu6,   LayerKind::silu,
                                LayerKind::hard_swish, LayerKind::gelu,       LayerKind::sigmoid, LayerKind::tanh};
    const bool relu = options_.blocks && chance(75);
    add(relu ? LayerKind::relu : kKinds[below(kKinds.size())], {x}, values_[x]);
  }

  /// An earlier value that joins with x: equal sizes everywhere and, for add, equal channels. x itself when there is no
  /// other.
  std::size_t partner(std::size_t x, bool equal_channels) {
    std::vector<std::size_t> fits;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const Value &a = values_[i], &b = values_[x];
      if (i == x || a.map != b.map || a.sizes != b.sizes || (equal_channels && a.channels != b.channels)) continue;
      fits.push_back(i);
    }
    return fits.empty() ? x : fits[below(fits.size())];
  }

  void add_sum(std::size_t x) {
    const std::size_t other = partner(x, true);
    add(LayerKind::add, {other, x}, values_[x]);
  }

  void add_concat(std::size_t x) {
    std::vector<std::size_t> inputs{x};
    while (inputs.size() < 2 || (inputs.size() < 4 && chance(30))) inputs.push_back(partner(x, false));
    Value y = values_[x];
    y.channels = 0;
    for (const std::size_t input : inputs) y.channels += values_[input].channels;
    if (y.channels > 64) return add_activation(x);
    add(LayerKind::concat, std::move(inputs), std::move(y));
  }

  void add_rare(std::size_t x) {
    if (options_.dropout && chance(50)) return add(LayerKind::dropout, {x}, values_[x]);
    if (values_[x].map && chance(30)) return add_flat(x);
    add_activation(x);
  }

  /// global_avg_pool then flatten: parameters after it do not depend on the resolution.
  void add_flat(std::size_t x) {
    Value y = values_[x];
    for (auto& size : y.sizes) size = {1, 1};
    add(LayerKind::global_avg_pool, {x}, y);
    y.map = false;
    add(LayerKind::flatten, {values_.size() - 1}, std::move(y));
  }

  /// Joins all values that nobody reads into one and classifies it.
  void join() {
    std::vector<std::size_t> open;
    for (std::size_t i = 0, count = values_.size(); i < count; ++i) {
      if (values_[i].read) continue;
      if (values_[i].map) add_flat(i);
      open.push_back(values_[i].map ? values_.size() - 1 : i);
    }
    if (open.size() > 1) {
      Value y = values_[open[0]];
      y.channels = 0;
      for (const std::size_t input : open) y.channels += values_[input].channels;
      add(LayerKind::concat, open, std::move(y));
    }
    add(LayerKind::linear, {values_.size() - 1}, values_.back());  // out = 0: the class count.
  }

  std::mt19937_64 random_;
  RandomModelOptions options_;
  ModelSpec spec_;
  std::vector<Value> values_;
};

inline ModelSpec random_model(std::uint64_t seed, const RandomModelOptions& options = {}) {
  return RandomModel(seed, options).make();
}

}  // namespace renai::testing
