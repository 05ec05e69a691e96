// Batch norm backward: one pass for the sums of g and g * (x - mean), finalized in f64, one pass for dx.

#include "norm.cuh"

namespace renai::cuda {
namespace {

/// How g comes from dy: all of it, where relu(bn(x)) > 0 by x's sign, where the mask says so.
enum class Gate : std::uint8_t { open, sign, mask };

struct Gradient {
  const void *x, *dy, *dy2;
  const std::uint32_t* mask;
};

/// What a thread holds of U rows: loads first, all of them, so that they are in flight together.
template <typename T, int V, int U, Gate gate, bool second>
struct Loaded {
  Vector<T, V> x[U], dy[U], dy2[second ? U : 1];
  unsigned bits[U];

  /// `last`: nobody reads x and dy again soon.
  template <bool last>
  __device__ void load(const Gradient& from, const RowTiling& t, int row, const RowPlace& place) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int at = row + u * t.row_lanes;
      const std::int64_t index = row_index(t, place, at);
      // What lies outside has dy = 0.
      x[u] = dy[u] = Vector<T, V>::zero();
      if constexpr (second) dy2[u] = Vector<T, V>::zero();
      bits[u] = 0;
      if (!place.active || at >= t.rows) continue;
      x[u] = last ? Vector<T, V>::load_last(from.x, index) : Vector<T, V>::load(from.x, index);
      dy[u] = last ? Vector<T, V>::load_last(from.dy, index) : Vector<T, V>::load(from.dy, index);
      if constexpr (second) dy2[u] = Vector<T, V>::load(from.dy2, index);
      if constexpr (gate == Gate::mask) {
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(from.mask);
        bits[u] = static_cast<unsigned>(bytes[index * V / 8]) >> (index * V % 8);
      }
    }
  }

  /// x and g of row u.
  __device__ void gradient(int u, const float (&a)[V], const float (&b)[V], float (&x_values)[V], float (&g)[V]) const {
    x[u].widen_to(x_values);
    dy[u].widen_to(g);
    if constexpr (second) {
      float more[V];
      dy2[u].widen_to(more);
#pragma unroll
      for (int j = 0; j < V; ++j) g[j] += more[j];
    }
#pragma unroll
    for (int j = 0; j < V; ++j) {
      if constexpr (gate == Gate::sign) g[j] = norm_apply(x_values[j], a[j], b[j]) > kRoundsToZero<T> ? g[j] : 0.0f;
      if constexpr (gate == Gate::mask) g[j] = (bits[u] >> j & 1u) != 0 ? g[j] : 0.0f;
    }
  }
};

struct Channels {
  const float *scale, *bias, *mean, *var_biased;
  float eps;
};

/// Rows in flight, of two or three tensors each.
constexpr int unroll_of(int elems) { return elems == 1 ? 4 : 2; }
constexpr int blocks_of(Gate gate, bool second) { return gate == Gate::sign || second ? kSumBlocksFew : kSumBlocks; }

/// The affine map of a thread's channels, for Gate::sign.
template <int V>
__device__ inline void load_affine(const Channels& p, std::int64_t channel, const float (&mean)[V], float (&a)[V],
                                   float (&b)[V]) {
  float scale[V], bias[V], var[V];
  load_floats(p.scale, channel, scale);
  load_floats(p.bias, channel, bias);
  load_floats(p.var_biased, channel, var);
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const NormAffine map = norm_affine(scale[j], bias[j], mean[j], norm_inverse(var[j], p.eps));
    a[j] = map.a;
    b[j] = map.b;
  }
}

/// Partial sums of g and g * (x - mean); g goes to `dz` when wanted, and the sums then take the value rounded there.
/// Row tiles from the last to the first.
template <typename T, int V, Gate gate, bool second, bool keeps>
__global__ void __launch_bounds__(kRowThreads, blocks_of(gate, second) / 132)
    sum_gradients(Gradient from, Channels channels, void* dz, float* partials, RowTiling t) {
  constexpr int U = unroll_of(V);
  __shared__ float shared[2 * V * kRowThreads];
  const RowPlace place = row_place(t);
  float mean[V] = {}, a[V] = {}, b[V] = {}, sums[2 * V] = {};
  if (place.active) {
    load_floats(channels.mean, place.vector * V, mean);
    if constexpr (gate == Gate::sign) load_affine(channels, place.vector * V, mean, a, b);
  }
  for (int k = 0; k < t.tiles; ++k) {
    const int tile = t.row_tiles - 1 - (place.row_block + k * t.row_blocks);
    if (tile < 0) break;
    const int row = tile * U * t.row_lanes + place.row_lane;
    Loaded<T, V, U, gate, second> loaded;
    loaded.template load<false>(from, t, row, place);
#pragma unroll
    for (int u = 0; u < U; ++u) {
      float x[V], g[V];
      loaded.gradient(u, a, b, x, g);
      if constexpr (keeps) {
        const Vector<T, V> rounded = Vector<T, V>::narrow_from(g);
        rounded.widen_to(g);
        const int at = row + u * t.row_lanes;
        if (place.active && at < t.rows) rounded.store(dz, row_index(t, place, at));
      }
#pragma unroll
      for (int j = 0; j < V; ++j) {
        sums[j] += g[j];
        sums[V + j] = __fmaf_rn(g[j], x[j] - mean[j], sums[V + j]);
      }
    }
  }
  add_row_lanes(sums, shared, t, place.row_lane);
  if (place.active && place.row_lane == 0) store_partials<2, V>(sums, partials, t, place);
}

struct Finish {
  Channels channels;
  float *dscale, *dbias, *factors;
  std::int64_t rows, c;
  int row_blocks;
};

/// Leaves dx = k1 * g + k2 * x + k3 and the affine map in the workspace: arrays k1, k2, k3, a, b. `sums` of g and of
/// g * (x - mean) over `count` rows.
__device__ inline void write_factors(const Finish& f, std::int64_t channel, NormPair sums, double count) {
  const float scale = f.channels.scale[channel], mean = f.channels.mean[channel], eps = f.channels.eps;
  const float var = f.channels.var_biased[channel];
  const double inverse = 1.0 / sqrt(double{var} + double{eps});
  const double k1 = double{scale} * inverse, k2 = -k1 * inverse * inverse * sums.second / count;
  f.factors[channel] = static_cast<float>(k1);
  f.factors[f.c + channel] = static_cast<float>(k2);
  f.factors[2 * f.c + channel] = static_cast<float>(-k1 * sums.first / count - k2 * double{mean});
  const NormAffine map =
      norm_affine(scale, f.channels.bias == nullptr ? 0.0f : f.channels.bias[channel], mean, norm_inverse(var, eps));
  f.factors[3 * f.c + channel] = map.a;
  f.factors[4 * f.c + channel] = map.b;
}

/// Of this shard alone, or into its block. The gradients of scale and bias are its own either way.
__global__ void __launch_bounds__(kFinalThreads) finish_gradients(const float* partials, Finish f, NormShards shards) {
  const Sums<2> sum = add_row_blocks<2>(partials, f.row_blocks, f.c);
  const std::int64_t channel = final_channel(f.c);
  if (channel < 0) return;
  const NormPair sums{sum.at[0], sum.at[1]};
  const double inverse = 1.0 / sqrt(double{f.channels.var_biased[channel]} + double{f.channels.eps});
  f.dscale[channel] = static_cast<float>(sums.second * inverse);
  f.dbias[channel] = static_cast<float>(sums.first);
  if (shards.blocks != nullptr) return store_pair(shards, f.c, channel, sums);
  write_factors(f, channel, sums, static_cast<double>(f.rows));
}

__global__ void __launch_bounds__(kShardThreads) share_gradients(Finish f, NormShards shards) {
  const std::int64_t channel = std::int64_t{blockIdx.x} * kShardThreads + threadIdx.x;
  if (channel >= f.c) return;
  const NormPair sums = add_shards(shards, f.c, channel, [](NormPair a, NormPair b, int) {
    return NormPair{a.first + b.first, a.second + b.second};
  });
  write_factors(f, channel, sums, static_cast<double>(f.rows) * shards.shards);
}

template <typename T, int V, Gate gate, bool second>
__global__ void __launch_bounds__(kRowThreads, gate == Gate::sign ? 3 : 4)
    write_gradients(Gradient from, const float* factors, void* dx, RowTiling t) {
  constexpr int U = unroll_of(V);
  const RowPlace place = row_place(t);
  float k1[V] = {}, k2[V] = {}, k3[V] = {}, a[V] = {}, b[V] = {};
  if (place.active) {
    const int c = t.vectors * V, channel = place.vector * V;
    load_floats(factors, channel, k1);
    load_floats(factors + c, channel, k2);
    load_floats(factors + 2 * c, channel, k3);
    if constexpr (gate == Gate::sign) {
      load_floats(factors + 3 * c, channel, a);
      load_floats(factors + 4 * c, channel, b);
    }
  }
  for (int k = 0; k < t.tiles; ++k) {
    const int row = (place.row_block * t.tiles + k) * U * t.row_lanes + place.row_lane;
    Loaded<T, V, U, gate, second> loaded;
    loaded.template load<true>(from, t, row, place);
#pragma unroll
    for (int u = 0; u < U; ++u) {
      float x[V], g[V];
      loaded.gradient(u, a, b, x, g);
#pragma unroll
      for (int j = 0; j < V; ++j) g[j] = __fmaf_rn(k1[j], g[j], __fmaf_rn(k2[j], x[j], k3[j]));
      const int at = row + u * t.row_lanes;
      if (place.active && at < t.rows) Vector<T, V>::narrow_from(g).store(dx, row_index(t, place, at));
    }
  }
}

template <typename T, int V, Gate gate, bool second>
void launch_write(const Gradient& from, const NormBackward& n, cudaStream_t stream) {
  const RowTiling t = write_tiling(n.rows, n.c, V, unroll_of(V));
  write_gradients<T, V, gate, second>
      <<<t.grid(), kRowThreads, 0, stream>>>(from, reinterpret_cast<const float*>(n.workspace), n.dx, t);
  check_launch("write_gradients");
}

template <typename T, int V, Gate gate, bool second>
void launch_passes(const NormBackward& n, NormHalf half, cudaStream_t stream) {
  const Gradient from{n.x, n.dy, n.dy2, n.mask};
  const Channels channels{n.scale, n.bias, n.mean, n.var_biased, n.eps};
  float* const partials = norm_partials(n.workspace, n.c);
  const RowTiling t = sums_tiling(n.rows, n.c, V, unroll_of(V), blocks_of(gate, second));
  const Finish finish{channels, n.dscale, n.dbias, reinterpret_cast<float*>(n.workspace), n.rows, n.c, t.row_blocks};
  if (half == NormHalf::shared) {
    share_gradients<<<shard_blocks(n.c), kShardThreads, 0, stream>>>(finish, n.shards);
    check_launch("share_gradients");
  } else {
    const auto kernel =
        n.dz != nullptr ? sum_gradients<T, V, gate, second, true> : sum_gradients<T, V, gate, second, false>;
    kernel<<<t.grid(), kRowThreads, 0, stream>>>(from, channels, n.dz, partials, t);
    check_launch("sum_gradients");
    const auto blocks = static_cast<unsigned>(ceil_div<std::int64_t>(n.c, kFinalChannels));
    finish_gradients<<<blocks, kFinalThreads, 0, stream>>>(partials, finish, n.shards);
    check_launch("finish_gradients");
  }
  if (half == NormHalf::own) return;
  if (n.dz != nullptr) return launch_write<T, V, Gate::open, false>({n.x, n.dz, nullptr, nullptr}, n, stream);
  launch_write<T, V, gate, second>(from, n, stream);
}

template <typename T, int V, Gate gate>
void launch_gated(const NormBackward& n, NormHalf half, cudaStream_t stream) {
  if (n.dy2 != nullptr) return launch_passes<T, V, gate, true>(n, half, stream);
  launch_passes<T, V, gate, false>(n, half, stream);
}

void launch_half(const NormBackward& n, NormHalf half, cudaStream_t stream) {
  if (n.rows == 0) return;
  const bool gated = n.tail == NormTail::add_relu;
  if (n.tail == NormTail::relu_add || (gated && n.mask == nullptr) || (n.tail == NormTail::relu && n.bias == nullptr)) {
    throw InternalError("a batch norm gradient has no signs for its relu",
                        "relu needs the bias, add_relu the mask of the forward pass; relu_add is a relu here");
  }
  const auto run = [&](auto element, auto elems) {
    using T = decltype(element);
    constexpr int V = decltype(elems)::value;
    if (n.tail == NormTail::relu) return launch_gated<T, V, Gate::sign>(n, half, stream);
    if (gated) return launch_gated<T, V, Gate::mask>(n, half, stream);
    launch_gated<T, V, Gate::open>(n, half, stream);
  };
  const int elems = n.dtype == DType::f32 ? 4 : 8;
  const bool aligned =
      vector_aligned({n.x, n.dy, n.dy2, n.scale, n.bias, n.mean, n.var_biased, n.dx, n.dz, n.workspace});
  with_vectors(n.dtype, n.c % elems == 0 && aligned, run);
}

}  // namespace

void launch(const NormBackward& n, cudaStream_t stream) {
  RENAI_CHECK(n.shards.blocks == nullptr, "a batch norm over several shards runs in two halves");
  launch_half(n, NormHalf::whole, stream);
}

void launch_own_sums(const NormBackward& n, cudaStream_t stream) { launch_half(n, NormHalf::own, stream); }

void launch_shared(const NormBackward& n, cudaStream_t stream) { launch_half(n, NormHalf::shared, stream); }

}  // namespace renai::cuda
