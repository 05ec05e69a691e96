#include <chrono>

#include "renai/backend/pre_capture.hpp"
#include "renai/base/check.hpp"
#include "renai/base/elapsed.hpp"

namespace renai {
namespace {

std::string key_text(const CaptureKey& key) {
  return std::string(graph_id_name(key.id)) + " of graph " + std::to_string(key.graph) + " at " + key.shape.str();
}

/// What one capture works on.
struct CaptureSite {
  const CaptureKey* key = nullptr;
  const BindContext* context = nullptr;
  Stream* stream = nullptr;
  int part_count() const { return context->graph->part_count(key->id); }
};

std::vector<CaptureSite> find_sites(const GraphAtlas& atlas, std::span<const BindContext> contexts,
                                    std::span<const std::unique_ptr<Stream>> streams) {
  std::vector<CaptureSite> sites;
  for (const CaptureKey& key : atlas.captures()) {
    RENAI_CHECK(key.plan >= 0 && static_cast<std::size_t>(key.plan) < contexts.size(),
                "no memory is bound for the capture of " + key_text(key));
    const AtlasSlot& slot = atlas.slot(key.plan, key.id);
    RENAI_CHECK(slot.used, "the slot of the capture of " + key_text(key) + " is empty");
    const auto stream = static_cast<std::size_t>(slot.stream);
    RENAI_CHECK(stream < streams.size(), "no stream for the capture of " + key_text(key));
    sites.push_back({&key, &contexts[static_cast<std::size_t>(key.plan)], streams[stream].get()});
  }
  return sites;
}

/// Runs the real exchanges once, outside of any capture: connections between ranks are made here.
void exchange_once(const CaptureSite& site, Backend& backend, ControlGroup& control) {
  control.barrier("arriving for the first exchange of " + key_text(*site.key));
  for (int part = 0; part < site.part_count(); ++part) {
    backend.record(*site.context, site.key->id, part, *site.stream);
  }
  site.stream->synchronize();
}

CapturedGraph capture_one(const CaptureSite& site, Backend& backend, CaptureCoordinator& coordinator) {
  std::vector<std::unique_ptr<RecordedGraph>> parts;
  std::vector<CapturedGraph> captured;
  const auto record = [&] {
    for (int part = 0; part < site.part_count(); ++part) {
      site.stream->begin_capture();
      backend.record(*site.context, site.key->id, part, *site.stream);
      parts.push_back(site.stream->end_capture());
    }
  };
  const auto instantiate = [&] { captured.emplace_back(std::move(parts)); };
  if (site.key->collective) {
    coordinator.run(key_text(*site.key), record, instantiate);
  } else {
    record();
    instantiate();
  }
  return std::move(captured.front());
}

CapturedGraph leave_uncaptured(const CaptureSite& site, Backend& backend) {
  const auto enqueue = [context = *site.context, id = site.key->id, &backend](Stream& stream, int part) {
    backend.record(context, id, part, stream);
  };
  return {enqueue, site.part_count()};
}

}  // namespace

PreCaptureResult capture_atlas(const GraphAtlas& atlas, std::span<const BindContext> contexts, Backend& backend,
                               std::span<const std::unique_ptr<Stream>> streams, ControlGroup& control, bool capture) {
  const auto start = std::chrono::steady_clock::now();
  const auto sites = find_sites(atlas, contexts, streams);
  for (const CaptureSite& site : sites) backend.warm_up(*site.context, site.key->id);
  for (const CaptureSite& site : sites) {
    if (site.key->collective) exchange_once(site, backend, control);
  }
  CaptureCoordinator coordinator(control);
  PreCaptureResult result;
  result.graphs.reserve(sites.size());
  for (const CaptureSite& site : sites) {
    result.graphs.push_back(capture ? capture_one(site, backend, coordinator) : leave_uncaptured(site, backend));
  }
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace renai
