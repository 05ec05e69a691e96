#pragma once
// Phase B: capture every unique key of the atlas once, collectives on all ranks together.

#include <functional>
#include <string>
#include <vector>

#include "renai/backend/backend.hpp"
#include "renai/comm/control_group.hpp"

namespace renai {

/// States of one coordinated capture. Device-free, so that CPU ranks run and test it.
enum class CaptureState { idle, arrived, recording, recorded, instantiated, done, failed };

/// Drives all ranks through the capture of one key: barrier, begin, record, end, instantiate, barrier.
/// Errors: PeerError naming the rank that never arrived, or arrived with another key, and the stage.
class CaptureCoordinator {
 public:
  explicit CaptureCoordinator(ControlGroup& control) : control_(&control) {}
  void run(const std::string& key, const std::function<void()>& record, const std::function<void()>& instantiate);
  CaptureState state() const { return state_; }

 private:
  ControlGroup* control_;
  CaptureState state_ = CaptureState::idle;
};

/// Ranks compare fingerprints. Errors: a UserError for the sections "command line", "recipe" and "checkpoint", else
/// PeerError, naming the ranks that differ, the section and the first differing line on each side.
void compare_fingerprints(ControlGroup& control, const Fingerprint& own);

struct PreCaptureResult {
  std::vector<CapturedGraph> graphs;  ///< By AtlasSlot::capture.
  double seconds = 0;
};

/// Warms up, then captures in the order of atlas.captures(). `contexts` are by plan index; `streams` by StreamId.
/// Effects: collective graphs run once outside of capture, on whatever the arena holds: capture before values are
/// uploaded. Without `capture` nothing is recorded: each launch enqueues the kernels one by one, for comparison.
/// Errors: those of Backend::record; PeerError when a rank stays away or fails.
PreCaptureResult capture_atlas(const GraphAtlas& atlas, std::span<const BindContext> contexts, Backend& backend,
                               std::span<const std::unique_ptr<Stream>> streams, ControlGroup& control,
                               bool capture = true);

}  // namespace renai
