// The self leaf, and topologies as gathered from made-up groups.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "renai/comm/mpi.hpp"
#include "renai/device/host.hpp"

namespace renai {
namespace {

using ::testing::HasSubstr;

TEST(Self, ControlGroupOfOne) {
  const auto group = make_self_control_group();
  EXPECT_EQ(group->rank(), 0);
  EXPECT_EQ(group->world_size(), 1);
  group->start_maximum(-3);
  EXPECT_EQ(group->finish_maximum("asking"), -3);
  EXPECT_EQ(group->all_gather("hello", "gathering"), std::vector<std::string>{"hello"});
  EXPECT_EQ(group->broadcast("x", 0, "broadcasting"), "x");
  EXPECT_THROW(group->broadcast("x", 1, "broadcasting"), InternalError);
  group->barrier("meeting");
  group->poll();
  group->report_failure(DataError("nobody", "hears this"));
}

TEST(Self, CollectivesOfOneRankChangeNothing) {
  const auto device = make_host_device();
  const auto stream = device->create_stream(2);
  const auto comm = make_self_communicator();
  EXPECT_EQ(comm->name(), "self");
  EXPECT_EQ(comm->world_size(), 1);
  EXPECT_EQ(comm->tree_reduce_scratch_bytes(1000), 0);
  float values[3] = {1.0f, -0.0f, 3.0f};
  comm->tree_reduce(values, 3, nullptr, *stream, "reducing");
  comm->all_gather(reinterpret_cast<std::byte*>(values), sizeof(values), *stream, "gathering");
  stream->synchronize();
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_TRUE(std::signbit(values[1]));
  EXPECT_EQ(values[2], 3.0f);
}

/// A group in which the other ranks' messages are what they would send from the given hosts.
class MadeUpGroup final : public ControlGroup {
 public:
  explicit MadeUpGroup(std::vector<std::string> hosts) : hosts_(std::move(hosts)) {}
  int rank() const override { return 0; }
  int world_size() const override { return static_cast<int>(hosts_.size()); }
  std::vector<std::string> all_gather(std::string_view message, std::string_view) override {
    std::vector<std::string> texts;
    for (const std::string& host : hosts_) {
      texts.push_back(host + std::string(message.substr(message.find('\x1f'))));
    }
    return texts;
  }
  void report_failure(const Error&) noexcept override {}
  void poll() override {}
  void start_maximum(int) override {}
  int finish_maximum(std::string_view) override { return 0; }
  std::chrono::milliseconds deadline() const override { return std::chrono::milliseconds{1}; }

 private:
  std::vector<std::string> hosts_;
};

HostTopology topology_of(std::vector<std::string> hosts) {
  MadeUpGroup group(std::move(hosts));
  RankPlace own;
  own.device = "cpu";
  own.numa_node = 1;
  own.pid = 77;
  return gather_topology(group, own);
}

TEST(Topology, RanksPerHostOnlyWhereGroupingIsATree) {
  EXPECT_EQ(topology_of({"a"}).ranks_per_host, 1);
  EXPECT_EQ(topology_of({"a", "a"}).ranks_per_host, 2);
  EXPECT_EQ(topology_of({"a", "b"}).ranks_per_host, 1);
  EXPECT_EQ(topology_of({"a", "a", "b", "b"}).ranks_per_host, 2);
  EXPECT_EQ(topology_of({"a", "b", "a", "b"}).ranks_per_host, 1);            // Round-robin: not consecutive.
  EXPECT_EQ(topology_of({"a", "b", "b", "a"}).ranks_per_host, 1);            // Straddles.
  EXPECT_EQ(topology_of({"a", "a", "a", "b"}).ranks_per_host, 1);            // Unequal.
  EXPECT_EQ(topology_of({"a", "a", "a", "b", "b", "b"}).ranks_per_host, 1);  // Three is no power of two.
  EXPECT_EQ(topology_of({"a", "a", "a", "a", "b", "b", "b", "b"}).ranks_per_host, 4);
}

TEST(Topology, LocalRanksAndPrint) {
  const HostTopology topology = topology_of({"node-a", "node-b", "node-a", "node-b"});
  EXPECT_EQ(topology.places[2].local_rank, 1);
  EXPECT_EQ(topology.places[3].local_rank, 1);
  EXPECT_EQ(topology.places[3].local_size, 2);
  EXPECT_EQ(topology.places[3].rank, 3);
  EXPECT_EQ(topology.places[1].numa_node, 1);
  EXPECT_EQ(topology.places[1].pid, 77);
  const std::string text = topology.print();
  EXPECT_THAT(text, HasSubstr("node-b  1 of 2"));
  EXPECT_THAT(text, HasSubstr("reduction: flat"));
  EXPECT_THAT(topology_of({"a", "a", "b", "b"}).print(), HasSubstr("inside each host first (2 ranks each)"));
}

}  // namespace
}  // namespace renai
