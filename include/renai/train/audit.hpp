#pragma once
// Determinism audit: digests of the state, compared across ranks.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "renai/base/digest.hpp"
#include "renai/train/engine.hpp"

namespace renai {

/// Regions with a digest, in the order of traces.
inline constexpr std::array<const char*, 5> kDigestRegions{"weights", "optimizer", "bn_running", "grad", "ema"};

/// Digests of the state at one step.
struct StateDigest {
  std::vector<Digest128> tensors;                        ///< In the order of the plan's digest_tensors().
  std::array<Digest128, kDigestRegions.size()> regions;  ///< Combined by kDigestRegions.
  bool has_ema = false;                                  ///< Otherwise the last of the regions says nothing.
};

/// Measures digests and compares them with all ranks.
class Audit {
 public:
  explicit Audit(Engine& engine);
  /// Runs the digest graph behind all work of UPDATE and waits for it.
  StateDigest measure();
  /// Compares with all ranks. Errors: PeerError with step, region, tensor and the ranks that differ from the majority.
  void compare(const StateDigest& own, std::int64_t step);

 private:
  Engine* engine_;
  std::unique_ptr<Event> updated_, done_;
  Buffer host_;
  std::vector<TensorId> tensors_;
};

}  // namespace renai
