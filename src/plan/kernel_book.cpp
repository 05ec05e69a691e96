#include "renai/plan/kernel_book.hpp"

#include <algorithm>

#include "in_place.hpp"
#include "renai/base/check.hpp"
#include "renai/base/digest.hpp"
#include "renai/base/text.hpp"
#include "renai/graph/happens_before.hpp"
#include "renai/graph/shape_inference.hpp"

namespace renai {
namespace {

class BookVerifier {
 public:
  BookVerifier(const KernelBook& book, const ComputationGraph& graph, int spec_count)
      : book_(book),
        graph_(graph),
        spec_count_(static_cast<std::size_t>(spec_count)),
        graph_tensors_(static_cast<TensorId>(graph.tensors().size())),
        tensors_(graph_tensors_ + static_cast<TensorId>(book.tensors.size())) {}

  void run() const {
    require(!book_.backend.empty(), "the backend's name is missing");
    require(book_.entries.size() == kGraphIdCount, "there is not one list of entries for each graph id");
    for (int i = 0; i < kGraphIdCount; ++i) check_graph(static_cast<GraphId>(i));
    for (const BookTensor& tensor : book_.tensors) {
      require(!tensor.name.empty(), "a book tensor has no name");
      check_sizes(tensor.size_bytes, "book tensor '" + tensor.name + "'");
    }
    std::vector<bool> aliased(static_cast<std::size_t>(tensors_), false);
    for (const StorageAlias& alias : book_.aliases) {
      check_tensor(alias.out, "an alias");
      check_tensor(alias.in, "an alias");
      require(alias.out != alias.in, "a tensor is an alias of itself");
      require(!aliased[static_cast<std::size_t>(alias.out)], "tensor '" + name(alias.out) + "' is an alias twice");
      aliased[static_cast<std::size_t>(alias.out)] = true;
    }
    require(book_.padded_c.empty() || book_.padded_c.size() == graph_.tensors().size(),
            "padded_c has not one entry for each tensor of the graph");
    require(book_.half_dtype == DType::bf16 || book_.half_dtype == DType::f16,
            "half weights cannot be stored as " + std::string(dtype_name(book_.half_dtype)));
    check_dtypes();
    plan_detail::check_in_place(book_, graph_);
  }

 private:
  void require(bool good, const std::string& why) const {
    if (!good) throw InternalError("kernel book of backend '" + book_.backend + "'", why);
  }

  const std::string& name(TensorId id) const {
    return id < graph_tensors_ ? graph_.tensor(id).name
                               : book_.tensors[static_cast<std::size_t>(id - graph_tensors_)].name;
  }

  void check_tensor(TensorId id, const std::string& owner) const {
    require(id >= 0 && id < tensors_, owner + " refers to tensor " + std::to_string(id) + ", which does not exist");
  }

  void check_sizes(const std::vector<std::int64_t>& sizes, const std::string& owner) const {
    require(sizes.size() == spec_count_,
            owner + " has " + std::to_string(sizes.size()) + " sizes for " + std::to_string(spec_count_) + " variants");
    for (const std::int64_t size : sizes) require(size >= 0, owner + " has a negative size");
  }

  /// Activations and their gradients may be stored in half precision; parameters, statistics, sums and labels keep
  /// their types.
  void check_dtypes() const {
    if (book_.dtypes.empty()) return;
    require(book_.dtypes.size() == graph_.tensors().size(), "dtypes has not one entry for each tensor of the graph");
    for (TensorId id = 0; id < graph_tensors_; ++id) {
      const DType stored = stored_dtype(book_, graph_, id), own = tensor_dtype(graph_.tensor(id).role);
      const TensorRole role = graph_.tensor(id).role;
      const bool may_be_half = role == TensorRole::activation || role == TensorRole::activation_grad;
      require(stored == own || (may_be_half && (stored == DType::f16 || stored == DType::bf16)),
              "tensor '" + name(id) + "' cannot be stored as " + std::string(dtype_name(stored)));
    }
    for (const StorageAlias& alias : book_.aliases) {
      if (alias.out >= graph_tensors_ || alias.in >= graph_tensors_) continue;
      require(stored_dtype(book_, graph_, alias.out) == stored_dtype(book_, graph_, alias.in),
              "alias '" + name(alias.out) + "' has another element type than '" + name(alias.in) + "'");
    }
  }

  void check_graph(GraphId id) const {
    const std::vector<Node>& nodes = graph_.nodes(id);
    const HappensBefore order(nodes);
    std::vector<bool> covered(nodes.size(), false);
    std::int32_t previous_first = -1;
    for (const KernelEntry& entry : book_.of(id)) {
      const std::string owner = std::string(graph_id_name(id)) + " entry '" + entry.kernel + "'";
      require(!entry.kernel.empty(), std::string(graph_id_name(id)) + " has an entry without a kernel's name");
      require(!entry.nodes.empty(), owner + " has no nodes");
      require(entry.nodes.front() > previous_first, owner + " is not in execution order");
      previous_first = entry.nodes.front();
      for (std::size_t i = 0; i < entry.nodes.size(); ++i) check_node(nodes, order, covered, entry, i, owner);
      for (const TensorId tensor : entry.inputs) check_tensor(tensor, owner);
      for (const TensorId tensor : entry.outputs) check_tensor(tensor, owner);
      if (!entry.workspace_bytes.empty()) check_sizes(entry.workspace_bytes, owner + "'s workspace");
    }
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      require(covered[i], std::string(graph_id_name(id)) + " node '" + nodes[i].name() + "' has no entry");
    }
  }

  void check_node(const std::vector<Node>& nodes, const HappensBefore& order, std::vector<bool>& covered,
                  const KernelEntry& entry, std::size_t position, const std::string& owner) const {
    const std::int32_t index = entry.nodes[position];
    require(index >= 0 && static_cast<std::size_t>(index) < nodes.size(),
            owner + " has node " + std::to_string(index) + ", which does not exist");
    const auto at = static_cast<std::size_t>(index);
    require(!covered[at], owner + ": node '" + nodes[at].name() + "' stands in two entries");
    covered[at] = true;
    if (position == 0) return;
    const Node& node = nodes[at];
    const std::int32_t before = entry.nodes[position - 1], first = entry.nodes.front();
    const Node& leader = nodes[static_cast<std::size_t>(first)];
    require(index > before && node.branch == leader.branch && node.part == leader.part,
            owner + " fuses nodes of different branches or parts, or out of order");
    for (std::int32_t between = before + 1; between < index; ++between) {
      require(nodes[static_cast<std::size_t>(between)].branch != leader.branch,
              owner + " fuses nodes that do not follow each other");
    }
    // The kernel starts when its first node may: a later wait would come too late.
    for (const std::int32_t wait : node.waits) {
      require(order.before(wait, first), owner + " starts before what '" + node.name() + "' waits for");
    }
  }

  const KernelBook& book_;
  const ComputationGraph& graph_;
  std::size_t spec_count_;
  TensorId graph_tensors_, tensors_;
};

template <typename T>
std::string list(const std::vector<T>& values) {
  std::string text = "[";
  for (const T value : values) text += (text.size() > 1 ? " " : "") + std::to_string(value);
  return text + "]";
}

std::string entry_line(const KernelEntry& entry) {
  std::string text =
      "  " + list(entry.nodes) + " " + entry.kernel + ": " + list(entry.outputs) + " = " + list(entry.inputs);
  if (!entry.workspace_bytes.empty()) text += " workspace " + list(entry.workspace_bytes);
  return text;
}

std::string book_tail(const KernelBook& book) {
  std::string text = book.half_dtype == DType::bf16 ? "" : "half " + std::string(dtype_name(book.half_dtype)) + "\n";
  for (std::size_t i = 0; i < book.tensors.size(); ++i) {
    text +=
        "book tensor " + std::to_string(i) + " " + book.tensors[i].name + " " + list(book.tensors[i].size_bytes) + "\n";
  }
  for (const StorageAlias& alias : book.aliases) {
    text += "alias %" + std::to_string(alias.out) + " in %" + std::to_string(alias.in) + "\n";
  }
  if (!book.padded_c.empty()) text += "padded_c " + list(book.padded_c) + "\n";
  if (!book.dtypes.empty()) {
    text += "dtypes [";
    for (std::size_t i = 0; i < book.dtypes.size(); ++i) {
      text += (i > 0 ? " " : "") + std::string(dtype_name(book.dtypes[i]));
    }
    text += "]\n";
  }
  return text;
}

}  // namespace

DType stored_dtype(const KernelBook& book, const ComputationGraph& graph, TensorId id) {
  if (!book.dtypes.empty()) return book.dtypes.at(static_cast<std::size_t>(id));
  return tensor_dtype(graph.tensor(id).role);
}

void verify(const KernelBook& book, const ComputationGraph& graph, int spec_count) {
  BookVerifier(book, graph, spec_count).run();
}

std::string print(const KernelBook& book, const ComputationGraph& graph) {
  std::string text = "backend " + book.backend + "\n";
  for (int i = 0; i < kGraphIdCount; ++i) {
    const auto id = static_cast<GraphId>(i);
    if (book.of(id).empty()) continue;
    text += "graph " + std::string(graph_id_name(id)) + "\n";
    for (const KernelEntry& entry : book.of(id)) {
      text += entry_line(entry) + " (";
      for (std::size_t k = 0; k < entry.nodes.size(); ++k) {
        text += (k > 0 ? " + " : "") + graph.nodes(id)[static_cast<std::size_t>(entry.nodes[k])].name();
      }
      text += ")\n";
    }
  }
  return text + book_tail(book);
}

std::uint64_t kernel_plan_hash(const KernelBook& book) {
  std::string text = book.backend + "\n";
  for (std::size_t id = 0; id < book.entries.size(); ++id) {
    // RANGE graphs come and go with the number of ranks; the choice of kernels, and so the bits, does not.
    if (is_shape_invariant(static_cast<GraphId>(id))) continue;
    for (const KernelEntry& entry : book.entries[id]) text += std::to_string(id) + entry_line(entry) + "\n";
  }
  return hash64(text + book_tail(book));
}

}  // namespace renai
