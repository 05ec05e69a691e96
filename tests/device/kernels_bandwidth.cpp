// kernels_bandwidth [batch]: time and GB/s of the kernels that only move memory, at the shapes of ResNet-50 in bf16,
// beside a device copy of the same size. Each figure is the median of several replays of a captured graph of launches
// that take turns over enough sets of tensors to leave the L2 cache. "bytes" are those that the passes must read and
// write.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "../../src/backend/cuda/kernels/elementwise.hpp"
#include "../../src/backend/cuda/kernels/norm.hpp"
#include "../../src/backend/cuda/kernels/pool.hpp"

namespace renai::cuda {
namespace {

constexpr int kLaunches = 12, kReplays = 9;

void require(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

/// One allocation that the measurements cut tensors from, filled with small numbers.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes) {
    void* data = nullptr;
    require(cudaMalloc(&data, bytes), "allocating device memory");
    data_ = static_cast<std::byte*>(data);
    require(cudaMemset(data, 0x3c, bytes), "filling device memory");  // 0.0115 in bf16
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { cudaFree(data_); }

  /// The next `bytes`, 256-byte aligned; starts over at the end.
  std::byte* take(std::size_t bytes) {
    const std::size_t size = (bytes + 255) / 256 * 256;
    if (size > bytes_) throw std::runtime_error("a tensor larger than the memory of the measurement");
    if (used_ + size > bytes_) used_ = 0;
    used_ += size;
    return data_ + used_ - size;
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_, used_ = 0;
};

/// Median time of one launch. Units: microseconds.
double measure(cudaStream_t stream, const std::function<void()>& launch_once) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
  for (int i = 0; i < kLaunches; ++i) launch_once();
  require(cudaStreamEndCapture(stream, &graph), "capturing");
  require(cudaGraphInstantiate(&executable, graph, 0), "instantiating");
  cudaEvent_t start = nullptr, end = nullptr;
  require(cudaEventCreate(&start), "an event");
  require(cudaEventCreate(&end), "an event");
  std::vector<float> times;
  for (int replay = -2; replay < kReplays; ++replay) {
    require(cudaEventRecord(start, stream), "an event");
    require(cudaGraphLaunch(executable, stream), "a replay");
    require(cudaEventRecord(end, stream), "an event");
    require(cudaStreamSynchronize(stream), "a replay");
    float milliseconds = 0;
    require(cudaEventElapsedTime(&milliseconds, start, end), "an event");
    if (replay >= 0) times.push_back(milliseconds);
  }
  require(cudaEventDestroy(start), "an event");
  require(cudaEventDestroy(end), "an event");
  require(cudaGraphExecDestroy(executable), "an executable");
  require(cudaGraphDestroy(graph), "a graph");
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return 1e3 * static_cast<double>(times[times.size() / 2]) / kLaunches;
}

void print(const char* name, double microseconds, double bytes) {
  std::printf("  %-34s %8.1f us %8.0f MB %6.0f GB/s\n", name, microseconds, bytes * 1e-6, bytes / microseconds * 1e-3);
}

/// Per-channel arrays that every measurement shares.
struct Channels {
  Memory memory{std::size_t{16} << 20};
  float* next() { return reinterpret_cast<float*>(memory.take(std::size_t{1} << 20)); }
  float *scale = next(), *bias = next(), *mean = next(), *var = next(), *unbiased = next(), *dscale = next(),
        *dbias = next();
};

struct Bench {
  cudaStream_t stream;
  Memory& tensors;
  const Channels& channels;
  std::byte* workspace;

  void norm(std::int64_t rows, std::int64_t c) const {
    const auto bytes = static_cast<std::size_t>(rows * c * 2);
    const auto mask_bytes = static_cast<std::size_t>(norm_mask_bytes(rows, c));
    const double size = static_cast<double>(bytes), bits = static_cast<double>(mask_bytes);
    std::printf("norm [%lld, %lld]\n", static_cast<long long>(rows), static_cast<long long>(c));
    print("copy",
          measure(stream,
                  [&] {
                    std::byte* from = tensors.take(bytes);
                    require(cudaMemcpyAsync(tensors.take(bytes), from, bytes, cudaMemcpyDeviceToDevice, stream),
                            "a copy");
                  }),
          2 * size);
    const double folded = measure(stream, [&] {
      launch(NormFolded{tensors.take(bytes), channels.scale, channels.bias, nullptr, tensors.take(bytes), rows, c,
                        NormTail::relu, DType::bf16},
             stream);
    });
    print("folded relu", folded, 2 * size);
    const double relu = forward(rows, c, NormTail::relu);
    print("forward relu", relu, 3 * size);
    print("  its statistics (by difference)", relu - folded, size);
    print("forward add_relu, mask", forward(rows, c, NormTail::add_relu), 4 * size + bits);
    print("backward none", backward(rows, c, NormTail::none, false, false), 5 * size);
    print("backward relu", backward(rows, c, NormTail::relu, false, false), 5 * size);
    print("backward add_relu, dz", backward(rows, c, NormTail::add_relu, false, true), 6 * size + bits);
    print("backward add_relu, dy2, dz", backward(rows, c, NormTail::add_relu, true, true), 7 * size + bits);
  }

  double forward(std::int64_t rows, std::int64_t c, NormTail tail) const {
    const auto bytes = static_cast<std::size_t>(rows * c * 2);
    return measure(stream, [&] {
      NormForward n;
      n.x = tensors.take(bytes);
      n.scale = channels.scale;
      n.bias = channels.bias;
      if (tail == NormTail::add_relu) {
        n.other = tensors.take(bytes);
        n.mask = reinterpret_cast<std::uint32_t*>(tensors.take(static_cast<std::size_t>(norm_mask_bytes(rows, c))));
      }
      n.y = tensors.take(bytes);
      n.mean = channels.mean;
      n.var_unbiased = channels.unbiased;
      n.var_biased = channels.var;
      n.workspace = workspace;
      n.rows = rows;
      n.c = c;
      n.tail = tail;
      n.dtype = DType::bf16;
      launch(n, stream);
    });
  }

  double backward(std::int64_t rows, std::int64_t c, NormTail tail, bool second, bool keeps) const {
    const auto bytes = static_cast<std::size_t>(rows * c * 2);
    return measure(stream, [&] {
      NormBackward n;
      n.x = tensors.take(bytes);
      n.dy = tensors.take(bytes);
      n.dy2 = second ? tensors.take(bytes) : nullptr;
      n.scale = channels.scale;
      n.bias = channels.bias;
      n.mean = channels.mean;
      n.var_biased = channels.var;
      const auto mask_bytes = static_cast<std::size_t>(norm_mask_bytes(rows, c));
      if (tail == NormTail::add_relu) n.mask = reinterpret_cast<std::uint32_t*>(tensors.take(mask_bytes));
      n.dx = tensors.take(bytes);
      n.dz = keeps ? tensors.take(bytes) : nullptr;
      n.dscale = channels.dscale;
      n.dbias = channels.dbias;
      n.workspace = workspace;
      n.rows = rows;
      n.c = c;
      n.tail = tail;
      n.dtype = DType::bf16;
      launch(n, stream);
    });
  }

  void pools(std::int64_t batch) const {
    PoolShape s;
    s.n = batch;
    s.h = s.w = 112;
    s.c = 64;
    s.out_h = s.out_w = 56;
    s.params.window = {3, 3, 2, 2, 1, 1, 1, 1};
    s.dtype = DType::bf16;
    const auto x = static_cast<std::size_t>(s.n * s.h * s.w * s.c * 2);
    const auto y = static_cast<std::size_t>(s.n * s.out_h * s.out_w * s.c * 2);
    std::printf("pools\n");
    const auto places = [&] { return reinterpret_cast<std::uint8_t*>(tensors.take(y / 2)); };
    const double bytes = static_cast<double>(x + y + y / 2);
    print("max 3x3/2, places",
          measure(stream,
                  [&] {
                    const std::byte* from = tensors.take(x);
                    std::byte* to = tensors.take(y);
                    launch_max_pool(s, from, to, places(), stream);
                  }),
          bytes);
    print("max 3x3/2, gradient",
          measure(stream,
                  [&] {
                    const std::byte* dy = tensors.take(y);
                    std::byte* dx = tensors.take(x);
                    launch_max_pool_grad(s, places(), dy, dx, stream);
                  }),
          bytes);
    s.h = s.w = 7;
    s.out_h = s.out_w = 1;
    s.c = 2048;
    const auto small = static_cast<std::size_t>(s.n * 49 * s.c * 2), means = static_cast<std::size_t>(s.n * s.c * 2);
    print("global average 7x7",
          measure(stream,
                  [&] {
                    const std::byte* from = tensors.take(small);
                    launch_global_avg_pool(s, from, tensors.take(means), stream);
                  }),
          static_cast<double>(small + means));
    print("global average 7x7, gradient",
          measure(stream,
                  [&] {
                    const std::byte* dy = tensors.take(means);
                    launch_global_avg_pool_grad(s, dy, tensors.take(small), stream);
                  }),
          static_cast<double>(small + means));
  }

  void element_wise(std::int64_t elems) const {
    const auto bytes = static_cast<std::size_t>(elems * 2);
    const double size = static_cast<double>(bytes);
    std::printf("element-wise, %lld elements\n", static_cast<long long>(elems));
    print("add",
          measure(stream,
                  [&] {
                    const std::byte *a = tensors.take(bytes), *b = tensors.take(bytes);
                    launch_add(a, b, tensors.take(bytes), elems, DType::bf16, stream);
                  }),
          3 * size);
    print("relu",
          measure(stream,
                  [&] {
                    const std::byte* x = tensors.take(bytes);
                    launch_activation(x, tensors.take(bytes), elems, {}, DType::bf16, stream);
                  }),
          2 * size);
    print("cast to bf16",
          measure(stream,
                  [&] {
                    const auto* x = reinterpret_cast<const float*>(tensors.take(2 * bytes));
                    launch_cast(x, tensors.take(bytes), elems, DType::bf16, stream);
                  }),
          3 * size);
    print("column sums [, 64]",
          measure(stream,
                  [&] {
                    launch_column_sums(tensors.take(bytes), channels.dbias, elems / 64, 64, workspace, DType::bf16,
                                       stream);
                  }),
          size);
  }
};

void run(std::int64_t batch) {
  cudaStream_t stream = nullptr;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
  Memory tensors(std::size_t{8} << 30), workspace(std::size_t{256} << 20);
  const Channels channels;
  const Bench bench{stream, tensors, channels, workspace.take(std::size_t{128} << 20)};
  for (const auto& [side, c] : {std::pair<std::int64_t, std::int64_t>{112, 64},
                                {56, 64},
                                {56, 256},
                                {28, 128},
                                {28, 512},
                                {14, 256},
                                {14, 1024},
                                {7, 512},
                                {7, 2048}}) {
    bench.norm(batch * side * side, c);
  }
  std::printf("a few rows: what the launches cost\n");
  print("forward relu [64, 2048]", bench.forward(64, 2048, NormTail::relu), 3.0 * 64 * 2048 * 2);
  print("backward relu [64, 2048]", bench.backward(64, 2048, NormTail::relu, false, false), 5.0 * 64 * 2048 * 2);
  bench.pools(batch);
  bench.element_wise(batch * 56 * 56 * 256);
  require(cudaStreamDestroy(stream), "a stream");
}

}  // namespace
}  // namespace renai::cuda

int main(int argc, char** argv) {
  try {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
      std::printf("no GPU: nothing measured\n");
      return 0;
    }
    renai::cuda::run(argc > 1 ? std::atoll(argv[1]) : 256);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
