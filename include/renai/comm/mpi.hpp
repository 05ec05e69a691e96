#pragma once
// The mpi and self leaves of `comm`.

#include <chrono>
#include <memory>

#include "renai/comm/communicator.hpp"
#include "renai/comm/control_group.hpp"

namespace renai {

/// Owns MPI_Init_thread (multiple) and the orderly end. One per process.
class MpiSession {
 public:
  virtual ~MpiSession() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  /// Place among the ranks that share this host's memory, as MPI sees it: names of hosts take no part.
  virtual int local_rank() const = 0;
  virtual int local_size() const = 0;
  /// Ends the whole job at once with `exit_code`; does not return.
  [[noreturn]] virtual void abort(int exit_code) noexcept = 0;
  virtual std::unique_ptr<ControlGroup> make_control_group(std::chrono::milliseconds deadline) = 0;
  /// `ranks_per_host` > 1 reduces inside each host first: same bits, fewer bytes between hosts.
  virtual std::unique_ptr<Communicator> make_communicator(std::chrono::milliseconds deadline,
                                                          int ranks_per_host = 1) = 0;
  virtual std::string library() const = 0;
};

/// Starts MPI, unless it is up already. MPI's own start waits for every rank for ever: when it does not end within
/// `watchdog_limit` (and a second, for slow starts), the process says so as rank `launcher_rank` and ends with the
/// exit code of a PeerError. Errors: BackendError when the library lacks MPI_THREAD_MULTIPLE.
std::unique_ptr<MpiSession> start_mpi(std::chrono::milliseconds watchdog_limit = std::chrono::seconds(60),
                                      int launcher_rank = 0);

/// One rank without MPI.
std::unique_ptr<ControlGroup> make_self_control_group();
std::unique_ptr<Communicator> make_self_communicator();

}  // namespace renai
