#include "renai/train/audit.hpp"

#include <chrono>
#include <cstring>
#include <map>

#include "renai/base/error.hpp"
#include "renai/comm/ranks.hpp"
#include "renai/graph/region_name.hpp"

namespace renai {
namespace {

int digest_region(const TensorInfo& tensor) {
  if (tensor.average) return 4;
  switch (tensor.role) {
    case TensorRole::weight: return 0;
    case TensorRole::momentum:
    case TensorRole::second_moment: return 1;
    case TensorRole::running_mean:
    case TensorRole::running_var: return 2;
    default: return 3;
  }
}

template <typename T>
std::string as_text(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

}  // namespace

Audit::Audit(Engine& engine)
    : engine_(&engine),
      updated_(engine.create_event()),
      done_(engine.create_event()),
      host_(engine.run().device->allocate_pinned(
          engine.blueprint().plans.front().region(region_name::kDigests).size_bytes)),
      tensors_(digest_tensors(engine.blueprint().graph)) {}

StateDigest Audit::measure() {
  const Region& region = engine_->blueprint().plans.front().region(region_name::kDigests);
  Stream& caller = engine_->stream(graph_stream(GraphId::SIMPLE_TASK_GRAPH));
  engine_->stream(StreamId::UPDATE).record(*updated_);
  caller.wait(*updated_);
  engine_->launch(0, GraphId::SIMPLE_TASK_GRAPH);
  caller.copy(host_.data(), engine_->arena() + region.offset_bytes, region.size_bytes);
  caller.record(*done_);
  while (!done_->wait_host(std::chrono::milliseconds(100))) {
  }

  StateDigest digest;
  digest.has_ema = engine_->blueprint().graph.options().ema_decay > 0.0;
  digest.tensors.resize(tensors_.size());
  std::memcpy(digest.tensors.data(), host_.data(), tensors_.size() * sizeof(Digest128));
  // Combined in the model's order, so that bucket borders, which move tensors in the arena, change nothing.
  std::array<std::map<std::pair<std::int32_t, TensorRole>, Digest128>, kDigestRegions.size()> ordered;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const TensorInfo& tensor = engine_->blueprint().graph.tensor(tensors_[i]);
    const std::int32_t place = tensor.param >= 0 ? tensor.param : tensor.norm;
    ordered[static_cast<std::size_t>(digest_region(tensor))][{place, tensor.role}] = digest.tensors[i];
  }
  std::array<std::vector<Digest128>, kDigestRegions.size()> by_region;
  for (std::size_t r = 0; r < ordered.size(); ++r) {
    for (const auto& [place, value] : ordered[r]) by_region[r].push_back(value);
  }
  for (std::size_t r = 0; r < by_region.size(); ++r) digest.regions[r] = combine_digests(by_region[r]);
  return digest;
}

void Audit::compare(const StateDigest& own, std::int64_t step) {
  ControlGroup& control = *engine_->run().control;
  if (control.world_size() == 1) return;
  const std::string stage = "comparing digests of step " + std::to_string(step);
  const auto regions = control.all_gather(as_text(std::span<const Digest128>(own.regions)), stage);
  bool equal = true;
  for (const std::string& message : regions) equal = equal && message == regions.front();
  if (equal) return;

  const auto all = control.all_gather(as_text(std::span<const Digest128>(own.tensors)), stage);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    std::vector<std::string> values;
    for (const std::string& message : all) values.push_back(message.substr(i * sizeof(Digest128), sizeof(Digest128)));
    const std::vector<int> odd = split_ranks(values).odd;
    if (odd.empty()) continue;
    const TensorInfo& tensor = engine_->blueprint().graph.tensor(tensors_[i]);
    throw PeerError("the ranks' states differ after step " + std::to_string(step),
                    std::string("region '") + kDigestRegions[static_cast<std::size_t>(digest_region(tensor))] +
                        "', tensor '" + tensor.name + "': " + name_ranks(odd) +
                        (odd.size() > 1 ? " hold other bits" : " holds other bits"),
                    "check the memory of that host; continue from the last checkpoint with --resume auto");
  }
  throw InternalError("comparing digests", "regions differ but no tensor does", "please report this");
}

}  // namespace renai
