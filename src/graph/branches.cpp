// Spreading independent operators over two branches.

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "lowering.hpp"

namespace renai::graph_detail {
namespace {

constexpr int kBranches = 2;

/// Nodes of the same list that write what node `i` reads, rising.
std::vector<std::vector<std::int32_t>> find_producers(const std::vector<Node>& nodes, std::vector<bool>& has_reader) {
  std::map<TensorId, std::int32_t> writer;
  std::vector<std::vector<std::int32_t>> producers(nodes.size());
  has_reader.assign(nodes.size(), false);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto& node = std::get<ComputeNode>(nodes[i].work);
    std::set<std::int32_t> from;
    for (const TensorId input : node.inputs) {
      if (const auto found = writer.find(input); found != writer.end()) from.insert(found->second);
    }
    producers[i].assign(from.begin(), from.end());
    for (const std::int32_t producer : producers[i]) has_reader[static_cast<std::size_t>(producer)] = true;
    for (const TensorId output : node.outputs) writer[output] = static_cast<std::int32_t>(i);
  }
  return producers;
}

/// The first node and what reads the input slot. Others without producers here (a projection of the first layer's
/// output) may run beside them from the start.
bool starts_main_branch(const std::vector<Node>& nodes, std::size_t i) {
  const OpKind op = std::get<ComputeNode>(nodes[i].work).op;
  return i == 0 || op == OpKind::unpack_slot || op == OpKind::normalize_input;
}

/// What the last node of a branch is known to come after, and where its chain of values stands.
struct BranchState {
  std::int32_t tail = -1;                            ///< Last node whose output somebody reads: the end of the chain.
  std::array<std::int32_t, kBranches> seen{-1, -1};  ///< Latest node of each branch that the branch has waited for.
};

}  // namespace

void assign_branches(std::vector<Node>& nodes) {
  std::vector<bool> has_reader;
  const auto producers = find_producers(nodes, has_reader);
  std::array<BranchState, kBranches> branches;
  std::vector<std::array<std::int32_t, kBranches>> seen_by(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto follows = [&](int branch) {
      const std::int32_t tail = branches[static_cast<std::size_t>(branch)].tail;
      return tail >= 0 && std::find(producers[i].begin(), producers[i].end(), tail) != producers[i].end();
    };
    const int branch = starts_main_branch(nodes, i) || follows(0) ? 0 : 1;
    BranchState& state = branches[static_cast<std::size_t>(branch)];
    Node& node = nodes[i];
    node.branch = branch;
    // Latest producers first: waiting for one covers everything before it in its branch and all that it has waited for.
    for (auto producer = producers[i].rbegin(); producer != producers[i].rend(); ++producer) {
      const auto other = static_cast<std::size_t>(nodes[static_cast<std::size_t>(*producer)].branch);
      if (other == static_cast<std::size_t>(branch) || *producer <= state.seen[other]) continue;
      node.waits.push_back(*producer);
      for (std::size_t b = 0; b < kBranches; ++b) {
        state.seen[b] = std::max(state.seen[b], seen_by[static_cast<std::size_t>(*producer)][b]);
      }
    }
    std::sort(node.waits.begin(), node.waits.end());
    state.seen[static_cast<std::size_t>(branch)] = static_cast<std::int32_t>(i);
    seen_by[i] = state.seen;
    // A node that nobody reads here (a weight gradient) does not end the chain that its successor follows.
    if (has_reader[i]) state.tail = static_cast<std::int32_t>(i);
  }
}

}  // namespace renai::graph_detail
