// Fixed-tree reduction and all-gather over real ranks: bits, host grouping, recording, silence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "allocation_counter.hpp"
#include "renai/comm/mpi.hpp"
#include "renai/device/host.hpp"
#include "support.hpp"

namespace renai {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using testing::meet;
using testing::serial_tree_vector;
using testing::vector_of;

constexpr milliseconds kLong{30'000};
constexpr int kComm = 2;

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class Reduce : public ::testing::Test {
 protected:
  void SetUp() override {
    if ((ranks() & (ranks() - 1)) != 0) GTEST_SKIP() << "needs a power of two of ranks";
  }
  void TearDown() override { meet(); }
  int rank() const { return mpi->rank(); }
  int ranks() const { return mpi->world_size(); }
  int last() const { return ranks() - 1; }

  std::vector<float> reduce(Communicator& comm, std::vector<float> values) {
    const auto elems = static_cast<std::int64_t>(values.size());
    Buffer scratch = device->allocate(comm.tree_reduce_scratch_bytes(elems));
    comm.tree_reduce(values.data(), elems, scratch.data(), *stream, "reducing");
    stream->synchronize();
    return values;
  }

  std::unique_ptr<MpiSession> mpi = start_mpi();
  std::unique_ptr<Device> device = make_host_device();
  std::unique_ptr<Stream> stream = device->create_stream(kComm);
};

TEST_F(Reduce, IsTheSerialTreeForAwkwardSizes) {
  const auto comm = mpi->make_communicator(kLong);
  for (const std::int64_t elems : {0, 1, 63, 64, 65, 64 * 8, 64 * 8 + 1, 1'000'003}) {
    EXPECT_TRUE(same_bits(reduce(*comm, vector_of(rank(), elems)), serial_tree_vector(ranks(), elems))) << elems;
  }
}

TEST_F(Reduce, SplitsLargeBlocksIntoMessages) {
  if (ranks() != 2) GTEST_SKIP() << "sized for two ranks";
  const auto comm = mpi->make_communicator(kLong);
  const std::int64_t elems = 5'000'001;  // 10 MB a chunk: three messages.
  EXPECT_TRUE(same_bits(reduce(*comm, vector_of(rank(), elems)), serial_tree_vector(ranks(), elems)));
}

TEST_F(Reduce, TheDataTellOrdersApart) {
  if (ranks() < 4) GTEST_SKIP() << "needs four ranks: two summands commute";
  const std::int64_t elems = 1000;
  std::vector<float> chain(elems, 0.0f);
  for (int peer = 0; peer < ranks(); ++peer) {
    const auto values = vector_of(peer, elems);
    for (std::size_t i = 0; i < chain.size(); ++i) chain[i] += values[i];
  }
  std::vector<float> swapped(elems);
  for (std::size_t i = 0; i < swapped.size(); ++i) {  // Ranks 1 and 2 change places in the first quadruple.
    const auto v = [&](int peer) { return testing::order_sensitive(peer, static_cast<std::int64_t>(i)); };
    swapped[i] = (v(0) + v(2)) + (v(1) + v(3));
    if (ranks() == 8) swapped[i] += testing::serial_tree(4, 4, static_cast<std::int64_t>(i));
  }
  const auto tree = serial_tree_vector(ranks(), elems);
  EXPECT_FALSE(same_bits(chain, tree));
  EXPECT_FALSE(same_bits(swapped, tree));
}

TEST_F(Reduce, GroupingByHostGivesTheSameBits) {
  for (const int ranks_per_host : {2, 4}) {
    if (ranks() % ranks_per_host != 0) continue;
    const auto comm = mpi->make_communicator(kLong, ranks_per_host);
    for (const std::int64_t elems : {1, 63, 65, 129, 1000, 100'003}) {
      EXPECT_TRUE(same_bits(reduce(*comm, vector_of(rank(), elems)), serial_tree_vector(ranks(), elems)))
          << elems << " elements, " << ranks_per_host << " ranks per host";
    }
  }
  EXPECT_THROW(mpi->make_communicator(kLong, 3), InternalError);
  EXPECT_THROW(mpi->make_communicator(kLong, 2 * ranks()), InternalError);
}

TEST_F(Reduce, RecordedEqualsEager) {
  const auto comm = mpi->make_communicator(kLong);
  const std::int64_t elems = 10'001;
  std::vector<float> values(elems);
  Buffer scratch = device->allocate(comm->tree_reduce_scratch_bytes(elems));
  stream->begin_capture();
  comm->tree_reduce(values.data(), elems, scratch.data(), *stream, "reducing");
  const auto graph = stream->end_capture();
  for (std::uint64_t run = 0; run < 5; ++run) {
    std::ranges::copy(vector_of(rank(), elems, run), values.begin());  // In place: the graph holds the address.
    stream->launch(*graph);
    stream->synchronize();
    EXPECT_TRUE(same_bits(values, serial_tree_vector(ranks(), elems, run))) << run;
  }
}

TEST_F(Reduce, ReplayAllocatesNothing) {
  // Of what the MPI library allocates (it is C) nothing is counted.
  for (const int ranks_per_host : {1, 2}) {
    if (ranks() % ranks_per_host != 0) continue;
    const auto comm = mpi->make_communicator(kLong, ranks_per_host);
    const std::int64_t elems = 3'000'001;  // Several messages a chunk on two ranks.
    std::vector<float> values(elems, 1.0f);
    std::vector<std::byte> blocks(static_cast<std::size_t>(ranks() * 100));
    Buffer scratch = device->allocate(comm->tree_reduce_scratch_bytes(elems));
    stream->begin_capture();
    comm->tree_reduce(values.data(), elems, scratch.data(), *stream, "reducing");
    comm->all_gather(blocks.data(), 100, *stream, "gathering");
    const auto graph = stream->end_capture();
    const long before = test::allocations.load();
    for (int run = 0; run < 3; ++run) {
      stream->launch(*graph);
      stream->synchronize();
    }
    EXPECT_EQ(test::allocations.load(), before);
    EXPECT_EQ(values.back(), static_cast<float>(ranks() * ranks() * ranks()));
  }
}

/// Stands here because this file counts allocations: a training run asks between its steps.
TEST_F(Reduce, AskingForTheMaximumAllocatesNothing) {
  const auto group = mpi->make_control_group(kLong);
  long before = 0;
  for (int round = 0; round < 4; ++round) {
    if (round == 1) before = test::allocations.load();
    group->start_maximum(rank());
    EXPECT_EQ(group->finish_maximum("asking"), last());
  }
  EXPECT_EQ(test::allocations.load(), before);
}

TEST_F(Reduce, StaysInsideItsScratch) {
  for (const int ranks_per_host : {1, 2}) {
    if (ranks() % ranks_per_host != 0) continue;
    const auto comm = mpi->make_communicator(kLong, ranks_per_host);
    for (const std::int64_t elems : {1, 65, 1000}) {
      const auto bytes = static_cast<std::size_t>(comm->tree_reduce_scratch_bytes(elems));
      std::vector<std::byte> scratch(bytes + 1024, std::byte{0x5A});
      auto values = vector_of(rank(), elems);
      comm->tree_reduce(values.data(), elems, scratch.data(), *stream, "reducing");
      stream->synchronize();
      for (std::size_t i = bytes; i < scratch.size(); ++i) ASSERT_EQ(scratch[i], std::byte{0x5A}) << elems;
    }
  }
}

TEST_F(Reduce, AllGatherPlacesEveryBlock) {
  const auto comm = mpi->make_communicator(kLong);
  for (const std::int64_t block : {1, 100, 5'000'000}) {
    if (block * ranks() > 12'000'000) continue;
    std::vector<std::byte> blocks(static_cast<std::size_t>(block * ranks()), std::byte{0xFF});
    std::memset(blocks.data() + block * rank(), 1 + rank(), static_cast<std::size_t>(block));
    comm->all_gather(blocks.data(), block, *stream, "gathering");
    stream->synchronize();
    for (std::int64_t i = 0; i < block * ranks(); ++i) {
      ASSERT_EQ(std::to_integer<std::int64_t>(blocks[static_cast<std::size_t>(i)]), 1 + i / block);
    }
  }
}

TEST_F(Reduce, NamesTheMissingRankAndTheStage) {
  if (ranks() == 1) GTEST_SKIP() << "needs two ranks";
  const auto comm = mpi->make_communicator(milliseconds{700});
  meet();
  if (rank() == last()) return;
  std::vector<float> values(4, 1.0f);
  std::vector<std::byte> scratch(static_cast<std::size_t>(comm->tree_reduce_scratch_bytes(4)));
  const auto after = device->create_event();
  const auto start = testing::Clock::now();
  comm->tree_reduce(values.data(), 4, scratch.data(), *stream, "reducing gradient bucket 1");
  stream->record(*after);
  // Only the owner of the one chunk receives first; the others hear of it when the owner is done or silent.
  try {
    EXPECT_TRUE(after->wait_host(kLong));
    FAIL() << "nobody was missed";
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("while reducing gradient bucket 1"));
    EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(rank() == 0 ? last() : 0)));
  }
  EXPECT_LT(testing::seconds_since(start), 5.0);
}

/// A buffer of `elems` values and their scratch, shared as an arena is.
std::shared_ptr<const Buffer> make_memory(Device& device, Communicator& comm, std::int64_t elems) {
  auto memory = std::make_shared<const Buffer>(device.allocate(elems * 4 + comm.tree_reduce_scratch_bytes(elems)));
  comm.use_memory(memory);
  return memory;
}

TEST_F(Reduce, MemoryIsItsOwnersAsLongAsNothingFails) {
  const auto comm = mpi->make_communicator(kLong);
  constexpr std::int64_t kElems = 5000;
  std::weak_ptr<const Buffer> watched;
  {
    const auto memory = make_memory(*device, *comm, kElems);
    watched = memory;
    comm->tree_reduce(reinterpret_cast<float*>(memory->data()), kElems, memory->data() + kElems * 4, *stream,
                      "reducing");
    stream->synchronize();
  }
  EXPECT_TRUE(watched.expired());
}

TEST_F(Reduce, MemoryOfAGivenUpMessageStays) {
  if (ranks() == 1) GTEST_SKIP() << "needs two ranks";
  constexpr std::int64_t kElems = 4 << 20;  // Far more than a transport takes without the receiver.
  const auto comm = mpi->make_communicator(milliseconds{500});
  meet();
  if (rank() != 0) {
    // Nobody takes what rank 0 sends.
    std::this_thread::sleep_for(milliseconds{1500});
    return;
  }
  std::weak_ptr<const Buffer> watched;
  {
    const auto memory = make_memory(*device, *comm, kElems);
    watched = memory;
    comm->tree_reduce(reinterpret_cast<float*>(memory->data()), kElems, memory->data() + kElems * 4, *stream,
                      "reducing");
    EXPECT_THROW(stream->synchronize(), PeerError);
  }
  EXPECT_FALSE(watched.expired());
}

TEST_F(Reduce, AReportedFailureEndsAReduction) {
  if (ranks() == 1) GTEST_SKIP() << "needs two ranks";
  const auto comm = mpi->make_communicator(kLong);
  const auto control = mpi->make_control_group(kLong);
  meet();
  const auto start = testing::Clock::now();
  if (rank() == last()) {
    control->report_failure(DataError("cannot read", "truncated"));
    return;
  }
  std::vector<float> values(4, 1.0f);
  std::vector<std::byte> scratch(static_cast<std::size_t>(comm->tree_reduce_scratch_bytes(4)));
  comm->tree_reduce(values.data(), 4, scratch.data(), *stream, "reducing");
  EXPECT_THROW(stream->synchronize(), PeerError);
  EXPECT_LT(testing::seconds_since(start), 5.0);
}

TEST(ReduceRefusal, RanksThatAreNoPowerOfTwo) {
  const auto mpi = start_mpi();
  if ((mpi->world_size() & (mpi->world_size() - 1)) == 0) GTEST_SKIP() << "needs three ranks";
  try {
    mpi->make_communicator(kLong);
    FAIL() << "it was accepted";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("start 2 or 4 ranks"));
  }
  meet();
}

}  // namespace
}  // namespace renai
