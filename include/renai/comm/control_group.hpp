#pragma once
// ControlGroup: small messages between ranks. Every wait has a deadline; silence becomes a PeerError that names rank
// and stage.

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "renai/base/error.hpp"

namespace renai {

class ControlGroup {
 public:
  virtual ~ControlGroup() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  /// Everybody's message, by rank. `stage` says what is being done, e.g. "comparing fingerprints".
  /// Errors: PeerError naming the silent ranks, the stage and the time waited; or the failure that a peer reported.
  virtual std::vector<std::string> all_gather(std::string_view message, std::string_view stage) = 0;
  /// Tells every rank that this one fails, so that their next wait ends with a PeerError at once. Never throws.
  virtual void report_failure(const Error& error) noexcept = 0;
  /// Throws PeerError when a peer has reported a failure. Cheap; called between steps.
  virtual void poll() = 0;
  /// Starts to ask all ranks for the largest of their values; one question at a time. Waits for nobody and
  /// allocates nothing, so it has a place between steps.
  virtual void start_maximum(int value) = 0;
  /// The largest value of the question that is open. Waits until every rank has started it. Errors: as all_gather.
  virtual int finish_maximum(std::string_view stage) = 0;
  /// Limit of every wait.
  virtual std::chrono::milliseconds deadline() const = 0;

  /// Root's message on every rank. Effects: one all_gather.
  std::string broadcast(std::string_view message, int root, std::string_view stage);
  /// Returns when every rank has arrived.
  void barrier(std::string_view stage) { all_gather({}, stage); }
};

/// Where ranks run.
struct RankPlace {
  int rank = 0;
  std::string host;
  int local_rank = 0, local_size = 1;
  std::string device, uuid;
  int numa_node = -1;
  long pid = 0;
};
struct HostTopology {
  std::vector<RankPlace> places;  ///< By rank.
  int ranks_per_host = 1;         ///< Where equal on all hosts, contiguous and a power of two; else 1 (flat reduction).
  std::string print() const;
};
/// Gathers every rank's place. `local_rank` and `local_size` come from host names and rank order.
HostTopology gather_topology(ControlGroup& control, const RankPlace& own);

}  // namespace renai
