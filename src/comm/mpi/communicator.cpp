// Fixed-tree reduction: all-to-all of chunks, the owner adds the roots in tree order, all-gather. Grouped by host it is
// the same tree: a host's ranks are consecutive, so their sum is a subtree.

#include "communicator.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "renai/base/check.hpp"
#include "renai/device/host.hpp"

namespace renai::mpi {
namespace {

/// Chunk borders are multiples of this, so that owners never share a cache line and vector loops have no ragged start.
constexpr std::int64_t kChunkElems = 64;
/// Larger blocks travel as several messages.
constexpr std::int64_t kMaxMessageBytes = 4 << 20;

/// Ranks that reduce together, a power of two of them, in tree order.
struct Group {
  std::vector<int> ranks;
  int index = 0;  ///< Of this rank.
  int tag = 0;    ///< tag for the all-to-all; tag + 1 for the all-gather.
  int size() const { return static_cast<int>(ranks.size()); }
};

struct Interval {
  std::int64_t begin = 0, end = 0;
  std::int64_t elems() const { return end - begin; }
};

std::int64_t chunk_elems(std::int64_t elems, int owners) {
  const std::int64_t units = (elems + kChunkElems - 1) / kChunkElems;
  return (units + owners - 1) / owners * kChunkElems;
}

/// The part of [0, elems) that owner `index` of `owners` adds; empty for the last owners of short vectors.
Interval chunk_of(std::int64_t elems, int owners, int index) {
  const std::int64_t chunk = chunk_elems(elems, owners);
  return {std::min(elems, index * chunk), std::min(elems, (index + 1) * chunk)};
}

std::int64_t scratch_elems(std::int64_t elems, int owners) { return (owners - 1) * chunk_elems(elems, owners); }

/// What every run of the communicator shares.
struct Shared {
  std::shared_ptr<Link> link;
  std::chrono::milliseconds deadline{0};
  std::vector<Group> stages;  ///< Within the host, then across hosts; one for the flat reduction.
  int gather_tag = 0;
};

/// Starts sends or receives of a block, cut into messages.
void send_block(Exchange& exchange, const Link& link, const void* data, std::int64_t size_bytes, int peer, int tag) {
  cut_block(size_bytes, kMaxMessageBytes, [&](std::int64_t from, std::int64_t part_bytes) {
    exchange.send(static_cast<const std::byte*>(data) + from, part_bytes, peer, tag, link.data);
  });
}

void receive_block(Exchange& exchange, const Link& link, void* data, std::int64_t size_bytes, int peer, int tag) {
  cut_block(size_bytes, kMaxMessageBytes, [&](std::int64_t from, std::int64_t part_bytes) {
    exchange.receive(static_cast<std::byte*>(data) + from, part_bytes, peer, tag, link.data);
  });
}

/// One reduction with everything prepared: running it allocates nothing.
class TreeReduction {
 public:
  TreeReduction(std::shared_ptr<const Shared> shared, float* values, std::int64_t elems, float* scratch,
                std::string stage)
      : shared_(std::move(shared)),
        values_(values),
        elems_(elems),
        scratch_(scratch),
        stage_(std::move(stage)),
        exchange_(shared_->link) {
    std::size_t most = 1;
    for (const Group& group : shared_->stages) most = std::max(most, group.ranks.size());
    roots_.resize(most);
    const auto parts = static_cast<std::size_t>(elems * 4 / kMaxMessageBytes) + most;
    exchange_.reserve(2 * (parts + most));
  }

  void run() {
    Interval whole{0, elems_};
    std::array<Interval, 2> inputs{};
    for (std::size_t i = 0; i < shared_->stages.size(); ++i) {
      inputs[i] = whole;
      whole = reduce_chunk(shared_->stages[i], whole);
    }
    for (std::size_t i = shared_->stages.size(); i-- > 0;) gather_chunks(shared_->stages[i], inputs[i]);
  }

 private:
  static Interval part(const Group& group, Interval whole, int index) {
    const Interval chunk = chunk_of(whole.elems(), group.size(), index);
    return {whole.begin + chunk.begin, whole.begin + chunk.end};
  }

  template <typename Visit>
  static void for_each_peer(const Group& group, const Visit& visit) {
    for (int step = 1; step < group.size(); ++step) visit((group.index + step) % group.size());
  }

  /// Every rank gets all roots of its own chunk and leaves their sum in place. Returns the chunk.
  Interval reduce_chunk(const Group& group, Interval whole) {
    const Interval own = part(group, whole, group.index);
    float* free_scratch = scratch_;
    for (int index = 0; index < group.size(); ++index) {
      float*& root = roots_[static_cast<std::size_t>(index)];
      root = index == group.index ? values_ + own.begin : free_scratch;
      if (index == group.index) continue;
      free_scratch += own.elems();
      receive_block(exchange_, *shared_->link, root, own.elems() * 4, rank_of(group, index), group.tag);
    }
    for_each_peer(group, [&](int index) {
      const Interval theirs = part(group, whole, index);
      send_block(exchange_, *shared_->link, values_ + theirs.begin, theirs.elems() * 4, rank_of(group, index),
                 group.tag);
    });
    exchange_.finish(shared_->deadline, stage_);
    tree_sum(roots_.data(), group.size(), own.elems(), values_ + own.begin);
    return own;
  }

  void gather_chunks(const Group& group, Interval whole) {
    const Interval own = part(group, whole, group.index);
    for_each_peer(group, [&](int index) {
      const Interval theirs = part(group, whole, index);
      receive_block(exchange_, *shared_->link, values_ + theirs.begin, theirs.elems() * 4, rank_of(group, index),
                    group.tag + 1);
    });
    for_each_peer(group, [&](int index) {
      send_block(exchange_, *shared_->link, values_ + own.begin, own.elems() * 4, rank_of(group, index), group.tag + 1);
    });
    exchange_.finish(shared_->deadline, stage_);
  }

  static int rank_of(const Group& group, int index) { return group.ranks[static_cast<std::size_t>(index)]; }

  std::shared_ptr<const Shared> shared_;
  float* values_;
  std::int64_t elems_;
  float* scratch_;
  std::string stage_;
  Exchange exchange_;
  std::vector<float*> roots_;
};

/// One all-gather with everything prepared.
class AllGather {
 public:
  AllGather(std::shared_ptr<const Shared> shared, std::byte* blocks, std::int64_t block_bytes, std::string stage)
      : shared_(std::move(shared)),
        blocks_(blocks),
        block_bytes_(block_bytes),
        stage_(std::move(stage)),
        exchange_(shared_->link) {
    const auto parts = static_cast<std::size_t>(block_bytes / kMaxMessageBytes + 1);
    exchange_.reserve(2 * parts * static_cast<std::size_t>(shared_->link->world_size));
  }

  void run() {
    const Link& link = *shared_->link;
    const auto for_each_peer = [&](const auto& visit) {
      for (int step = 1; step < link.world_size; ++step) visit((link.rank + step) % link.world_size);
    };
    for_each_peer([&](int peer) {
      receive_block(exchange_, link, blocks_ + peer * block_bytes_, block_bytes_, peer, shared_->gather_tag);
    });
    for_each_peer([&](int peer) {
      send_block(exchange_, link, blocks_ + link.rank * block_bytes_, block_bytes_, peer, shared_->gather_tag);
    });
    exchange_.finish(shared_->deadline, stage_);
  }

 private:
  std::shared_ptr<const Shared> shared_;
  std::byte* blocks_;
  std::int64_t block_bytes_;
  std::string stage_;
  Exchange exchange_;
};

HostStream& host_stream(Stream& stream) {
  auto* host = dynamic_cast<HostStream*>(&stream);
  RENAI_CHECK(host != nullptr, "the mpi communicator runs on host streams only");
  return *host;
}

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<const Shared> shared, std::string name)
      : shared_(std::move(shared)), name_(std::move(name)) {}

  int rank() const override { return shared_->link->rank; }
  int world_size() const override { return shared_->link->world_size; }
  std::string name() const override { return name_; }
  void use_memory(const std::weak_ptr<const void>& memory) override { shared_->link->use_memory(memory); }

  std::int64_t tree_reduce_scratch_bytes(std::int64_t elems) const override {
    std::int64_t most = 0;
    for (const Group& group : shared_->stages) {
      most = std::max(most, scratch_elems(elems, group.size()));
      elems = chunk_elems(elems, group.size());
    }
    return most * 4;
  }

  void tree_reduce(float* values, std::int64_t elems, std::byte* scratch, Stream& stream, std::string stage) override {
    RENAI_CHECK(elems >= 0, "negative element count of a reduction");
    if (world_size() == 1 || elems == 0) return;
    auto work =
        std::make_shared<TreeReduction>(shared_, values, elems, reinterpret_cast<float*>(scratch), std::move(stage));
    host_stream(stream).enqueue([work] { work->run(); });
  }

  void all_gather(std::byte* blocks, std::int64_t block_bytes, Stream& stream, std::string stage) override {
    RENAI_CHECK(block_bytes >= 0, "negative block size of an all-gather");
    if (world_size() == 1 || block_bytes == 0) return;
    auto work = std::make_shared<AllGather>(shared_, blocks, block_bytes, std::move(stage));
    host_stream(stream).enqueue([work] { work->run(); });
  }

 private:
  std::shared_ptr<const Shared> shared_;
  std::string name_;
};

bool is_power_of_two(int value) { return value >= 1 && (value & (value - 1)) == 0; }

/// `count` ranks from `first` on, every `stride`-th.
Group make_group(int first, int stride, int count, int index, int tag) {
  Group group{.ranks = {}, .index = index, .tag = tag};
  for (int i = 0; i < count; ++i) group.ranks.push_back(first + i * stride);
  return group;
}

}  // namespace

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Link> link, std::chrono::milliseconds deadline,
                                                int ranks_per_host) {
  const int world = link->world_size, rank = link->rank;
  if (!is_power_of_two(world)) {
    int below = 1;
    while (below * 2 < world) below *= 2;
    throw UserError("cannot reduce over " + std::to_string(world) + " ranks",
                    "the fixed reduction tree needs a power of two of ranks",
                    "start " + std::to_string(below) + " or " + std::to_string(below * 2) + " ranks");
  }
  RENAI_CHECK(deadline.count() > 0, "a communicator needs a deadline");
  RENAI_CHECK(is_power_of_two(ranks_per_host) && world % ranks_per_host == 0,
              std::to_string(ranks_per_host) + " ranks per host do not divide " + std::to_string(world) + " ranks");
  auto shared = std::make_shared<Shared>();
  const int instance = link->next_data++;
  shared->deadline = deadline;
  shared->gather_tag = tag_of(instance, 4);
  if (ranks_per_host == 1 || ranks_per_host == world) {
    shared->stages = {make_group(0, 1, world, rank, tag_of(instance, 0))};
  } else {
    const int local = rank % ranks_per_host, host = rank / ranks_per_host;
    shared->stages = {make_group(host * ranks_per_host, 1, ranks_per_host, local, tag_of(instance, 0)),
                      make_group(local, ranks_per_host, world / ranks_per_host, host, tag_of(instance, 2))};
  }
  shared->link = std::move(link);
  return std::make_unique<MpiCommunicator>(std::move(shared), "mpi (" + library_name() + ")");
}

}  // namespace renai::mpi
