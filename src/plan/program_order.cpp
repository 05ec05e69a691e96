#include "program_order.hpp"

#include <map>

#include "renai/base/check.hpp"

namespace renai::plan_detail {
namespace {

const std::vector<ShardPass> kTraining{{GraphId::FIRST_LAYER_FWD_A, GraphId::DEEP_FWD_BWD, GraphId::FIRST_LAYER_BWD_A},
                                       {GraphId::FIRST_LAYER_FWD_B, GraphId::DEEP_FWD_BWD, GraphId::FIRST_LAYER_BWD_B}};
const std::vector<ShardPass> kInference{
    {GraphId::INF_MAIN_A}, {GraphId::INF_MAIN_B}, {GraphId::INF_EMA_A}, {GraphId::INF_EMA_B}};
const std::vector<ShardPass> kSimple{{GraphId::SIMPLE_TASK_GRAPH}};

}  // namespace

const std::vector<ShardPass>& passes_of(Family family) {
  switch (family) {
    case Family::training: return kTraining;
    case Family::inference: return kInference;
    case Family::simple: return kSimple;
  }
  throw InternalError("passes_of", "unknown family");
}

ProgramOrder::ProgramOrder(const ComputationGraph& graph, const KernelBook& book, const ShardPass& program) {
  for (const GraphId id : program) {
    base_.push_back(size_);
    size_ += book.of(id).size();
  }
  words_ = (size_ + 63) / 64;
  bits_.assign(size_ * words_, 0);
  for (std::size_t g = 0; g < program.size(); ++g) add_graph(graph.nodes(program[g]), book.of(program[g]), base_[g]);
}

void ProgramOrder::follow(std::size_t later, std::size_t earlier) {
  std::uint64_t* to = &bits_[later * words_];
  const std::uint64_t* from = &bits_[earlier * words_];
  for (std::size_t word = 0; word < words_; ++word) to[word] |= from[word];
  to[earlier / 64] |= std::uint64_t{1} << (earlier % 64);
}

void ProgramOrder::add_graph(const std::vector<Node>& nodes, const std::vector<KernelEntry>& entries,
                             std::size_t base) {
  std::vector<std::size_t> entry_of(nodes.size(), 0);
  std::map<int, std::size_t> last_of_branch;
  for (std::size_t e = 0; e < entries.size(); ++e) {
    for (const std::int32_t node : entries[e].nodes) entry_of.at(static_cast<std::size_t>(node)) = e;
  }
  for (std::size_t e = 0; e < entries.size(); ++e) {
    const std::size_t self = base + e;
    for (std::size_t bit = 0; bit < base; ++bit) bits_[self * words_ + bit / 64] |= std::uint64_t{1} << (bit % 64);
    const int branch = nodes[static_cast<std::size_t>(entries[e].nodes.front())].branch;
    if (const auto last = last_of_branch.find(branch); last != last_of_branch.end()) follow(self, last->second);
    last_of_branch[branch] = self;
    for (const std::int32_t node : entries[e].nodes) {
      for (const std::int32_t wait : nodes[static_cast<std::size_t>(node)].waits) {
        const std::size_t earlier = entry_of.at(static_cast<std::size_t>(wait));
        RENAI_CHECK(earlier < e, "an entry waits for earlier entries only");
        follow(self, base + earlier);
      }
    }
  }
}

}  // namespace renai::plan_detail
