#include "storages.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <map>

#include "region_layout.hpp"
#include "renai/base/check.hpp"
#include "union_find.hpp"

namespace renai::plan_detail {
namespace {

constexpr int kInvariantBit = kFamilyCount;

/// Bit of the family that a graph belongs to; graphs of other streams share the last bit.
int family_bit(GraphId id) {
  switch (graph_family(id)) {
    case GraphFamily::training: return static_cast<int>(Family::training);
    case GraphFamily::inference: return static_cast<int>(Family::inference);
    case GraphFamily::caller: return static_cast<int>(Family::simple);
    case GraphFamily::invariant: return kInvariantBit;
  }
  return kInvariantBit;
}

/// Whether variants of this kind run graphs with this family bit.
bool runs(VariantKind kind, int bit) {
  if (bit == static_cast<int>(Family::training)) return kind == VariantKind::training;
  if (bit == static_cast<int>(Family::inference)) return kind == VariantKind::validation;
  return true;
}

class Collector {
 public:
  Collector(const PlanRequest& request, const SlotMaxima& maxima)
      : request_(request),
        book_(*request.book),
        maxima_(maxima),
        graph_tensors_(request.graph->tensors().size()),
        tensors_(graph_tensors_ + book_.tensors.size()),
        groups_(tensors_) {}

  StorageSet run() {
    for (const StorageAlias& alias : book_.aliases) {
      groups_.join(static_cast<std::size_t>(alias.out), static_cast<std::size_t>(alias.in));
    }
    add_tensors();
    for (int f = 0; f < kFamilyCount; ++f) add_accesses(static_cast<Family>(f));
    add_workspaces();
    return std::move(set_);
  }

 private:
  struct Home {
    std::vector<Storage>* list = nullptr;
    std::size_t index = 0;
  };

  bool is_fixed(std::size_t tensor) const {
    return tensor < graph_tensors_ && !is_transient(request_.graph->tensor(static_cast<TensorId>(tensor)).role);
  }

  std::int64_t slot_bytes(std::size_t tensor) const {
    return std::max(
        {maxima_.training[tensor], maxima_.inference[tensor], maxima_.simple[tensor], maxima_.invariant[tensor]});
  }

  unsigned touched_by(std::size_t tensor) const {
    unsigned mask = 0;
    const std::array slots{maxima_.training[tensor], maxima_.inference[tensor], maxima_.simple[tensor],
                           maxima_.invariant[tensor]};
    for (std::size_t bit = 0; bit < slots.size(); ++bit) mask |= (slots[bit] > 0 ? 1u : 0u) << bit;
    return mask;
  }

  void add_tensors() {
    std::map<std::size_t, std::vector<std::size_t>> members;
    std::map<std::size_t, std::size_t> fixed;
    for (std::size_t t = 0; t < tensors_; ++t) {
      if (is_fixed(t)) {
        const bool added = fixed.try_emplace(groups_.find(t), t).second;
        RENAI_CHECK(added, "two tensors with places of their own are no aliases of each other");
      } else if (slot_bytes(t) > 0) {
        members[groups_.find(t)].push_back(t);
      }
    }
    homes_.resize(tensors_);
    carried_ = find_carried();
    for (const auto& [root, tensors] : members) {
      if (const auto owner = fixed.find(root); owner != fixed.end()) {
        for (const std::size_t t : tensors) {
          set_.in_fixed.emplace_back(static_cast<TensorId>(t), static_cast<TensorId>(owner->second));
        }
      } else {
        add_group(tensors);
      }
    }
  }

  void add_group(const std::vector<std::size_t>& tensors) {
    Storage storage;
    unsigned mask = 0;
    bool carried = false;
    for (const std::size_t t : tensors) {
      carried = carried || carried_[t];
      storage.tensors.push_back(static_cast<TensorId>(t));
      storage.size_bytes = std::max(storage.size_bytes, slot_bytes(t));
      mask |= touched_by(t);
    }
    const bool lasting = carried || std::popcount(mask) != 1 || mask == 1u << kInvariantBit;
    std::vector<Storage>& list =
        lasting ? set_.lasting : set_.by_family[static_cast<std::size_t>(std::countr_zero(mask))];
    for (const std::size_t t : tensors) homes_[t] = {&list, list.size()};
    list.push_back(std::move(storage));
  }

  void add_accesses(Family family) {
    const std::vector<ShardPass>& passes = passes_of(family);
    std::vector<Storage>& list = set_.by_family[static_cast<std::size_t>(family)];
    for (Storage& storage : list) storage.accesses.resize(passes.size());
    for (std::size_t pass = 0; pass < passes.size(); ++pass) {
      std::size_t index = 0;
      const auto touch = [&](TensorId tensor) {
        const Home& home = homes_[static_cast<std::size_t>(tensor)];
        if (home.list != &list) return;
        std::vector<std::size_t>& accesses = list[home.index].accesses[pass];
        if (accesses.empty() || accesses.back() != index) accesses.push_back(index);
      };
      for (const GraphId id : passes[pass]) {
        for (const KernelEntry& entry : book_.of(id)) {
          for (const TensorId tensor : entry.inputs) touch(tensor);
          for (const TensorId tensor : entry.outputs) touch(tensor);
          ++index;
        }
      }
    }
    // The caller of a hand-built graph fills what nobody writes and looks at what nobody reads.
    if (family != Family::simple) return;
    const Touched touched = touched_in(passes[0]);
    for (Storage& storage : list) {
      storage.always = std::any_of(storage.tensors.begin(), storage.tensors.end(), [&](TensorId tensor) {
        const auto t = static_cast<std::size_t>(tensor);
        return touched.read[t] != touched.written[t];
      });
    }
  }

  void add_workspaces() {
    for (int i = 0; i < kGraphIdCount; ++i) {
      const int bit = family_bit(static_cast<GraphId>(i));
      std::vector<Storage>& list = bit == kInvariantBit ? set_.lasting : set_.by_family[static_cast<std::size_t>(bit)];
      const std::vector<KernelEntry>& entries = book_.of(static_cast<GraphId>(i));
      for (std::size_t e = 0; e < entries.size(); ++e) {
        Storage storage;
        storage.graph = static_cast<GraphId>(i);
        storage.entry = e;
        for (std::size_t spec = 0; spec < entries[e].workspace_bytes.size(); ++spec) {
          if (!runs(request_.specs[spec].kind, bit)) continue;
          storage.size_bytes = std::max(storage.size_bytes, align_slot(entries[e].workspace_bytes[spec]));
        }
        if (storage.size_bytes == 0) continue;
        if (bit != kInvariantBit) storage.accesses = program_indices(static_cast<Family>(bit), storage.graph, e);
        list.push_back(std::move(storage));
      }
    }
  }

  /// Where an entry of a graph stands in each pass of the family.
  std::vector<std::vector<std::size_t>> program_indices(Family family, GraphId id, std::size_t entry) const {
    std::vector<std::vector<std::size_t>> indices;
    for (const ShardPass& pass : passes_of(family)) {
      std::size_t base = 0;
      indices.emplace_back();
      for (const GraphId other : pass) {
        if (other == id) indices.back().push_back(base + entry);
        base += book_.of(other).size();
      }
    }
    return indices;
  }

  struct Touched {
    std::vector<bool> read, written;  ///< By tensor.
  };

  Touched touched_in(const ShardPass& pass) const {
    Touched touched{std::vector<bool>(tensors_, false), std::vector<bool>(tensors_, false)};
    for (const GraphId id : pass) {
      for (const KernelEntry& entry : book_.of(id)) {
        for (const TensorId tensor : entry.inputs) touched.read[static_cast<std::size_t>(tensor)] = true;
        for (const TensorId tensor : entry.outputs) touched.written[static_cast<std::size_t>(tensor)] = true;
      }
    }
    return touched;
  }

  /// Tensors that a pass of training or inference reads without writing them: their values come from elsewhere.
  std::vector<bool> find_carried() const {
    std::vector<bool> carried(tensors_, false);
    for (const Family family : {Family::training, Family::inference}) {
      for (const ShardPass& pass : passes_of(family)) {
        const Touched touched = touched_in(pass);
        for (std::size_t t = 0; t < tensors_; ++t) {
          if (touched.read[t] && !touched.written[t]) carried[t] = true;
        }
      }
    }
    return carried;
  }

  const PlanRequest& request_;
  const KernelBook& book_;
  const SlotMaxima& maxima_;
  std::size_t graph_tensors_, tensors_;
  UnionFind groups_;
  std::vector<Home> homes_;
  std::vector<bool> carried_;
  StorageSet set_;
};

/// What decides the order of two storages: accesses after which nothing touches the first, and all entries that come
/// before every access of the second.
struct Bounds {
  std::vector<std::size_t> latest;
  std::vector<std::uint64_t> before_all;
};

Bounds find_bounds(const std::vector<std::size_t>& accesses, const ProgramOrder& order) {
  Bounds bounds;
  for (const std::size_t access : accesses) {
    const bool superseded =
        std::any_of(accesses.begin(), accesses.end(), [&](std::size_t other) { return order.before(access, other); });
    if (!superseded) bounds.latest.push_back(access);
    const std::span<const std::uint64_t> before = order.before(access);
    if (bounds.before_all.empty()) {
      bounds.before_all.assign(before.begin(), before.end());
    } else {
      for (std::size_t word = 0; word < before.size(); ++word) bounds.before_all[word] &= before[word];
    }
  }
  return bounds;
}

bool ends_before(const Bounds& first, const Bounds& second) {
  return std::all_of(first.latest.begin(), first.latest.end(),
                     [&](std::size_t access) { return (second.before_all[access / 64] >> (access % 64) & 1) != 0; });
}

}  // namespace

StorageSet collect_storages(const PlanRequest& request, const SlotMaxima& maxima) {
  return Collector(request, maxima).run();
}

Conflicts::Conflicts(std::size_t count) : words_((count + 63) / 64), bits_(count * words_, 0) {}

void Conflicts::add(std::size_t a, std::size_t b) {
  bits_[a * words_ + b / 64] |= std::uint64_t{1} << (b % 64);
  bits_[b * words_ + a / 64] |= std::uint64_t{1} << (a % 64);
}

void Conflicts::add_pass(const std::vector<Storage>& storages, std::size_t pass, const ProgramOrder& order) {
  std::vector<Bounds> bounds;
  bounds.reserve(storages.size());
  for (const Storage& storage : storages) bounds.push_back(find_bounds(storage.accesses[pass], order));
  for (std::size_t a = 0; a < storages.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      const bool always = storages[a].always || storages[b].always;
      if (!always && (bounds[a].latest.empty() || bounds[b].latest.empty())) continue;  // The pass lacks one of them.
      if (always || (!ends_before(bounds[a], bounds[b]) && !ends_before(bounds[b], bounds[a]))) add(a, b);
    }
  }
}

}  // namespace renai::plan_detail

namespace renai {

SlotMaxima compute_max_slot_bytes(const PlanRequest& request) {
  using plan_detail::family_bit;
  const std::size_t graph_tensors = request.graph->tensors().size();
  const std::size_t tensors = graph_tensors + request.book->tensors.size();
  SlotMaxima maxima;
  std::vector<std::int64_t>* fields[] = {&maxima.training, &maxima.inference, &maxima.simple, &maxima.invariant};
  for (auto* field : fields) field->assign(tensors, -1);
  const auto touch = [&](TensorId id, int bit) {
    const auto t = static_cast<std::size_t>(id);
    std::int64_t& slot = (*fields[bit])[t];
    const bool fixed = t < graph_tensors && !is_transient(request.graph->tensor(id).role);
    if (fixed || slot >= 0) return;
    for (std::size_t spec = 0; spec < request.specs.size(); ++spec) {
      if (!plan_detail::runs(request.specs[spec].kind, bit)) continue;
      slot = std::max(slot, align_slot(plan_detail::tensor_bytes(request, spec, id)));
    }
  };
  for (int i = 0; i < kGraphIdCount; ++i) {
    for (const KernelEntry& entry : request.book->of(static_cast<GraphId>(i))) {
      for (const TensorId tensor : entry.inputs) touch(tensor, family_bit(static_cast<GraphId>(i)));
      for (const TensorId tensor : entry.outputs) touch(tensor, family_bit(static_cast<GraphId>(i)));
    }
  }
  return maxima;
}

}  // namespace renai
