// Activations, sums, casts and dropout: one pass over flat tensors.

#include "../../dropout_key.hpp"
#include "elementwise.hpp"
#include "vectors.cuh"

namespace renai::cuda {
namespace {

constexpr int kThreads = 256, kUnroll = 4;

/// out[i] = f(a[i]) or f(a[i], b[i]). A block takes kThreads * kUnroll vectors; the elements past the last whole vector
/// are the first block's. out may be a or b: a thread reads its elements before it writes them.
template <typename T, int V, bool two, typename F>
__global__ void __launch_bounds__(kThreads)
    map_vectors(const void* a, const void* b, void* out, std::int64_t elems, F f) {
  const std::int64_t vectors = elems / V;
  const std::int64_t first = std::int64_t{blockIdx.x} * (kThreads * kUnroll) + threadIdx.x;
  Vector<T, V> x[kUnroll], y[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::int64_t at = first + u * kThreads;
    x[u] = at < vectors ? Vector<T, V>::load(a, at) : Vector<T, V>::zero();
    if constexpr (two) y[u] = at < vectors ? Vector<T, V>::load(b, at) : Vector<T, V>::zero();
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::int64_t at = first + u * kThreads;
    float p[V], q[V] = {};
    x[u].widen_to(p);
    if constexpr (two) y[u].widen_to(q);
#pragma unroll
    for (int j = 0; j < V; ++j) p[j] = f(p[j], q[j]);
    if (at < vectors) Vector<T, V>::narrow_from(p).store(out, at);
  }
  const std::int64_t last = vectors * V + threadIdx.x;
  if (V == 1 || blockIdx.x != 0 || last >= elems) return;
  float p[1], q[1] = {};
  Vector<T, 1>::load(a, last).widen_to(p);
  if constexpr (two) Vector<T, 1>::load(b, last).widen_to(q);
  p[0] = f(p[0], q[0]);
  Vector<T, 1>::narrow_from(p).store(out, last);
}

/// Blocks for `elems` elements in vectors of `length`; at least one.
unsigned map_blocks(std::int64_t elems, int length) {
  return static_cast<unsigned>(std::max<std::int64_t>(ceil_div<std::int64_t>(elems / length, kThreads * kUnroll), 1));
}

template <bool two, typename F>
void launch_map(const void* a, const void* b, void* out, std::int64_t elems, F f, DType dtype, cudaStream_t stream) {
  if (elems == 0) return;
  with_vectors(dtype, vector_aligned({a, b, out}), [&](auto element, auto length) {
    constexpr int V = decltype(length)::value;
    map_vectors<decltype(element), V, two><<<map_blocks(elems, V), kThreads, 0, stream>>>(a, b, out, elems, f);
  });
  check_launch("map_vectors");
}

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/// Comparisons are such that not-a-number passes through, so that a broken step is seen.
template <Activation kind>
struct Value {
  float negative;

  __device__ float operator()(float x, float) const {
    switch (kind) {
      case Activation::relu: return x < 0 ? 0 : x;
      case Activation::leaky_relu: return x < 0 ? x * negative : x;
      case Activation::relu6: return x < 0 ? 0 : x > 6 ? 6 : x;
      case Activation::silu: return x * sigmoid(x);
      case Activation::hard_swish: {
        const float gate = x + 3;
        return x * (gate < 0 ? 0 : gate > 6 ? 6 : gate) / 6;
      }
      case Activation::gelu: return x * normcdff(x);
      case Activation::sigmoid: return sigmoid(x);
      case Activation::tanh: return tanhf(x);
    }
    return x;
  }
};

/// Derivative from `v`: the output where backward_reads_output says so, else the input; times dy.
template <Activation kind>
struct Slope {
  float negative;

  __device__ float operator()(float v, float dy) const { return dy * slope(v); }

  __device__ float slope(float v) const {
    switch (kind) {
      case Activation::relu: return v > 0 ? 1 : 0;
      case Activation::leaky_relu: return v > 0 ? 1 : negative;
      case Activation::relu6: return v > 0 && v < 6 ? 1 : 0;
      case Activation::silu: {
        const float s = sigmoid(v);
        return s * (1 + v * (1 - s));
      }
      case Activation::hard_swish: return v <= -3 ? 0 : v >= 3 ? 1 : (2 * v + 3) / 6;
      case Activation::gelu: {
        constexpr float kInverseRoot = 0.398942280401432678f;  // 1 / sqrt(2 pi)
        return normcdff(v) + v * (kInverseRoot * expf(-0.5f * v * v));
      }
      case Activation::sigmoid: return v * (1 - v);
      case Activation::tanh: return 1 - v * v;
    }
    return 1;
  }
};

/// Calls f with an integral_constant of the kind.
template <typename F>
void with_kind(Activation kind, F&& f) {
  const auto call = [&]<Activation value>() { f(std::integral_constant<Activation, value>{}); };
  switch (kind) {
    case Activation::relu: return call.template operator()<Activation::relu>();
    case Activation::leaky_relu: return call.template operator()<Activation::leaky_relu>();
    case Activation::relu6: return call.template operator()<Activation::relu6>();
    case Activation::silu: return call.template operator()<Activation::silu>();
    case Activation::hard_swish: return call.template operator()<Activation::hard_swish>();
    case Activation::gelu: return call.template operator()<Activation::gelu>();
    case Activation::sigmoid: return call.template operator()<Activation::sigmoid>();
    case Activation::tanh: return call.template operator()<Activation::tanh>();
  }
}

struct Plus {
  __device__ float operator()(float a, float b) const { return a + b; }
};

/// V elements from f32 to T or back; the elements past the last whole vector are the first block's.
template <typename T, int V, bool to_f32>
__global__ void __launch_bounds__(kThreads) cast_vectors(const void* from, void* to, std::int64_t elems) {
  const std::int64_t vectors = elems / V;
  const std::int64_t first = std::int64_t{blockIdx.x} * (kThreads * kUnroll) + threadIdx.x;
  const auto cast = [&]<int length>(std::int64_t at) {
    float values[length];
    if constexpr (to_f32) {
      Vector<T, length>::load(from, at).widen_to(values);
      store_floats(static_cast<float*>(to), at * length, values);
    } else {
      load_floats(static_cast<const float*>(from), at * length, values);
      Vector<T, length>::narrow_from(values).store(to, at);
    }
  };
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::int64_t at = first + u * kThreads;
    if (at < vectors) cast.template operator()<V>(at);
  }
  const std::int64_t last = vectors * V + threadIdx.x;
  if (V > 1 && blockIdx.x == 0 && last < elems) cast.template operator()<1>(last);
}

template <bool to_f32>
void cast(const void* from, void* to, std::int64_t elems, DType dtype, cudaStream_t stream) {
  if (elems == 0) return;
  with_vectors(dtype, vector_aligned({from, to}), [&](auto element, auto length) {
    constexpr int V = decltype(length)::value;
    cast_vectors<decltype(element), V, to_f32><<<map_blocks(elems, V), kThreads, 0, stream>>>(from, to, elems);
  });
  check_launch("cast_vectors");
}

/// A thread takes V elements: whole random blocks of kDropoutBlockElems, or one element of one.
template <typename T, int V>
__device__ inline void drop(const void* from, void* to, std::int64_t at, const DropoutParams& params, float scale,
                            const ControlBlock& control) {
  constexpr int kBlock = static_cast<int>(kDropoutBlockElems);
  float values[V];
  Vector<T, V>::load(from, at).widen_to(values);
#pragma unroll
  for (int i = 0; i < V; i += kBlock) {
    const std::int64_t element = at * V + i;
    const PhiloxBlock words = dropout_block(control, params.layer, element / kBlock);
    if constexpr (V == 1) {
      const std::int64_t place = element % kBlock;
      const std::uint32_t word = place == 0 ? words[0] : place == 1 ? words[1] : place == 2 ? words[2] : words[3];
      values[0] = dropout_keeps(word, params.p) ? values[0] * scale : 0.0f;
    } else {
#pragma unroll
      for (int j = 0; j < kBlock; ++j) {
        values[i + j] = dropout_keeps(words[static_cast<std::size_t>(j)], params.p) ? values[i + j] * scale : 0.0f;
      }
    }
  }
  Vector<T, V>::narrow_from(values).store(to, at);
}

template <typename T, int V>
__global__ void __launch_bounds__(kThreads)
    drop_elements(const void* from, void* to, std::int64_t elems, DropoutParams params, const ControlBlock* control) {
  const ControlBlock key = *control;
  const float scale = dropout_scale(params.p);
  const std::int64_t vectors = elems / V, at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at < vectors) drop<T, V>(from, to, at, params, scale, key);
  const std::int64_t last = vectors * V + threadIdx.x;
  if (V > 1 && blockIdx.x == 0 && last < elems) drop<T, 1>(from, to, last, params, scale, key);
}

}  // namespace

void launch_activation(const void* x, void* y, std::int64_t elems, const ActivationParams& params, DType dtype,
                       cudaStream_t stream) {
  with_kind(params.kind, [&](auto kind) {
    launch_map<false>(x, nullptr, y, elems, Value<decltype(kind)::value>{params.slope}, dtype, stream);
  });
}

void launch_activation_grad(const void* saved, const void* dy, void* dx, std::int64_t elems,
                            const ActivationParams& params, DType dtype, cudaStream_t stream) {
  with_kind(params.kind, [&](auto kind) {
    launch_map<true>(saved, dy, dx, elems, Slope<decltype(kind)::value>{params.slope}, dtype, stream);
  });
}

void launch_add(const void* a, const void* b, void* y, std::int64_t elems, DType dtype, cudaStream_t stream) {
  launch_map<true>(a, b, y, elems, Plus{}, dtype, stream);
}

void launch_dropout(const void* from, void* to, std::int64_t elems, const DropoutParams& params,
                    const ControlBlock* control, DType dtype, cudaStream_t stream) {
  if (elems == 0) return;
  with_vectors(dtype, vector_aligned({from, to}), [&](auto element, auto length) {
    constexpr int V = decltype(length)::value;
    const auto blocks = static_cast<unsigned>(std::max<std::int64_t>(ceil_div<std::int64_t>(elems / V, kThreads), 1));
    drop_elements<decltype(element), V><<<blocks, kThreads, 0, stream>>>(from, to, elems, params, control);
  });
  check_launch("drop_elements");
}

void launch_cast(const float* from, void* to, std::int64_t elems, DType to_dtype, cudaStream_t stream) {
  cast<false>(from, to, elems, to_dtype, stream);
}

void launch_cast_to_f32(const void* from, float* to, std::int64_t elems, DType from_dtype, cudaStream_t stream) {
  cast<true>(from, to, elems, from_dtype, stream);
}

}  // namespace renai::cuda
