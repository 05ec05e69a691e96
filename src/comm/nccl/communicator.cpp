// Fixed-tree reduction on GPUs: all-to-all of parts, the owner adds the roots in tree order, all-gather. In one piece,
// or in as many as asked for: the additions of a piece then run beside the exchange of the next.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "add.hpp"
#include "library.hpp"
#include "renai/base/check.hpp"
#include "renai/base/error.hpp"
#include "renai/comm/nccl.hpp"
#include "renai/device/cuda.hpp"

namespace renai {
namespace nccl {
namespace {

/// Borders of pieces and parts are multiples of this, so that vector loads stay aligned.
constexpr std::int64_t kUnitElems = 64;
constexpr int kMostPieces = 8;

struct Interval {
  std::int64_t begin = 0, end = 0;
  std::int64_t elems() const { return end - begin; }
};

std::int64_t share_elems(std::int64_t elems, int count) {
  const std::int64_t units = (elems + kUnitElems - 1) / kUnitElems;
  return (units + count - 1) / count * kUnitElems;
}

/// Share `index` of `count` of an interval; the last shares of short ones are empty.
Interval share_of(Interval whole, int count, int index) {
  const std::int64_t share = share_elems(whole.elems(), count);
  return {std::min(whole.end, whole.begin + index * share), std::min(whole.end, whole.begin + (index + 1) * share)};
}

void check_cuda(int status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  throw BackendError(std::string(what) + " failed", cudaGetErrorString(static_cast<cudaError_t>(status)),
                     "see the GPU's log (dmesg, nvidia-smi)");
}

cudaStream_t native(Stream& stream) {
  auto* gpu = dynamic_cast<CudaStream*>(&stream);
  RENAI_CHECK(gpu != nullptr, "the nccl communicator runs on GPU streams only");
  return static_cast<cudaStream_t>(gpu->native());
}

/// The stream of the additions, and the events that fork it from the stream of the exchanges and join it again.
class SideStream {
 public:
  SideStream() {
    int least = 0, greatest = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for stream priorities");
    check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), "making a stream");
    for (cudaEvent_t& event : events_) {
      check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
    }
  }
  ~SideStream() {
    if (std::uncaught_exceptions() > 0) return;
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
    cudaStreamDestroy(stream_);
  }
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  cudaStream_t stream() const { return stream_; }
  /// Later work of the side stream waits for what `main` holds now. In a capture of `main` the side stream takes part.
  void fork(cudaStream_t main, int piece) { order(main, stream_, 2 * piece); }
  /// Later work of `main` waits for what the side stream holds now.
  void mark(int piece) { check_cuda(cudaEventRecord(event(2 * piece + 1), stream_), "recording an event"); }
  void join(cudaStream_t main, int piece) {
    check_cuda(cudaStreamWaitEvent(main, event(2 * piece + 1), 0), "making a stream wait");
  }

 private:
  cudaEvent_t event(int index) const { return events_[static_cast<std::size_t>(index)]; }
  void order(cudaStream_t before, cudaStream_t after, int index) {
    check_cuda(cudaEventRecord(event(index), before), "recording an event");
    check_cuda(cudaStreamWaitEvent(after, event(index), 0), "making a stream wait");
  }

  cudaStream_t stream_ = nullptr;
  std::vector<cudaEvent_t> events_ = std::vector<cudaEvent_t>(2 * kMostPieces, nullptr);
};

class GpuCommunicator final : public NcclCommunicator {
 public:
  GpuCommunicator(ControlGroup& control, const NcclOptions& options)
      : rank_(control.rank()),
        world_size_(control.world_size()),
        options_(options),
        library_(control, options.watchdog) {}

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  std::string name() const override {
    return "nccl (" + nccl_version() + (options_.reduce == ReduceMode::fast ? ", fast)" : ")");
  }
  void poll() override { library_.poll(); }

  std::int64_t tree_reduce_scratch_bytes(std::int64_t elems) const override {
    if (world_size_ == 1 || uses_library()) return 0;
    std::int64_t scratch_elems = 0;
    for (const Interval& piece : pieces_of(elems)) scratch_elems += piece_scratch_elems(piece);
    return 4 * scratch_elems;
  }

  void tree_reduce(float* values, std::int64_t elems, std::byte* scratch, Stream& stream, std::string stage) override {
    RENAI_CHECK(elems >= 0, "negative element count of a reduction");
    if (world_size_ == 1 || elems == 0) return;
    const cudaStream_t main = native(stream);
    if (uses_library()) {
      library_.finish(
          ncclAllReduce(values, values, static_cast<std::size_t>(elems), ncclFloat, ncclSum, library_.comm(), main),
          stage);
      return;
    }
    reduce_pieces(values, pieces_of(elems), reinterpret_cast<float*>(scratch), main, stage);
  }

  void all_gather(std::byte* blocks, std::int64_t block_bytes, Stream& stream, std::string stage) override {
    RENAI_CHECK(block_bytes >= 0, "negative block size of an all-gather");
    if (world_size_ == 1 || block_bytes == 0) return;
    library_.finish(ncclAllGather(blocks + rank_ * block_bytes, blocks, static_cast<std::size_t>(block_bytes), ncclInt8,
                                  library_.comm(), native(stream)),
                    stage);
  }

 private:
  /// With two ranks the tree is one addition of two values, and addition commutes: a reduction of the library that adds
  /// on the GPUs in fp32 gives the tree's bits (what adds in the switch may flush small values). `pieces` asks for the
  /// exchange of our own nevertheless.
  bool uses_library() const {
    const char* multicast = std::getenv("NCCL_NVLS_ENABLE");
    const bool on_gpus = multicast != nullptr && std::string_view(multicast) == "0";
    return options_.reduce == ReduceMode::fast || (world_size_ == 2 && options_.pieces == 0 && on_gpus);
  }

  /// One piece unless asked: on one host the additions of a second one cost more than they hide.
  std::vector<Interval> pieces_of(std::int64_t elems) const {
    const int count = std::clamp(options_.pieces, 1, kMostPieces);
    std::vector<Interval> pieces;
    for (int i = 0; i < count; ++i) {
      const Interval piece = share_of({0, elems}, count, i);
      if (piece.elems() > 0) pieces.push_back(piece);
    }
    return pieces;
  }

  std::int64_t piece_scratch_elems(Interval piece) const {
    return (world_size_ - 1) * share_elems(piece.elems(), world_size_);
  }

  /// Exchanges follow each other on `main`; with several pieces the additions run beside them.
  void reduce_pieces(float* values, const std::vector<Interval>& pieces, float* scratch, cudaStream_t main,
                     const std::string& stage) {
    const bool beside = pieces.size() > 1;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const int number = static_cast<int>(i);
      exchange(values, pieces[i], scratch, main, stage);
      if (beside) side_.fork(main, number);
      add(values, pieces[i], scratch, beside ? side_.stream() : main);
      if (beside) side_.mark(number);
      scratch += piece_scratch_elems(pieces[i]);
    }
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (beside) side_.join(main, static_cast<int>(i));
      gather(values, pieces[i], main, stage);
    }
  }

  Interval part(Interval piece, int owner) const { return share_of(piece, world_size_, owner); }

  /// Every rank gets all ranks' values of its own part, in rank order.
  void exchange(float* values, Interval piece, float* scratch, cudaStream_t main, const std::string& stage) {
    const Interval own = part(piece, rank_);
    const std::int64_t stride = share_elems(piece.elems(), world_size_);
    group(stage, [&](int peer) {
      const Interval theirs = part(piece, peer);
      send(values, theirs, peer, main);
      const int place = peer < rank_ ? peer : peer - 1;
      receive(scratch + place * stride, own.elems(), peer, main);
    });
  }

  void add(float* values, Interval piece, const float* scratch, cudaStream_t stream) {
    const Interval own = part(piece, rank_);
    if (own.elems() == 0) return;
    TreeOperands operands;
    operands.own_values = values + own.begin;
    operands.others = scratch;
    operands.stride_elems = share_elems(piece.elems(), world_size_);
    operands.elems = own.elems();
    operands.own = rank_;
    operands.count = world_size_;
    check_cuda(add_tree(operands, stream), "adding in tree order");
  }

  void gather(float* values, Interval piece, cudaStream_t main, const std::string& stage) {
    const Interval own = part(piece, rank_);
    group(stage, [&](int peer) {
      send(values, own, peer, main);
      const Interval theirs = part(piece, peer);
      receive(values + theirs.begin, theirs.elems(), peer, main);
    });
  }

  /// One grouped exchange with every peer.
  template <typename Visit>
  void group(const std::string& stage, const Visit& visit) {
    check_nccl(ncclGroupStart(), "starting a group of exchanges");
    for (int step = 1; step < world_size_; ++step) visit((rank_ + step) % world_size_);
    library_.finish(ncclGroupEnd(), stage);
  }

  void send(const float* values, Interval interval, int peer, cudaStream_t main) {
    if (interval.elems() == 0) return;
    check_nccl(ncclSend(values + interval.begin, static_cast<std::size_t>(interval.elems()), ncclFloat, peer,
                        library_.comm(), main),
               "sending a part");
  }

  void receive(float* to, std::int64_t elems, int peer, cudaStream_t main) {
    if (elems == 0) return;
    check_nccl(ncclRecv(to, static_cast<std::size_t>(elems), ncclFloat, peer, library_.comm(), main),
               "receiving a part");
  }

  int rank_, world_size_;
  NcclOptions options_;
  Library library_;
  SideStream side_;
};

bool is_power_of_two(int value) { return (value & (value - 1)) == 0; }

}  // namespace
}  // namespace nccl

std::unique_ptr<NcclCommunicator> make_nccl_communicator(ControlGroup& control, const NcclOptions& options) {
  const int world = control.world_size();
  if (options.reduce == ReduceMode::tree && !nccl::is_power_of_two(world)) {
    int below = 1;
    while (below * 2 < world) below *= 2;
    throw UserError("cannot reduce over " + std::to_string(world) + " ranks",
                    "the fixed reduction tree needs a power of two of ranks",
                    "start " + std::to_string(below) + " or " + std::to_string(below * 2) + " ranks");
  }
  if (options.shared_gpu) ::setenv("NCCL_HOSTID", ("renai-rank-" + std::to_string(control.rank())).c_str(), 0);
  return std::make_unique<nccl::GpuCommunicator>(control, options);
}

std::string nccl_version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "unknown NCCL";
  return "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace renai
