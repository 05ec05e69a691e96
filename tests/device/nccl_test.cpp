// The nccl leaf over real ranks, one GPU each: bits of the tree, recording, pieces, the orderly end.
#include "renai/comm/nccl.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "../distributed/comm/support.hpp"
#include "renai/comm/mpi.hpp"
#include "renai/device/cuda.hpp"

namespace renai {
namespace {

using std::chrono::milliseconds;
using testing::serial_tree_vector;
using testing::vector_of;

constexpr int kComm = 2;

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

class Nccl : public ::testing::Test {
 protected:
  void SetUp() override {
    const CudaGpus found = find_cuda_gpus();
    // All ranks come to the same answer, or some would wait for the others for ever.
    std::string own = found.reason;
    if (own.empty() && static_cast<int>(found.gpus.size()) < mpi->local_size()) {
      own = std::to_string(mpi->local_size()) + " ranks but " + std::to_string(found.gpus.size()) + " GPU(s)";
    }
    for (const std::string& reason : control->all_gather(own, "looking for GPUs")) {
      if (!reason.empty()) GTEST_SKIP() << reason;
    }
    device = make_cuda_device({.ordinal = mpi->local_rank(), .while_waiting = {}});
    stream = device->create_stream(kComm);
  }

  int rank() const { return control->rank(); }
  int ranks() const { return control->world_size(); }
  std::unique_ptr<NcclCommunicator> make(int pieces = 0, ReduceMode reduce = ReduceMode::tree) {
    return make_nccl_communicator(
        *control, {.reduce = reduce, .watchdog = milliseconds(30'000), .pieces = pieces, .shared_gpu = false});
  }
  void upload(const std::vector<float>& values, Buffer& to) {
    stream->copy(to.data(), reinterpret_cast<const std::byte*>(values.data()), size_of(values));
    stream->synchronize();
  }
  std::vector<float> download(const Buffer& from, std::size_t elems) {
    std::vector<float> values(elems);
    stream->copy(reinterpret_cast<std::byte*>(values.data()), from.data(), size_of(values));
    stream->synchronize();
    return values;
  }
  static std::int64_t size_of(const std::vector<float>& values) { return static_cast<std::int64_t>(4 * values.size()); }

  std::vector<float> reduce(Communicator& comm, const std::vector<float>& values) {
    const auto elems = static_cast<std::int64_t>(values.size());
    Buffer memory = device->allocate(size_of(values));
    Buffer scratch = device->allocate(comm.tree_reduce_scratch_bytes(elems));
    upload(values, memory);
    comm.tree_reduce(reinterpret_cast<float*>(memory.data()), elems, scratch.data(), *stream, "reducing");
    stream->synchronize();
    return download(memory, values.size());
  }

  std::unique_ptr<MpiSession> mpi = start_mpi();
  std::unique_ptr<ControlGroup> control = mpi->make_control_group(milliseconds(30'000));
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
};

TEST_F(Nccl, IsTheTreeForAwkwardSizesAndAnyNumberOfPieces) {
  for (const int pieces : {0, 1, 2, 3, 8}) {
    const auto comm = make(pieces);
    for (const std::int64_t elems : {0, 1, 3, 63, 64, 65, 64 * 8 + 1, 1'000'003, 5'000'001}) {
      EXPECT_TRUE(same_bits(reduce(*comm, vector_of(rank(), elems)), serial_tree_vector(ranks(), elems)))
          << elems << " elements in " << pieces << " pieces";
    }
  }
}

TEST_F(Nccl, RecordedEqualsTheTreeEveryTime) {
  for (const int pieces : {1, 2, 4}) {
    const auto comm = make(pieces);
    for (const std::int64_t elems : {1, 3, 1'000'003}) {
      Buffer memory = device->allocate(4 * elems);
      Buffer scratch = device->allocate(comm->tree_reduce_scratch_bytes(elems));
      auto* values = reinterpret_cast<float*>(memory.data());
      comm->tree_reduce(values, elems, scratch.data(), *stream, "reducing once");
      stream->synchronize();
      stream->begin_capture();
      comm->tree_reduce(values, elems, scratch.data(), *stream, "reducing");
      const auto graph = stream->end_capture();
      for (std::uint64_t run = 0; run < 5; ++run) {
        upload(vector_of(rank(), elems, run), memory);
        stream->launch(*graph);
        stream->synchronize();
        EXPECT_TRUE(
            same_bits(download(memory, static_cast<std::size_t>(elems)), serial_tree_vector(ranks(), elems, run)))
            << elems << " elements in " << pieces << " pieces, run " << run;
      }
    }
  }
}

TEST_F(Nccl, SeveralReductionsInOneGraphShareScratch) {
  const auto comm = make(2);
  const std::int64_t elems = 100'003;
  Buffer memory = device->allocate(4 * elems), scratch = device->allocate(comm->tree_reduce_scratch_bytes(elems));
  auto* values = reinterpret_cast<float*>(memory.data());
  comm->tree_reduce(values, elems, scratch.data(), *stream, "reducing once");
  stream->synchronize();
  stream->begin_capture();
  comm->tree_reduce(values, elems, scratch.data(), *stream, "reducing");
  comm->tree_reduce(values, elems, scratch.data(), *stream, "reducing again");
  const auto graph = stream->end_capture();
  upload(vector_of(rank(), elems), memory);
  stream->launch(*graph);
  // The second sum adds equal values: a power of two times the first, exactly.
  std::vector<float> expected = serial_tree_vector(ranks(), elems);
  for (float& value : expected) value *= static_cast<float>(ranks());
  EXPECT_TRUE(same_bits(download(memory, expected.size()), expected));
}

TEST_F(Nccl, GathersEveryRanksBlock) {
  const auto comm = make();
  for (const std::int64_t elems : {1, 17, 100'001}) {
    Buffer memory = device->allocate(4 * elems * ranks());
    std::vector<float> values(static_cast<std::size_t>(elems * ranks()), 0.0f), expected;
    const std::vector<float> own = vector_of(rank(), elems);
    std::ranges::copy(own, values.begin() + rank() * elems);
    for (int peer = 0; peer < ranks(); ++peer) {
      const std::vector<float> theirs = vector_of(peer, elems);
      expected.insert(expected.end(), theirs.begin(), theirs.end());
    }
    upload(values, memory);
    comm->all_gather(memory.data(), 4 * elems, *stream, "gathering");
    stream->synchronize();
    EXPECT_TRUE(same_bits(download(memory, values.size()), expected)) << elems;
  }
}

TEST_F(Nccl, FastIsNearTheTree) {
  const auto comm = make(0, ReduceMode::fast);
  EXPECT_EQ(comm->tree_reduce_scratch_bytes(1000), 0);
  const std::vector<float> sums = reduce(*comm, vector_of(rank(), 10'001)), tree = serial_tree_vector(ranks(), 10'001);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    float size = 0;
    for (int peer = 0; peer < ranks(); ++peer) {
      size += std::fabs(testing::order_sensitive(peer, static_cast<std::int64_t>(i)));
    }
    EXPECT_NEAR(sums[i], tree[i], 1e-6f * size) << i;
  }
}

TEST_F(Nccl, EndsAtOnceWhenItsGraphsWentFirst) {
  auto comm = make();
  Buffer memory = device->allocate(4 * 1000), scratch = device->allocate(comm->tree_reduce_scratch_bytes(1000));
  auto* values = reinterpret_cast<float*>(memory.data());
  comm->tree_reduce(values, 1000, scratch.data(), *stream, "reducing once");
  stream->synchronize();
  stream->begin_capture();
  comm->tree_reduce(values, 1000, scratch.data(), *stream, "reducing");
  auto graph = stream->end_capture();
  stream->launch(*graph);
  stream->synchronize();
  control->barrier("before the end");
  const auto start = testing::Clock::now();
  graph.reset();
  comm.reset();
  EXPECT_LT(testing::seconds_since(start), 2.0);
}

}  // namespace
}  // namespace renai
