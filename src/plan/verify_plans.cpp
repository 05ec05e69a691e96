// The verifier of memory plans. It recomputes happens-before from the graph's nodes and shares nothing with the planner
// but the plans themselves.

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "renai/base/check.hpp"
#include "renai/graph/happens_before.hpp"
#include "renai/graph/region_name.hpp"
#include "renai/plan/memory_plan.hpp"
#include "verify_regions.hpp"

namespace renai {
namespace {

using plan_detail::fail_plan;
using plan_detail::verify_regions;

/// Where an entry stands: graphs of one pass in their order, then happens-before within the graph.
struct Access {
  GraphId graph = GraphId::COUNT;
  std::int32_t first_node = 0;  ///< Of the entry: nothing in the entry starts before it.
};

/// A run of bytes and everything that touches it.
struct Span {
  std::string name;
  std::int64_t offset = 0, size = 0;
  std::vector<Access> accesses;
  bool always = false;    ///< Live all the time.
  std::size_t group = 0;  ///< Spans of one group may share bytes.
};

/// What one stream runs between two points where nothing of the transients is live. INF_EMA stands like INF_MAIN.
const std::vector<std::vector<GraphId>> kPasses{
    {GraphId::FIRST_LAYER_FWD_A, GraphId::DEEP_FWD_BWD, GraphId::FIRST_LAYER_BWD_A},
    {GraphId::FIRST_LAYER_FWD_B, GraphId::DEEP_FWD_BWD, GraphId::FIRST_LAYER_BWD_B},
    {GraphId::INF_MAIN_A},
    {GraphId::INF_MAIN_B},
    {GraphId::INF_EMA_A},
    {GraphId::INF_EMA_B},
    {GraphId::SIMPLE_TASK_GRAPH}};

/// Position of a graph in a pass; -1 when it is not part of it.
int position_in(std::size_t pass, GraphId id) {
  for (std::size_t i = 0; i < kPasses[pass].size(); ++i) {
    if (kPasses[pass][i] == id) return static_cast<int>(i);
  }
  return -1;
}

class PlanVerifier {
 public:
  PlanVerifier(const PlanRequest& request, std::span<const MemoryPlan> plans)
      : request_(request), graph_(*request.graph), book_(*request.book), plans_(plans) {}

  void run() {
    RENAI_CHECK(plans_.size() == request_.specs.size(), "one plan for each variant");
    for (std::size_t i = 0; i < plans_.size(); ++i) {
      if (!(plans_[i].spec == request_.specs[i])) fail_plan(plans_[i], "it is made for another variant");
      check_shape_of_plan(plans_[i]);
      verify_regions(plans_[i]);
      check_tensors(i);
      check_param_offsets(plans_[i]);
      check_half_weights(plans_[i]);
    }
    check_equal_offsets();
    find_groups();
    find_accesses();
    for (std::size_t i = 0; i < plans_.size(); ++i) check_lifetimes(i);
  }

 private:
  std::size_t tensor_count() const { return graph_.tensors().size() + book_.tensors.size(); }

  std::string name_of(std::size_t tensor) const {
    return tensor < graph_.tensors().size() ? graph_.tensors()[tensor].name
                                            : book_.tensors[tensor - graph_.tensors().size()].name;
  }

  bool is_fixed(std::size_t tensor) const {
    return tensor < graph_.tensors().size() && !is_transient(graph_.tensors()[tensor].role);
  }

  void check_shape_of_plan(const MemoryPlan& plan) const {
    if (plan.tensors.size() != tensor_count()) fail_plan(plan, "it has not one entry for each tensor");
    bool fits = plan.workspace_offset.size() == kGraphIdCount;
    for (int i = 0; fits && i < kGraphIdCount; ++i) {
      fits = plan.workspace_offset[static_cast<std::size_t>(i)].size() == book_.of(static_cast<GraphId>(i)).size();
    }
    if (!fits) fail_plan(plan, "it has not one workspace for each entry");
  }

  bool runs(const MemoryPlan& plan, GraphId id) const {
    const GraphFamily family = graph_family(id);
    if (family == GraphFamily::training) return plan.spec.kind == VariantKind::training;
    return family != GraphFamily::inference || plan.spec.kind == VariantKind::validation;
  }

  void check_tensors(std::size_t spec) const {
    const MemoryPlan& plan = plans_[spec];
    for (std::size_t t = 0; t < plan.tensors.size(); ++t) {
      const DTensor& tensor = plan.tensors[t];
      if (!tensor.placed()) continue;
      const auto fail = [&](const std::string& why) { fail_plan(plan, "tensor '" + name_of(t) + "' " + why); };
      if (tensor.offset_bytes % kSlotAlignment != 0) fail("is not aligned");
      if (tensor.region < 0 || static_cast<std::size_t>(tensor.region) >= plan.regions.size()) fail("has no region");
      const Region& region = plan.regions[static_cast<std::size_t>(tensor.region)];
      if (tensor.offset_bytes < region.offset_bytes ||
          tensor.offset_bytes + tensor.size_bytes > region.offset_bytes + region.size_bytes) {
        fail("is not inside region '" + region.name + "'");
      }
      check_size(spec, t, tensor);
    }
  }

  /// Room for all logical and padding elements of the variant's shape.
  void check_size(std::size_t spec, std::size_t t, const DTensor& tensor) const {
    const bool in_graph = t < graph_.tensors().size();
    std::int64_t least = 0;
    if (!in_graph) {
      least = book_.tensors[t - graph_.tensors().size()].size_bytes[spec];
    } else if (const Shape& shape = request_.shapes->at(spec)[t]; shape.rank() > 0) {
      if (tensor.dtype != stored_dtype(book_, graph_, static_cast<TensorId>(t))) {
        fail_plan(plans_[spec], "tensor '" + name_of(t) + "' has another element type than in the kernel book");
      }
      if (shape != tensor.shape) fail_plan(plans_[spec], "tensor '" + name_of(t) + "' has another shape");
      if (tensor.padded_c < shape.c()) fail_plan(plans_[spec], "tensor '" + name_of(t) + "' is padded to too little");
      least = shape.elems() / shape.c() * tensor.padded_c * dtype_bytes(tensor.dtype);
    }
    if (tensor.size_bytes < least) fail_plan(plans_[spec], "tensor '" + name_of(t) + "' is too small");
  }

  /// A parameter's weight, gradient and moments have the same place in their regions.
  void check_param_offsets(const MemoryPlan& plan) const {
    const auto inner = [&](TensorId id, std::string_view region) {
      return plan.tensor(id).offset_bytes - plan.region(region).offset_bytes;
    };
    for (const ParamInfo& param : graph_.params()) {
      const std::int64_t weight = inner(param.weight, region_name::kWeights);
      if (weight != inner(param.grad, region_name::kGrad) || weight != inner(param.momentum, region_name::kMomentum)) {
        fail_plan(plan, "parameter '" + param.name + "' has different places in weights, grad and momentum");
      }
      const bool second = param.second_moment != kNoTensor;
      if (second != plan.has_region(region_name::kSecondMoment) ||
          (second && weight != inner(param.second_moment, region_name::kSecondMoment))) {
        fail_plan(plan,
                  "parameter '" + param.name + "' lacks a second moment, or it has another place than the weight");
      }
      if (param.ema != kNoTensor && weight != inner(param.ema, region_name::kEma)) {
        fail_plan(plan, "parameter '" + param.name + "' has different places in weights and ema");
      }
    }
    for (const NormInfo& norm : graph_.norms()) {
      for (const auto& [own, average] :
           {std::pair{norm.running_mean, norm.ema_mean}, {norm.running_var, norm.ema_var}}) {
        if (average == kNoTensor || inner(own, region_name::kBnRunning) == inner(average, region_name::kEmaRunning)) {
          continue;
        }
        fail_plan(plan, "batch norm '" + norm.name + "' has different places in bn_running and ema_running");
      }
    }
  }

  void check_half_weights(const MemoryPlan& plan) const {
    const bool half = graph_.options().half_weights;
    check_half_copy(plan, region_name::kWeightsHalf, half);
    check_half_copy(plan, region_name::kEmaHalf, half && graph_.options().ema_decay > 0.0);
  }

  void check_half_copy(const MemoryPlan& plan, std::string_view name, bool wanted) const {
    const bool has = plan.has_region(name);
    if (has != wanted) fail_plan(plan, "the region '" + std::string(name) + "' of half weights is missing or surplus");
    if (has && 2 * plan.region(name).size_bytes < plan.region(region_name::kWeights).size_bytes) {
      fail_plan(plan, "the region '" + std::string(name) + "' of half weights is too small");
    }
  }

  void check_equal_offsets() const {
    std::vector<std::int64_t> offset(tensor_count(), -1);
    for (const MemoryPlan& plan : plans_) {
      if (plan.regions != plans_[0].regions || plan.arena_bytes != plans_[0].arena_bytes ||
          !(plan.slot == plans_[0].slot)) {
        fail_plan(plan, "its regions, arena or slot differ from the first variant's");
      }
      for (std::size_t t = 0; t < plan.tensors.size(); ++t) {
        const std::int64_t here = plan.tensors[t].offset_bytes;
        if (here < 0) continue;
        if (offset[t] >= 0 && offset[t] != here) {
          fail_plan(plan, "tensor '" + name_of(t) + "' is not where other variants have it");
        }
        offset[t] = here;
      }
    }
    for (const MemoryPlan& plan : plans_) {
      for (std::size_t id = 0; id < kGraphIdCount; ++id) check_equal_workspaces(plan, id);
    }
  }

  void check_equal_workspaces(const MemoryPlan& plan, std::size_t id) const {
    for (const MemoryPlan& other : plans_) {
      for (std::size_t e = 0; e < plan.workspace_offset[id].size(); ++e) {
        const auto &a = plan.workspace_offset[id][e], &b = other.workspace_offset[id][e];
        if (a.empty() || b.empty() || a == b) continue;
        fail_plan(plan, "a workspace of " + std::string(graph_id_name(static_cast<GraphId>(id))) +
                            " is not where other variants have it");
      }
    }
  }

  /// Group of each tensor: the smallest tensor that it shares its storage with, by walking the aliases.
  void find_groups() {
    std::vector<std::vector<std::size_t>> neighbours(tensor_count());
    for (const StorageAlias& alias : book_.aliases) {
      neighbours[static_cast<std::size_t>(alias.out)].push_back(static_cast<std::size_t>(alias.in));
      neighbours[static_cast<std::size_t>(alias.in)].push_back(static_cast<std::size_t>(alias.out));
    }
    group_.assign(tensor_count(), tensor_count());
    for (std::size_t start = 0; start < tensor_count(); ++start) {
      if (group_[start] != tensor_count()) continue;
      std::vector<std::size_t> open{start};
      while (!open.empty()) {
        const std::size_t t = open.back();
        open.pop_back();
        if (group_[t] != tensor_count()) continue;
        group_[t] = start;
        open.insert(open.end(), neighbours[t].begin(), neighbours[t].end());
      }
    }
  }

  /// All accesses of each group, and the groups that are live all the time: touched by graphs of other streams or of
  /// several families, or read in a pass that does not write them.
  void find_accesses() {
    accesses_.resize(tensor_count());
    always_.assign(tensor_count(), false);
    std::vector<std::set<GraphFamily>> families(tensor_count());
    for (int i = 0; i < kGraphIdCount; ++i) {
      const auto id = static_cast<GraphId>(i);
      orders_.push_back(std::make_unique<HappensBefore>(graph_.nodes(id)));
      for (const KernelEntry& entry : book_.of(id)) {
        for (const auto* tensors : {&entry.inputs, &entry.outputs}) {
          for (const TensorId tensor : *tensors) {
            const std::size_t group = group_[static_cast<std::size_t>(tensor)];
            accesses_[group].push_back({id, entry.nodes.front()});
            families[group].insert(graph_family(id));
          }
        }
      }
    }
    for (std::size_t t = 0; t < tensor_count(); ++t) {
      always_[t] = families[t].size() > 1 || families[t].contains(GraphFamily::invariant);
    }
    for (const std::vector<GraphId>& pass : kPasses) check_carried(pass);
  }

  /// A tensor that a pass reads and does not write keeps its value between passes; so does, in the caller's graph, what
  /// is written and not read.
  void check_carried(const std::vector<GraphId>& pass) {
    std::set<TensorId> read, written;
    for (const GraphId id : pass) {
      for (const KernelEntry& entry : book_.of(id)) {
        read.insert(entry.inputs.begin(), entry.inputs.end());
        written.insert(entry.outputs.begin(), entry.outputs.end());
      }
    }
    const bool caller = pass[0] == GraphId::SIMPLE_TASK_GRAPH;
    const auto keep = [&](TensorId tensor) {
      const std::size_t group = group_[static_cast<std::size_t>(tensor)];
      if (!caller) always_[group] = true;
      for (Access& access : accesses_[group]) {
        if (access.graph == GraphId::SIMPLE_TASK_GRAPH) access.first_node = kWholeGraph;
      }
    };
    for (const TensorId tensor : read) {
      if (!written.contains(tensor)) keep(tensor);
    }
    for (const TensorId tensor : written) {
      if (caller && !read.contains(tensor)) keep(tensor);
    }
  }

  static constexpr std::int32_t kWholeGraph = -1;

  bool ends_before(std::size_t pass, const Access& a, const Access& b) const {
    const int position_a = position_in(pass, a.graph), position_b = position_in(pass, b.graph);
    if (position_a != position_b) return position_a < position_b;
    if (a.first_node == kWholeGraph || b.first_node == kWholeGraph) return false;
    return orders_[static_cast<std::size_t>(a.graph)]->before(a.first_node, b.first_node);
  }

  /// Whether all of `first`'s accesses in the pass come before all of `second`'s.
  bool all_before(std::size_t pass, const Span& first, const Span& second) const {
    for (const Access& x : first.accesses) {
      if (position_in(pass, x.graph) < 0) continue;
      for (const Access& y : second.accesses) {
        if (position_in(pass, y.graph) >= 0 && !ends_before(pass, x, y)) return false;
      }
    }
    return true;
  }

  /// Spans may share bytes when one is done before the other starts, in every pass that has both.
  bool may_share(const Span& a, const Span& b) const {
    if (a.always || b.always) return false;
    for (std::size_t pass = 0; pass < kPasses.size(); ++pass) {
      if (!all_before(pass, a, b) && !all_before(pass, b, a)) return false;
    }
    return true;
  }

  std::vector<Span> collect_spans(std::size_t spec) const {
    const MemoryPlan& plan = plans_[spec];
    std::vector<Span> spans;
    std::map<std::pair<std::size_t, std::int64_t>, std::size_t> span_of;  // Group and offset: index in `spans`.
    for (std::size_t t = 0; t < plan.tensors.size(); ++t) {
      const DTensor& tensor = plan.tensors[t];
      if (!tensor.placed() || tensor.size_bytes == 0) continue;
      const std::size_t group = group_[t];
      const bool fixed = is_fixed(t);
      // Names of one storage have one span, the largest: they have its accesses in common, and in a chain of hundreds
      // of sums each pair of names would compare all of them.
      if (!fixed) {
        const auto [known, is_new] = span_of.try_emplace({group, tensor.offset_bytes}, spans.size());
        if (!is_new) {
          Span& span = spans[known->second];
          if (tensor.size_bytes > span.size) {
            span.name = name_of(t);
            span.size = tensor.size_bytes;
          }
          continue;
        }
      }
      spans.push_back({name_of(t), tensor.offset_bytes, tensor.size_bytes,
                       fixed ? std::vector<Access>{} : accesses_[group], fixed || always_[group], group});
    }
    for (int i = 0; i < kGraphIdCount; ++i) {
      const auto id = static_cast<GraphId>(i);
      if (runs(plan, id)) collect_workspaces(spec, id, spans);
    }
    return spans;
  }

  void collect_workspaces(std::size_t spec, GraphId id, std::vector<Span>& spans) const {
    const MemoryPlan& plan = plans_[spec];
    const auto& offsets = plan.workspace_offset[static_cast<std::size_t>(id)];
    for (std::size_t e = 0; e < offsets.size(); ++e) {
      const KernelEntry& entry = book_.of(id)[e];
      const std::int64_t size = entry.workspace_bytes.empty() ? 0 : entry.workspace_bytes[spec];
      if (size == 0) continue;
      const std::string name = "workspace of " + std::string(graph_id_name(id)) + " entry " + std::to_string(e);
      if (offsets[e].size() != 1) fail_plan(plan, name + " has no place");
      const std::int64_t at = offsets[e][0];
      const Region& transient = plan.region(region_name::kTransient);
      if (at % kSlotAlignment != 0) fail_plan(plan, name + " is not aligned");
      if (at < transient.offset_bytes || at + size > transient.offset_bytes + transient.size_bytes) {
        fail_plan(plan, name + " is not inside region 'transient'");
      }
      spans.push_back({name,
                       at,
                       size,
                       {{id, entry.nodes.front()}},
                       graph_family(id) == GraphFamily::invariant,
                       tensor_count() + spans.size()});
    }
  }

  /// Tensors that the variant's graphs touch have a place.
  void check_touched(const MemoryPlan& plan) const {
    for (int i = 0; i < kGraphIdCount; ++i) {
      const auto id = static_cast<GraphId>(i);
      if (!runs(plan, id)) continue;
      for (const KernelEntry& entry : book_.of(id)) {
        for (const auto* tensors : {&entry.inputs, &entry.outputs}) {
          for (const TensorId tensor : *tensors) {
            if (plan.tensor(tensor).placed() || plan.tensor(tensor).size_bytes == 0) continue;
            fail_plan(plan, "tensor '" + name_of(static_cast<std::size_t>(tensor)) + "' has no place but " +
                                std::string(graph_id_name(id)) + " touches it");
          }
        }
      }
    }
  }

  void check_aliases(const MemoryPlan& plan) const {
    for (const StorageAlias& alias : book_.aliases) {
      const DTensor &out = plan.tensor(alias.out), &in = plan.tensor(alias.in);
      if (!out.placed() || !in.placed() || out.offset_bytes == in.offset_bytes) continue;
      fail_plan(plan, "tensor '" + name_of(static_cast<std::size_t>(alias.out)) + "' is not at its alias '" +
                          name_of(static_cast<std::size_t>(alias.in)) + "'");
    }
  }

  void check_lifetimes(std::size_t spec) const {
    const MemoryPlan& plan = plans_[spec];
    check_touched(plan);
    check_aliases(plan);
    std::vector<Span> spans = collect_spans(spec);
    std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.offset < b.offset; });
    for (std::size_t i = 0; i < spans.size(); ++i) {
      const std::int64_t end = spans[i].offset + spans[i].size;
      for (std::size_t k = i + 1; k < spans.size() && spans[k].offset < end; ++k) {
        if (spans[i].group == spans[k].group || may_share(spans[i], spans[k])) continue;
        fail_plan(plan, "'" + spans[i].name + "' and '" + spans[k].name + "' share bytes while both may be live");
      }
    }
  }

  const PlanRequest& request_;
  const ComputationGraph& graph_;
  const KernelBook& book_;
  std::span<const MemoryPlan> plans_;
  std::vector<std::size_t> group_;
  std::vector<std::vector<Access>> accesses_;
  std::vector<bool> always_;
  std::vector<std::unique_ptr<HappensBefore>> orders_;
};

}  // namespace

void verify(const PlanRequest& request, std::span<const MemoryPlan> plans) { PlanVerifier(request, plans).run(); }

}  // namespace renai
